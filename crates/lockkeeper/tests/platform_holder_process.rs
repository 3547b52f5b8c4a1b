//! The process that holds a lease for a command that runs under real shells and wrappers.
#![expect(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

use std::path::Path;
use std::process::Command;

use lockkeeper_platform::holder_process::choose;
use lockkeeper_testing::{Started, this_test_line};

/// Not a test, but the command that the tests below start under shells.
#[test]
#[ignore = "a process that other tests start"]
fn other_side() {
    let holder = choose(None, &|_| None).unwrap().unwrap();
    println!("\nholder {} {}", holder.process.pid, holder.reason);
}

/// Runs `program` with `args`, in which `@` stands for the command to run, and returns what the command chose.
fn chosen_under(program: &str, args: &[&str]) -> (u32, String, u32) {
    let args = args.iter().map(|arg| arg.replace('@', &this_test_line("other_side")));
    let mut process = Started::of(Command::new(program).args(args));
    let pid = process.pid();
    let line = process.line_with("holder ");
    process.wait().code(0);
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
    std::fs::write(path, format!("{}\ntrue\n", this_test_line("other_side"))).unwrap();
}
