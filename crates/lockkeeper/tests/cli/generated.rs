//! Completions and manual pages.

use lockkeeper_testing::world;

#[test]
fn every_shell_has_completions() {
    let world = world!();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = world.run(["completions", shell]).code(0).prints("force-release-all");
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
