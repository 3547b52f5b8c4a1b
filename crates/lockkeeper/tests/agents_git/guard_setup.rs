//! Set-up of the git guard: hooks of others stay, and removing it gives their bytes back.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use lockkeeper_agents::git_guard::{GuardError, GuardState, install, remove, state};
use lockkeeper_testing::{Finished, World, skip};

use crate::repository::{Agent, executable, git, holders, hook, last, repository, with_git, write};

const ACTION: &str = "LOCKKEEPER_TEST_GUARD";

/// The functions read the settings of git, so they run in a process of their own: the test starts itself again.
#[test]
fn do_what_the_variable_says() {
    let Ok(action) = std::env::var(ACTION) else { return };
    let program = std::env::var("LOCKKEEPER_TEST_PROGRAM").unwrap();
    let done: Result<GuardState, GuardError> = match action.as_str() {
        "install" => install(Path::new("."), &program),
        "remove" => remove(Path::new(".")),
        _ => state(Path::new(".")),
    };
    match done {
        Ok(state) => println!("{} hooks by {:?} in {:?}", state.present.len(), state.program, state.place),
        Err(error) => println!("refused: {error}; {}", error.hint()),
    }
}

pub fn guard(world: &World, action: &str) -> String {
    guard_of(world, action, world.program())
}

fn guard_of(world: &World, action: &str, program: &str) -> String {
    let mut again = world.command(std::env::current_exe().unwrap());
    again.args(["--exact", "guard_setup::do_what_the_variable_says", "--nocapture"]);
    let output =
        Finished::of(again.env(ACTION, action).env("LOCKKEEPER_TEST_PROGRAM", program)).code(0).stdout();
    let answer = output.lines().find(|line| line.contains(" hooks by ") || line.contains("refused: "));
    answer.unwrap_or_else(|| panic!("no answer: {output}")).to_owned()
}

/// All files of the hooks folder, with their modes.
fn hooks(world: &World, folder: &str) -> Vec<(String, u32, Vec<u8>)> {
    use std::os::unix::fs::PermissionsExt;
    let mut found: Vec<_> = std::fs::read_dir(world.path(folder))
        .map(|entries| {
            let entries = entries.map(|entry| entry.unwrap().path());
            entries
                .map(|path| {
                    let name = path.file_name().unwrap().to_str().unwrap().to_owned();
                    let mode = path.symlink_metadata().unwrap().permissions().mode();
                    (name, mode, std::fs::read(&path).unwrap_or_default())
                })
                .collect()
        })
        .unwrap_or_default();
    found.sort();
    found
}

#[test]
fn installing_twice_changes_nothing_and_removing_gives_the_former_bytes_back() {
    let world = repository();
    hook(&world, "pre-commit", "echo shell >>ran");
    write(
        &world,
        ".git/hooks/post-commit",
        "#!/usr/bin/env -S perl\nopen F, '>>ran'; print F \"perl $0\\n\";\n",
    );
    executable(&world.path(".git/hooks/post-commit"));
    write(&world, "script", "#!/bin/sh\necho linked >>ran\n");
    executable(&world.path("script"));
    symlink("../../script", world.path(".git/hooks/prepare-commit-msg")).unwrap();
    write(&world, ".git/hooks/post-merge", "#!/bin/sh\nexit 1\n");
    let before = hooks(&world, ".git/hooks");
    assert!(guard(&world, "state").starts_with("0 hooks"));
    assert!(guard(&world, "install").starts_with("6 hooks"));
    let installed = hooks(&world, ".git/hooks");
    assert!(guard(&world, "install").starts_with("6 hooks"));
    assert_eq!(hooks(&world, ".git/hooks"), installed);
    write(&world, "src/a.rs", "1\n");
    world.git_run(&["commit", "-q", "-a", "-m", "x"]);
    let ran = std::fs::read_to_string(world.path("ran")).unwrap();
    assert!(ran.starts_with("shell\nlinked\nperl "), "{ran}");
    let other = world.beside("it's here/lockkeeper");
    assert!(guard_of(&world, "install", other.to_str().unwrap()).contains("it's here/lockkeeper"));
    assert!(guard(&world, "remove").starts_with("0 hooks"));
    assert_eq!(hooks(&world, ".git/hooks"), before);
    guard(&world, "remove");
    assert_eq!(hooks(&world, ".git/hooks"), before);
}

