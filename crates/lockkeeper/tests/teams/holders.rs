//! Holders on one machine, waiters on another.

use lockkeeper_testing::processes::{is_alive, pid_in};
use lockkeeper_testing::{Signal, until};
use rustix::process::{Pid, kill_process};

use super::team::{Machine, Team};

fn kill(pid: u32) {
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), Signal::KILL).unwrap();
}

/// Invariants 1, 2 and 7. Requirement 157.
#[test]
fn a_lease_of_one_machine_excludes_the_others_and_passes_on_in_order() {
    let Some(team) = Team::new() else { return };
    let (one, other) = (team.machine(), team.machine());
    let holder = one.world.hold(&["db", "--path", "src/**"]);
    other.world.run(["exec", "db", "--no-wait", "--", "true"]).code(75);
    other.world.run(["exec", "--path", "src/a.rs", "--no-wait", "--", "true"]).code(75);
    let shown = other.world.json(&["locks", "--json"]);
    assert_eq!(shown["leases"][0]["state"], "unknown", "{shown}");
    other.world.run(["why", "db"]).code(0).prints("its processes cannot be observed from here");
    let first = other.world.start(["exec", "db", "--", "echo", "first"]);
    other.world.until_waiting(1);
    let second = one.world.start(["exec", "db", "--", "echo", "second"]);
    other.world.until_waiting(2);
    holder.finish().code(0);
    first.wait().code(0).prints("first");
    second.wait().code(0).prints("second");
    let tokens = [&one, &other].map(|machine: &Machine| {
        let said = machine.world.run(["exec", "db", "--", "sh", "-c", "echo $LOCKKEEPER_TOKEN"]).code(0);
        said.stdout().trim().parse::<u64>().unwrap()
    });
    assert!(tokens[0] < tokens[1], "{tokens:?}");
}

/// Invariants 3 and 4. The kernel lock of the command is not seen from the other machine, but the guardian of the killed wrapper
/// keeps the session, and releases the lease when the command is gone.
#[test]
fn a_killed_wrapper_lets_nobody_in_beside_its_command() {
    let Some(team) = Team::with_session("8s") else { return };
    let (one, other) = (team.machine(), team.machine());
    let script = "echo $$ > pid; until [ -e go ]; do sleep 0.05; done; echo over >> record";
    let mut wrapper = one.world.start(["exec", "db", "--", "sh", "-c", script]);
    let command = pid_in(&one.world.path("pid"));
    wrapper.kill();
    let mut next = other.world.start(["exec", "db", "--", "echo", "next"]);
    other.world.until_waiting(1);
    // Longer than the session of the killed wrapper.
    std::thread::sleep(std::time::Duration::from_secs(10));
    assert!(!next.has_ended() && is_alive(command), "somebody was let in beside the command");
    one.world.touch("go");
    next.wait().code(0).prints("next");
    assert!(!is_alive(command));
    assert_eq!(std::fs::read_to_string(one.world.path("record")).unwrap(), "over\n");
}

/// Invariant 4. A machine that vanished is silent: its lease passes on when its session ends.
#[test]
fn the_lease_of_a_vanished_machine_passes_on() {
    let Some(team) = Team::with_session("5s") else { return };
    let (one, other) = (team.machine(), team.machine());
    let mut wrapper = one.world.start(["exec", "db", "--", "sh", "-c", "echo $$ > pid; exec sleep 300"]);
    let command = pid_in(&one.world.path("pid"));
    // Nothing of it reaches the server any more, as after a power cut.
    one.link.silence(true);
    wrapper.kill();
    kill(command);
    other.world.run(["exec", "db", "--", "echo", "next"]).code(0).prints("next");
}

/// Invariant 4. On its own machine a killed holder is succeeded at once, whatever its session says.
#[test]
fn a_killed_holder_is_succeeded_at_once_on_its_own_machine() {
    let Some(team) = Team::new() else { return };
    let machine = team.machine();
    let mut wrapper = machine.world.start(["exec", "db", "--", "sh", "-c", "echo $$ > pid; exec sleep 300"]);
    let command = pid_in(&machine.world.path("pid"));
    let waiter = machine.world.start(["exec", "db", "--", "echo", "next"]);
    machine.world.until_waiting(1);
    wrapper.kill();
    kill(command);
    waiter.wait().code(0).prints("next");
}

/// A shell holds a lease by `acquire`. A guardian keeps its session while the shell lives.
#[test]
fn a_lease_that_a_shell_acquired_ends_with_the_shell() {
    let Some(team) = Team::with_session("5s") else { return };
    let (one, other) = (team.machine(), team.machine());
    // In a file: a shell that executes one line for its caller does not hold the lease, its caller does.
    let script = format!("'{}' acquire db > /dev/null && echo up\nread -r line\n", one.world.program());
    std::fs::write(one.world.path("script"), script).unwrap();
    let mut shell = lockkeeper_testing::Started::of(one.world.command("sh").arg("script"));
    assert_eq!(shell.line(), "up");
    // Longer than a session.
    std::thread::sleep(std::time::Duration::from_secs(7));
    other.world.run(["exec", "db", "--no-wait", "--", "true"]).code(75);
    shell.send("\n");
    shell.wait().code(0);
    other.world.run(["exec", "db", "--", "echo", "next"]).code(0).prints("next");
}

/// A command of the shell makes its lease exclusive, with a new token. The guardian goes on with it, and releases it.
#[test]
fn a_lease_that_a_shell_upgraded_ends_with_the_shell() {
    let Some(team) = Team::with_session("5s") else { return };
    let (one, other) = (team.machine(), team.machine());
    let program = one.world.program();
    let script = format!(
        "lease=$('{program}' acquire db --shared 2> /dev/null) && '{program}' upgrade \"$lease\" 2> /dev/null && echo up\n\
         read -r line\n"
    );
    std::fs::write(one.world.path("script"), script).unwrap();
    let mut shell = lockkeeper_testing::Started::of(one.world.command("sh").arg("script"));
    assert_eq!(shell.line(), "up");
    // Longer than a session.
    std::thread::sleep(std::time::Duration::from_secs(7));
    other.world.run(["exec", "db", "--shared", "--no-wait", "--", "true"]).code(75);
    shell.send("\n");
    shell.wait().code(0);
    // At once: the session would last longer.
    other.world.run(["exec", "db", "--wait=2s", "--", "echo", "next"]).code(0).prints("next");
}

/// Two projects on one server never meet, and two clones of one project always do.
#[test]
fn names_of_two_projects_never_meet() {
    let (Some(team), Some(others)) = (Team::new(), Team::new()) else { return };
    let (one, stranger) = (team.machine(), others.machine());
    let _holder = one.world.hold(&["db"]);
    stranger.world.run(["exec", "db", "--no-wait", "--", "true"]).code(0);
    assert_eq!(stranger.world.json(&["locks", "--json"])["leases"], serde_json::json!([]));
}

/// The queue is of one machine. The locks of its runs are those of the team.
#[test]
fn the_lock_of_a_run_excludes_other_machines() {
    let Some(team) = Team::new() else { return };
    let (one, other) = (team.machine(), team.machine());
    let script = "> began; until [ -e go ]; do sleep 0.05; done";
    one.world.run(["submit", "--id", "a", "--lock", "db", "--", "sh", "-c", script]).code(0);
    let worker = one.world.start(["work", "--drain"]);
    until("the run has begun", || one.world.path("began").exists());
    other.world.run(["exec", "db", "--no-wait", "--", "true"]).code(75);
    one.world.touch("go");
    worker.wait().code(0);
    other.world.run(["exec", "db", "--no-wait", "--", "true"]).code(0);
}
