//! Runs of one server that need leases of the other one.

use std::fs;

use lockkeeper_testing::processes::{is_alive, pid_in};
use lockkeeper_testing::until;

use super::team::Team;

/// Invariant 1. Lease first, then claim: nobody has the run while somebody else has its lease.
#[test]
fn a_run_waits_for_its_lease_and_holds_it_for_all_machines() {
    let Some(team) = Team::new() else { return };
    let (one, other) = (team.machine(), team.machine());
    let holder = one.world.hold(&["db"]);
    let script = "echo $$ > pid; until [ -e go ]; do sleep 0.05; done";
    other.world.run(["submit", "--id", "a", "--lock", "db", "--", "sh", "-c", script]).code(0);
    other.world.run(["submit", "--id", "b", "--", "true"]).code(0);
    let _worker = other.world.start(["work", "--jobs", "2"]);
    one.world.run(["run", "wait", "b"]).code(0);
    one.world.until_waiting(1);
    assert_eq!(one.world.json(&["run", "show", "a", "--json"])["run"]["status"], "queued");
    holder.finish().code(0);
    pid_in(&other.world.path("pid"));
    one.world.run(["exec", "db", "--no-wait", "--", "true"]).code(75).says("held by run");
    other.world.touch("go");
    one.world.run(["run", "wait", "a"]).code(0);
    one.world.run(["exec", "db", "--no-wait", "--", "true"]).code(0);
}

/// Invariants 1, 9 and 10. The guardian of the killed worker renews its session on one server and its lease on the other, for longer
/// than both last.
#[test]
fn the_run_of_a_killed_worker_keeps_its_lease_until_its_command_ends() {
    let Some(team) = Team::with_session("8s") else { return };
    let (one, other) = (team.machine(), team.machine());
    let script = "echo $$ > pid; until [ -e go ]; do sleep 0.05; done; exit 7";
    other.world.run(["submit", "--id", "a", "--lock", "db", "--", "sh", "-c", script]).code(0);
    let mut worker = other.world.start(["work"]);
    let command = pid_in(&other.world.path("pid"));
    worker.kill();
    let _next = one.world.start(["work"]);
    one.world.run(["exec", "db", "--wait", "10s", "--", "true"]).code(75);
    assert!(is_alive(command));
    other.world.touch("go");
    one.world.run(["run", "wait", "a"]).code(7);
    one.world.run(["exec", "db", "--wait", "1m", "--", "true"]).code(0);
}

/// Invariants 1, 9 and 10. Both sessions end at about the same time; the next attempt needs the lease before it claims the run.
#[test]
fn the_run_of_a_lost_machine_begins_again_on_another_one_under_its_lease() {
    let Some(team) = Team::with_session("8s") else { return };
    let (one, other) = (team.machine(), team.machine());
    let record = one.world.path("record");
    // It ignores TERM, so that only KILL ends it.
    let script = format!(
        "trap '' TERM; echo begin >> '{0}'; [ \"$LOCKKEEPER_ATTEMPT\" = 1 ] || exit 0; \
         while :; do echo alive >> '{0}'; sleep 0.05; done",
        record.display()
    );
    let submit = ["submit", "--id", "a", "--lock", "db", "--retries", "1", "--", "sh", "-c", &script];
    one.world.run(submit).code(0);
    let _lost = other.world.start(["work"]);
    until("the command runs", || fs::read_to_string(&record).is_ok_and(|text| text.contains("alive")));
    let _next = one.world.start(["work"]);
    other.link.silence(true);
    other.lease_link.silence(true);
    one.world.run(["run", "wait", "a"]).code(0);
    let lines = fs::read_to_string(&record).unwrap();
    assert!(lines.ends_with("alive\nbegin\n"), "something of the first attempt came after the second began");
    assert_eq!(lines.matches("begin").count(), 2);
}

/// Invariants 1 and 10. The worker is judged by the server of runs, its lease by the other one: a lost lease stops the command.
#[test]
fn a_worker_that_is_cut_off_from_the_leases_alone_stops_its_command_in_time() {
    let Some(team) = Team::with_session("8s") else { return };
    let (one, other) = (team.machine(), team.machine());
    let record = one.world.path("record");
    let script = format!("while :; do echo A >> '{}'; sleep 0.05; done", record.display());
    other.world.run(["submit", "--id", "a", "--lock", "db", "--", "sh", "-c", &script]).code(0);
    let mut worker = other.world.start(["work"]);
    until("the command runs", || record.exists());
    let line = format!("echo B >> '{}'", record.display());
    let next = one.world.start(["exec", "db", "--", "sh", "-c", &line]);
    one.world.until_waiting(1);
    other.lease_link.silence(true);
    next.wait().code(0);
    assert!(fs::read_to_string(&record).unwrap().ends_with("A\nB\n"), "the first command ran on");
    one.world.run(["run", "wait", "a"]).code(143).says("LEASE_LOST");
    // It goes on with what needs no lease.
    one.world.run(["submit", "--id", "b", "--", "true"]).code(0);
    one.world.run(["run", "wait", "b"]).code(0);
    assert!(!worker.has_ended());
}
