//! The process that holds a lease for a command that really runs under shells and wrappers.
#![expect(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

use std::path::Path;
use std::process::{Command, Stdio};

use lockkeeper_platform::holder_process::choose;

const ROLE: &str = "PLATFORM_ANCHOR_ROLE";

/// Not a test of its own: the command that the tests below start under shells.
#[test]
fn other_side() {
    if std::env::var_os(ROLE).is_some() {
        let holder = choose(None, &|_| None).unwrap().unwrap();
        println!("\nholder {} {}", holder.process.pid, holder.reason);
    }
}

/// Runs `program` with `args`, in which `@` stands for the command to run, and returns what the command chose.
fn chosen_under(program: &str, args: &[&str]) -> (u32, String, u32) {
    let own = std::env::current_exe().unwrap();
    let command = format!("'{}' --exact other_side --nocapture --test-threads=1", own.display());
    let process = Command::new(program)
        .args(args.iter().map(|arg| arg.replace('@', &command)))
        .env(ROLE, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = process.id();
    let output = String::from_utf8(process.wait_with_output().unwrap().stdout).unwrap();
    let line = output.lines().find_map(|line| line.strip_prefix("holder ")).expect(&output);
    let (holder, reason) = line.split_once(' ').unwrap();
    (holder.parse().unwrap(), reason.to_owned(), pid)
}

#[test]
fn shells_and_wrappers_that_run_one_command_are_skipped() {
    // A command after it keeps the shell from turning into the command.
    for args in [["-c", "@; true"], ["-ec", "timeout 60 sh -c \"@; true\"; true"]] {
        let (holder, reason, _) = chosen_under("sh", &args);
        assert_eq!(holder, std::process::id(), "{args:?}: {reason}");
    }
}

#[test]
fn a_shell_that_runs_a_script_is_chosen() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("deploy.sh");
    write_script(&script);
    let (holder, reason, shell) = chosen_under("sh", &[script.to_str().unwrap()]);
    assert_eq!(holder, shell);
    assert!(reason.contains("outlives") && reason.contains("deploy.sh"), "{reason}");
}

fn write_script(path: &Path) {
    let own = std::env::current_exe().unwrap();
    let text = format!("'{}' --exact other_side --nocapture --test-threads=1\ntrue\n", own.display());
    std::fs::write(path, text).unwrap();
}
