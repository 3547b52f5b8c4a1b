//! Completions and manual pages.

use lockkeeper_testing::world;

#[test]
fn every_shell_has_completions() {
    let world = world!();
    for (shell, word) in [
        ("bash", "complete -F"),
        ("elvish", "force-release-all"),
        ("fish", "complete -c"),
        ("powershell", "force-release-all"),
        ("zsh", "#compdef"),
    ] {
        let script = world.run(["completions", shell]).code(0).prints(word);
        assert_eq!(script.stderr(), "");
    }
    world.run(["completions", "cmd"]).code(2).says("bash, elvish, fish, powershell, zsh");
}

#[test]
fn help_begins_with_what_the_program_is_for() {
    let world = world!();
    for words in [vec!["help"], vec!["--help"]] {
        let help = world.run(words).code(0).stdout();
        assert!(help.starts_with("Locks, claims on paths and fair waiting"), "{help}");
    }
    let help = world.run(["exec", "--help"]).code(0).stdout();
    assert!(help.starts_with("Hold a lease while a command runs"), "{help}");
}

#[test]
fn the_bash_completion_is_valid_bash() {
    let world = world!();
    world.shell("lockkeeper completions bash > done.bash && bash -n done.bash").code(0).silent();
    world.shell("shellcheck --shell=bash done.bash").code(0).silent();
}

#[test]
fn every_command_has_a_manual_page() {
    let world = world!();
    world.run(["man"]).code(0).prints(".TH lockkeeper 1");
    world.run(["man", "--out", "pages"]).code(0);
    for page in ["lockkeeper", "lockkeeper-exec", "lockkeeper-acquire", "lockkeeper-locks-force-release-all"]
    {
        assert!(world.cwd().join("pages").join(format!("{page}.1")).is_file(), "{page}");
    }
    world.run(["man", "--out", "/proc/none"]).code(1).says("hint: ");
}

/// The commands that `--help` lists.
fn commands(help: &str) -> Vec<&str> {
    let (all, _options) = help.split_once("Global options:").unwrap();
    let listed = all.lines().filter_map(|line| line.strip_prefix("  "));
    listed.filter_map(|line| line.split_whitespace().next()).collect()
}

#[test]
fn help_lists_the_commands_in_groups_and_each_has_an_example() {
    let world = world!();
    let help = world.run(["--help"]).code(0).stdout();
    let headings = [
        "Locks:",
        "Queue:",
        "Stages:",
        "Coding agents:",
        "Lock files of other systems:",
        "Care:",
        "Global options:",
    ];
    let places =
        headings.map(|heading| help.find(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("{heading}")));
    assert!(places.is_sorted(), "{help}");
    assert!(help.contains("--json") && !help.contains("git-hook"), "{help}");
    let commands = commands(&help);
    assert!(commands.contains(&"exec") && commands.len() > 25, "{commands:?}");
    for command in commands {
        let help = world.run([command, "--help"]).code(0).stdout();
        assert!(help.contains("Example"), "{command}: {help}");
        let (own, global) = help.split_once("Global options:").unwrap();
        assert!(!own.contains("--json") && global.contains("--json"), "{command}: {help}");
    }
}

#[test]
fn words_of_other_programs_lead_to_the_right_command() {
    let world = world!();
    for (word, command) in [
        ("ls", "`lockkeeper locks`"),
        ("list", "`lockkeeper locks`"),
        ("ps", "`lockkeeper runs`"),
        ("log", "`lockkeeper run logs RUN`"),
        ("unlock", "`lockkeeper release"),
        ("lock", "`lockkeeper exec NAME -- CMD`"),
        ("kill", "`lockkeeper run cancel RUN`"),
    ] {
        world.run([word]).code(2).says(command);
        world.run([word, "--json"]).code(2).prints("lockkeeper");
    }
    world.run(["locks", "ls"]).code(2).says("`lockkeeper locks` lists everything");
}
