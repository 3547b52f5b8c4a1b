//! Completions, in real shells: each types a line, and the test sees what is offered.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use lockkeeper_testing::{World, is_installed, skip, world};

/// A repository with a lease, requests, a plan, and a program on the PATH.
fn site() -> World {
    let world = world!().git().write("bin/lk-tool", "#!/bin/sh\n").write(
        "STAGES.yml",
        "parallel_groups:\n  P3:\n    - group_id: api\n      agents: [a]\n      conflict_paths: [\"src/**\"]\n    \
         - group_id: docs\n      agents: [b]\n      conflict_paths: [\"docs/**\"]\n",
    );
    let tool = world.path("bin/lk-tool");
    std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o755)).unwrap();
    let program = Path::new(world.program()).parent().unwrap().display().to_string();
    let path = format!("{program}:{}:{}", tool.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let world = world.set("PATH", path);
    world.run(["acquire", "db", "--ttl", "1h", "--owner", "claude:S1"]).code(0);
    world.run(["submit", "--id", "nightly", "--lock", "deploy", "--", "make", "release"]).code(0);
    world
}

/// What a line is completed to. Every shell offers the same.
const LINES: [(&str, &str); 12] = [
    ("lockkeeper subm", "submit"),
    ("lockkeeper exec de", "deploy"),
    ("lockkeeper exec d", "db"),
    ("lockkeeper release L", "L1"),
    ("lockkeeper run show ni", "nightly"),
    ("lockkeeper submit --after ni", "nightly"),
    ("lockkeeper runs --status time", "timedOut"),
    ("lockkeeper exec db --contract st", "strict"),
    ("lockkeeper stages run STAGES.yml P", "P3"),
    ("lockkeeper stages run STAGES.yml P3 ap", "api"),
    ("lockkeeper stages check STA", "STAGES.yml"),
    ("lockkeeper exec db -- lk-to", "lk-tool"),
];

#[test]
fn bash_completes_names_ids_and_commands() {
    let world = site().write(
        "rc.bash",
        "PS1=; for one in 'show-all-if-ambiguous on' 'bell-style none' 'page-completions off' \\\n    \
         'enable-bracketed-paste off' 'completion-query-items 0'; do bind \"set $one\"; done\n\
         source <(lockkeeper completions bash)\necho READY\n",
    );
    let more = [
        ("lockkeeper locks --owner=claude:S", "--owner=claude:S1"),
        ("lockkeeper locks --owner cl", "claude:S1"),
    ];
    for (line, expected) in LINES.into_iter().chain(more) {
        let mut terminal = world.terminal("bash --noprofile --rcfile rc.bash -i");
        terminal.sees("READY");
        // Only what is offered has this form: the rest of the word that is written, or the whole word in a list.
        let word = line.rsplit(' ').next().unwrap();
        let rest = expected.strip_prefix(word).unwrap_or(expected);
        terminal.types(line);
        terminal.sees(word);
        terminal.types("\t");
        terminal.sees(rest);
        terminal.types("\x15exit\n");
        let _ = terminal.wait();
    }
}

#[test]
fn zsh_completes_names_ids_and_commands() {
    if !is_installed("zsh") {
        return skip("zsh");
    }
    let world = site().write("capture.zsh", CAPTURE);
    for (line, expected) in LINES.into_iter().chain([("lockkeeper locks --owner cl", "claude:S1")]) {
        let seen = world.shell(&format!("zsh -f capture.zsh '{line}'")).stdout();
        assert!(seen.lines().any(|one| one.trim_end() == format!("OFFER {expected}")), "{line}: {seen:?}");
    }
}

/// Types a line into an interactive zsh, and prints what its completions offer.
const CAPTURE: &str = r#"
zmodload zsh/zpty || exit 1
zpty z zsh -f -i
zpty -w z 'PS1=; PS2=; stty -echo'
zpty -w z 'autoload -Uz compinit && compinit -u -D'
zpty -w z 'source <(lockkeeper completions zsh)'
zpty -w z 'compadd() { builtin compadd -O __offered "$@"; print -rl -- "" "OFFER "${^__offered}; builtin compadd "$@" }'
zpty -w z 'bindkey "^I" list-choices'
# Keys that come before the line editor has started would only be echoed.
zpty -w z 'zle-line-init() { print REA""DY }; zle -N zle-line-init'
zpty -r z seen '*READY*'
zpty -w -n z "$1"$'\t'
zpty -w -n z $'\x15print END\n'
zpty -r z seen '*END*'
print -r -- "$seen"
"#;

#[test]
fn fish_completes_names_ids_and_commands() {
    if !is_installed("fish") {
        return skip("fish");
    }
    let world = site();
    for (line, expected) in LINES.into_iter().chain([("lockkeeper locks --owner=cl", "--owner=claude:S1")]) {
        let script = format!("source (lockkeeper completions fish | psub); complete -C '{line}'");
        let done = world.shell(&format!("fish --no-config -c \"{script}\"")).code(0);
        let offered = done.stdout();
        let is_offered = offered.lines().any(|one| one.split('\t').next() == Some(expected));
        assert!(is_offered, "{line}: {offered:?} {}", done.stderr());
    }
}

/// A command behind `--` has its own completions, also if it is lockkeeper again.
#[test]
fn a_command_behind_dashes_completes_itself() {
    let world = site().write("capture.zsh", CAPTURE);
    let line = "lockkeeper exec db -- lockkeeper run sho";
    if is_installed("zsh") {
        world.shell(&format!("zsh -f capture.zsh '{line}'")).prints("OFFER show");
    }
    if is_installed("fish") {
        let script = format!("source (lockkeeper completions fish | psub); complete -C '{line}'");
        world.shell(&format!("fish --no-config -c \"{script}\"")).prints("show");
    }
}

/// Nobody wants a store because of a tab, nor an error in the middle of a line.
#[test]
fn completing_changes_nothing_and_says_nothing() {
    let world = world!();
    let before = world.tree();
    for words in
        [&["exec", ""][..], &["run", "show", ""], &["release", ""], &["stages", "run", "none.yml", ""]]
    {
        let words: Vec<&str> = ["complete", "--"].into_iter().chain(words.iter().copied()).collect();
        assert_eq!(world.run(&words).code(0).silent().stdout(), "", "{words:?}");
    }
    assert_eq!(world.tree(), before);
    let damaged = world
        .write(".lockkeeper/leases.db", "this is no database")
        .write(".lockkeeper/runs.db", "nor is this");
    damaged.run(["complete", "--", "exec", ""]).code(0).silent();
    damaged.run(["complete", "--", "requests", "show", ""]).code(0).silent();
    damaged.run(["complete", "--", "\u{1}", "-", "--", "--="]).code(0).silent();
    assert_eq!(damaged.run(["complete"]).code(0).prints("exec\t").stderr(), "");
}
