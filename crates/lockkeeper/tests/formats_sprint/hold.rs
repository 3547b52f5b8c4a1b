//! `sprint hold -- CMD`, and the process that `sprint acquire` records.

use std::fs;

use lockkeeper_testing::{Finished, Started, processes, skip, until};
use lockkeeper_testing::{is_installed, world};

use crate::project::{FILE, Project, Reply};

const COMMAND: [&str; 4] = ["--", "sh", "-c", "echo $$; read line; exit 7"];

fn hold(project: &Project, args: &[&str]) -> Started {
    let given = [&["--session-id", "s1", "--epic-spec", "epic5"], args].concat();
    Started::of(&mut project.command("hold", &given))
}

/// Requirements 33, 48.
#[test]
fn a_command_holds_the_lock_under_its_own_number_and_gives_it_back() {
    let project = Project::new();
    let mut holder = hold(&project, &COMMAND);
    let pid: u32 = holder.line().parse().unwrap();
    let reply = project.run("check", &[]);
    assert_eq!((reply.status(), reply.info("pid")), ("blocked", &pid.into()), "{reply:?}");
    let second = hold(&project, &["--", "touch", "ran"]).wait();
    let second = Reply::of(&second);
    assert_eq!((second.code, second.status(), second.info("pid")), (75, "blocked", &pid.into()));
    let finished = holder.finish().code(7);
    assert_eq!(finished.stdout(), "", "stdout is the command's alone");
    assert!(
        project.names().is_empty(),
        "released, and the second command did not run: {:?}",
        project.names()
    );
}

/// Requirements 33, 48. Invariant 10.
#[test]
fn a_killed_wrapper_leaves_the_lock_with_its_command() {
    let project = Project::new();
    let script = "echo $$; until test -e go; do sleep 0.01; done";
    let mut holder = hold(&project, &["--", "sh", "-c", script]);
    let pid: u32 = holder.line().parse().unwrap();
    holder.kill();
    let reply = project.run("check", &[]);
    assert_eq!((reply.status(), reply.info("pid")), ("blocked", &pid.into()), "{reply:?}");
    project.world.touch("go");
    until("the command has ended", || !processes::is_alive(pid));
    assert_eq!(project.run("check", &[]).status(), "zombie-detected");
}

/// Requirement 48.
#[test]
fn a_command_that_does_not_start_leaves_no_lock() {
    let project = Project::new();
    hold(&project, &["--", "no-such-program"]).wait().code(127).prints("no-such-program");
    assert!(project.names().is_empty());
    let bad = Started::of(&mut project.command("hold", &["--", "touch", "ran"])).wait();
    assert_eq!(Reply::of(&bad).errors(), ["session_id required for acquire mode"]);
    hold(&project, &[]).wait().code(2).prints("--");
    hold(&project, &["--pid", "1", "--", "touch", "ran"]).wait().code(2).prints("--pid");
    let mut acquire =
        project.command("acquire", &["--session-id", "s", "--epic-spec", "e", "--", "touch", "ran"]);
    Finished::of(&mut acquire).code(2).prints("sprint hold");
    assert!(project.names().is_empty());
}

#[test]
fn a_lock_that_was_taken_over_meanwhile_is_a_loss() {
    let project = Project::new();
    let mut holder = hold(&project, &["--", "sh", "-c", "echo begun; read line"]);
    assert_eq!(holder.line(), "begun");
    assert_eq!(project.acquire("s2", &["--force", "--yes"]).status(), "acquired");
    holder.finish().code(76).prints("the sprint lock was lost");
    assert!(project.lock().unwrap().contains("\"s2\""), "the lock of the other sprint stays");
}

/// Ordinary ways to call a command in a script; `@` stands for it.
const FORMS: [&str; 11] = [
    "@",
    "x=$(@)",
    "x=$(@ 2>/dev/null)",
    "x=$(@ | cat)",
    "x=$(@ || true)",
    "(cd .; @; echo)",
    "{ @; echo; } | tee log",
    "f() { @; }; x=$(f)",
    "if @; then :; fi",
    "@ | grep -q acquired",
    "x=`@`; echo \"$x\" >log",
];

/// A script in a file is recorded itself. A shell that lives for one call (`-c`), as agents start it, stands for its caller,
/// which is this test.
///
/// Requirement 33.
#[test]
fn the_recorded_process_is_the_script_or_the_agent_in_every_ordinary_form() {
    for shell in ["bash", "dash", "zsh"] {
        if !is_installed(shell) {
            return skip(shell);
        }
        for form in FORMS {
            for in_file in [true, false] {
                let world = world!();
                let call = format!(
                    "'{}' sprint acquire --project-root . --session-id s --epic-spec e",
                    world.program()
                );
                let text = format!("{}\necho \"script $$\"\nread line\n", form.replace('@', &call));
                fs::write(world.path("sprint.sh"), &text).unwrap();
                let mut command = world.command(shell);
                if in_file {
                    command.arg("sprint.sh")
                } else {
                    command.args(["-c", &text])
                };
                let mut script = Started::of(&mut command);
                let own = script.line_with("script ");
                let pid = if in_file { own } else { std::process::id().to_string() };
                let record = fs::read_to_string(world.path(FILE)).unwrap();
                assert!(
                    record.starts_with(&format!("pid: {pid}\n")),
                    "{shell} {form} file {in_file}: {record}"
                );
                drop(script.finish());
            }
        }
    }
}