/// A program that is gone, too old or broken stops nobody.
#[test]
fn a_program_that_is_gone_or_fails_stops_nobody() {
    let world = repository();
    for (number, script) in ["", "exit 2", "exit 101", "kill -9 $$"].iter().enumerate() {
        let program = world.path(&format!(".git/program{number}"));
        if !script.is_empty() {
            std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
            executable(&program);
        }
        guard_of(&world, "install", program.to_str().unwrap());
        write(&world, "src/a.rs", format!("{number}\n"));
        world.git_run(&["commit", "-q", "-a", "-m", "x"]);
        assert_eq!(last(&world), ["M src/a.rs"]);
    }
}

#[test]
fn folders_of_all_repositories_and_tracked_ones_are_left_alone() {
    let world = repository();
    let folder = world.beside("global hooks");
    std::fs::create_dir(&folder).unwrap();
    world.git_run(&["config", "--global", "core.hooksPath", folder.to_str().unwrap()]);
    let answer = guard(&world, "install");
    assert!(answer.contains("refused: core.hooksPath is set") && answer.contains("2.54"), "{answer}");
    assert!(std::fs::read_dir(&folder).unwrap().next().is_none());
    guard(&world, "remove");
    // Husky 8: a tracked folder.
    write(&world, ".husky/pre-commit", "#!/bin/sh\nexit 0\n");
    world.git_run(&["add", ".husky"]);
    world.git_run(&["config", "core.hooksPath", ".husky"]);
    let answer = guard(&world, "install");
    assert!(answer.contains("refused: the hooks folder") && answer.contains("tracked"), "{answer}");
    assert_eq!(hooks(&world, ".husky").len(), 1);
    assert!(guard(&world, "state").starts_with("0 hooks"));
}

/// Whatever sets the folder for more than this repository, it stays as it is, and the answer says which scope that is.
#[test]
fn folders_of_the_system_and_of_the_command_line_are_left_alone() {
    for scope in ["system", "command", "parameters"] {
        let world = repository();
        let folder = world.beside("hooks of others");
        std::fs::create_dir(&folder).unwrap();
        let text = folder.to_str().unwrap();
        write(&world, "../system", format!("[core]\n\thooksPath = {text}\n"));
        let world = match scope {
            "system" => {
                let file = world.beside("system");
                world.set("GIT_CONFIG_NOSYSTEM", "0").set("GIT_CONFIG_SYSTEM", file.to_str().unwrap())
            }
            // What `git -c` leaves to the programs that it starts.
            "parameters" => world.set("GIT_CONFIG_PARAMETERS", format!("'core.hooksPath'='{text}'")),
            _ => {
                let world = world.set("GIT_CONFIG_COUNT", "1").set("GIT_CONFIG_KEY_0", "core.hooksPath");
                world.set("GIT_CONFIG_VALUE_0", text)
            }
        };
        let answer = guard(&world, "install");
        let named = if scope == "system" { "(system)" } else { "(command)" };
        assert!(
            answer.contains("refused: core.hooksPath is set") && answer.contains(named),
            "{scope}: {answer}"
        );
        assert!(guard(&world, "remove").starts_with("0 hooks"), "{scope}");
        assert!(std::fs::read_dir(&folder).unwrap().next().is_none(), "{scope}");
        assert!(hooks(&world, ".git/hooks").iter().all(|(name, ..)| name.ends_with(".sample")), "{scope}");
    }
}

/// A folder that one work tree has for itself gets the guard. The other work trees have their own.
#[test]
fn a_hooks_folder_of_one_work_tree_gets_the_guard() {
    let world = repository();
    let tree = world.beside("tree");
    world.git_run(&["worktree", "add", "-q", tree.to_str().unwrap(), "-b", "other"]);
    world.git_run(&["config", "extensions.worktreeConfig", "true"]);
    let folder = world.beside("hooks of the tree");
    std::fs::create_dir(&folder).unwrap();
    let set =
        ["-C", tree.to_str().unwrap(), "config", "--worktree", "core.hooksPath", folder.to_str().unwrap()];
    world.git_run(&set);
    let (mut one, mut two) = (Agent::new(&world, "1"), Agent::new(&world, "2"));
    (one.cwd, two.cwd) = (tree.clone(), tree.clone());
    one.edit("src/a.rs", "one\n");
    two.edit("src/b.rs", "two\n");
    let in_tree = |action: &str| {
        let mut again = one.command(std::env::current_exe().unwrap().to_str().unwrap(), &[]);
        again.args(["--exact", "guard_setup::do_what_the_variable_says", "--nocapture"]);
        again.env(ACTION, action).env("LOCKKEEPER_TEST_PROGRAM", world.program());
        Finished::of(&mut again).code(0).stdout()
    };
    assert!(in_tree("install").contains("6 hooks"), "the folder is of this work tree alone");
    assert!(guard(&world, "state").starts_with("0 hooks"), "the main work tree has another folder");
    let refused = Finished::of(&mut one.command("git", &["commit", "-a", "-m", "x"]));
    refused.code(1).says("src/b.rs (claude:2)");
    assert!(in_tree("remove").contains("0 hooks"));
    assert!(std::fs::read_dir(&folder).unwrap().next().is_none());
}

