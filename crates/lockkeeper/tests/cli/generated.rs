//! Completions and manual pages.

use crate::env::Env;

#[test]
fn every_shell_has_completions() {
    let env = Env::new();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = env.run(["completions", shell]).code(0).prints("force-release-all");
        assert_eq!(script.stderr(), "");
    }
    env.run(["completions", "cmd"]).code(2).says("bash, elvish, fish, powershell, zsh");
}

#[test]
fn help_begins_with_what_the_program_is_for() {
    let env = Env::new();
    for words in [vec!["help"], vec!["--help"]] {
        let help = env.run(words).code(0).stdout();
        assert!(help.starts_with("Locks, claims on paths and fair waiting"), "{help}");
    }
    let help = env.run(["exec", "--help"]).code(0).stdout();
    assert!(help.starts_with("Hold a lease while a command runs"), "{help}");
}

#[test]
fn the_bash_completion_is_valid_bash() {
    let env = Env::new();
    env.shell("lockkeeper completions bash > done.bash && bash -n done.bash").code(0).in_silence();
}

#[test]
fn every_command_has_a_manual_page() {
    let env = Env::new();
    env.run(["man"]).code(0).prints(".TH lockkeeper 1");
    env.run(["man", "--out", "pages"]).code(0);
    for page in ["lockkeeper", "lockkeeper-exec", "lockkeeper-acquire", "lockkeeper-locks-force-release-all"]
    {
        assert!(env.cwd().join("pages").join(format!("{page}.1")).is_file(), "{page}");
    }
    env.run(["man", "--out", "/proc/none"]).code(1).says("hint: ");
}