/// Husky 9 has generated hooks in an ignored folder, which find their scripts by their own name.
#[test]
fn the_hooks_of_husky_9_run_as_before() {
    let world = repository();
    write(&world, ".husky/pre-commit", "echo husky >>ran\n");
    write(
        &world,
        ".husky/_/h",
        "s=$(dirname \"$(dirname \"$0\")\")/$(basename \"$0\")\n[ ! -f \"$s\" ] || sh -e \"$s\" \"$@\"\n",
    );
    write(&world, ".husky/_/.gitignore", "*\n");
    write(&world, ".husky/_/pre-commit", "#!/usr/bin/env sh\n. \"$(dirname \"$0\")/h\"\n");
    executable(&world.path(".husky/_/pre-commit"));
    world.git_run(&["add", "."]);
    world.git_run(&["config", "core.hooksPath", ".husky/_"]);
    let before = hooks(&world, ".husky/_");
    assert!(guard(&world, "install").starts_with("6 hooks"));
    world.git_run(&["commit", "-q", "-m", "x"]);
    assert_eq!(std::fs::read_to_string(world.path("ran")).unwrap(), "husky\n");
    guard(&world, "remove");
    assert_eq!(hooks(&world, ".husky/_"), before);
}

#[test]
fn all_work_trees_have_the_guard() {
    let world = repository();
    guard(&world, "install");
    let tree = world.beside("tree");
    world.git_run(&["worktree", "add", "-q", tree.to_str().unwrap(), "-b", "other"]);
    let (mut one, mut two) = (Agent::new(&world, "1"), Agent::new(&world, "2"));
    (one.cwd, two.cwd) = (tree.clone(), tree);
    one.edit("src/a.rs", "one\n");
    two.edit("src/b.rs", "two\n");
    let refused = Finished::of(&mut one.command("git", &["commit", "-a", "-m", "x"]));
    refused.code(1).says("src/b.rs (claude:2)");
}

/// A git that says that it is newer stands for git 2.54. Its settings are then run as that version does: by a shell, with the arguments
/// appended.
#[test]
fn from_git_2_54_on_settings_are_written_and_no_files() {
    let world = with_git(repository(), "[ \"$1\" != version ] || { echo git version 2.54.0; exit; }");
    let (config, files) = (std::fs::read(world.path(".git/config")).unwrap(), hooks(&world, ".git/hooks"));
    let answer = guard(&world, "install");
    assert!(answer.starts_with("6 hooks") && answer.ends_with("Settings"), "{answer}");
    let installed = std::fs::read(world.path(".git/config")).unwrap();
    guard(&world, "install");
    assert_eq!(std::fs::read(world.path(".git/config")).unwrap(), installed);
    assert_eq!(hooks(&world, ".git/hooks"), files);
    assert_eq!(git(&world, &["config", "hook.lockkeeper-post-merge.event"]), "post-merge\n");
    let (one, two) = (Agent::new(&world, "1"), Agent::new(&world, "2"));
    one.edit("src/a.rs", "one\n");
    two.edit("src/b.rs", "two\n");
    let command = git(&world, &["config", "hook.lockkeeper-prepare-commit-msg.command"]);
    let line = format!("{} \"$@\"", command.trim_end());
    let run =
        |agent: &Agent<'_>| Finished::of(&mut agent.command("sh", &["-c", &line, "hook", "file", "message"]));
    run(&one).code(0);
    world.git_run(&["add", "-A"]);
    run(&one).code(1).says("src/b.rs (claude:2)");
    assert!(guard(&world, "remove").starts_with("0 hooks"));
    assert_eq!(std::fs::read(world.path(".git/config")).unwrap(), config);
}

/// A git that has hooks by configuration: the one that `LOCKKEEPER_NEW_GIT` names, else that of the machine if it is new enough.
fn new_git() -> Option<PathBuf> {
    let program = std::env::var_os("LOCKKEEPER_NEW_GIT").map_or_else(|| PathBuf::from("git"), PathBuf::from);
    let version = Finished::of(Command::new(&program).arg("version")).code(0).stdout();
    let mut numbers = version.split([' ', '.']).filter_map(|part| part.trim().parse::<u32>().ok());
    let is_new = (numbers.next(), numbers.next()) >= (Some(2), Some(54));
    if !is_new {
        skip("git 2.54 or newer: name one with LOCKKEEPER_NEW_GIT");
    }
    is_new.then_some(program)
}

/// With the real program, beside a hook of the repository and a hooks folder of all repositories.
#[test]
fn git_2_54_runs_the_guard_from_its_settings() {
    let Some(program) = new_git() else { return };
    let world = with_git(repository(), &format!("exec '{}' \"$@\"", program.display()));
    let config = std::fs::read(world.path(".git/config")).unwrap();
    assert!(guard(&world, "install").ends_with("Settings"));
    let (one, two) = (Agent::new(&world, "1"), Agent::new(&world, "2"));
    one.edit("src/a.rs", "one\n");
    two.edit("src/b.rs", "two\n");
    let all =
        |more: &[&str]| Finished::of(&mut one.command("git", &[&["commit", "-a", "-m", "x"], more].concat()));
    all(&[]).code(1).says("src/b.rs (claude:2)");
    all(&["--no-verify"]).code(1).says("src/b.rs (claude:2)");
    // The hooks of a folder that is set for all repositories run, too.
    let folder = world.beside("global hooks");
    write(&world, "../global hooks/pre-commit", "#!/bin/sh\n: >ran\n");
    executable(&folder.join("pre-commit"));
    world.git_run(&["config", "--global", "core.hooksPath", folder.to_str().unwrap()]);
    all(&[]).code(1).says("src/b.rs (claude:2)");
    Finished::of(&mut one.command("git", &["commit", "-m", "x", "src/a.rs"])).code(0);
    assert!(world.path("ran").exists());
    assert_eq!(holders(&world, "src/a.rs"), [""; 0], "the guard ends the claim after the commit");
    assert_eq!(holders(&world, "src/b.rs"), ["claude:2"]);
    assert!(two.news().contains("HEAD moved"));
    guard(&world, "remove");
    assert_eq!(std::fs::read(world.path(".git/config")).unwrap(), config);
}

/// Tracked hooks are there for everybody, also where this program is not.
#[test]
fn the_line_for_tracked_hooks_stops_nobody_without_the_program() {
    let world = repository();
    write(&world, ".husky/pre-commit", "#!/bin/sh\nexit 0\n");
    executable(&world.path(".husky/pre-commit"));
    world.git_run(&["add", ".husky"]);
    world.git_run(&["config", "core.hooksPath", ".husky"]);
    let hint = world.run(["init", "claude"]).code(0).stderr();
    let line = hint.split('`').nth(1).unwrap_or_else(|| panic!("no line in {hint}")).to_owned();
    for event in
        ["pre-commit", "prepare-commit-msg", "post-commit", "post-checkout", "post-merge", "post-rewrite"]
    {
        write(&world, &format!(".husky/{event}"), format!("#!/bin/sh\n{}\n", line.replace("EVENT", event)));
        executable(&world.path(&format!(".husky/{event}")));
    }
    world.git_run(&["add", ".husky"]);
    world.git_run(&["commit", "-q", "-m", "without the program"]);
    assert!(guard(&world, "state").starts_with("6 hooks"), "{}", guard(&world, "state"));

    let bin = world.beside("bin");
    std::fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink(world.program(), bin.join("lockkeeper")).unwrap();
    let world = world.set("PATH", format!("{}:{}", bin.display(), std::env::var("PATH").unwrap()));
    let (one, two) = (Agent::new(&world, "1"), Agent::new(&world, "2"));
    one.edit("src/a.rs", "one\n");
    two.edit("src/b.rs", "two\n");
    let refused = Finished::of(&mut one.command("git", &["commit", "-q", "-a", "-m", "x"]));
    refused.code(1).says("src/b.rs");
    Finished::of(&mut one.command("git", &["commit", "-q", "-m", "x", "src/a.rs"])).code(0);
}
