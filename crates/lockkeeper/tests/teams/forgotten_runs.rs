//! A server that comes back with less than it had acknowledged: workers write again what they execute.

use std::fs;

use lockkeeper_testing::{PostgresServer, Started, until};
use serde_json::Value;

use super::team::{Machine, Team};

/// Longer than the server is away, also on a slow machine.
const SESSION: &str = "15s";

fn submit(machine: &Machine, record: &Machine) {
    let (record, go) = (record.world.path("record"), record.world.path("go"));
    let script = format!(
        "echo begin >> '{0}'; until [ -e '{1}' ]; do sleep 0.05; done; echo end >> '{0}'; exit 3",
        record.display(),
        go.display()
    );
    machine
        .world
        .run(["submit", "--id", "a", "--retries", "2", "--success", "0,3", "--", "sh", "-c", &script])
        .code(0);
}

fn record(machine: &Machine) -> String {
    fs::read_to_string(machine.world.path("record")).unwrap_or_default()
}

fn run_a(machine: &Machine) -> Value {
    let shown = machine.world.run(["run", "show", "a", "--json"]);
    serde_json::from_str::<Value>(&shown.stdout()).unwrap_or_default()["run"].clone()
}

fn work(machine: &Machine) -> Started {
    let worker = machine.world.start(["work"]);
    until("the worker is registered", || {
        let hosts = machine.world.json(&["hosts", "--json"]);
        hosts["hosts"].as_array().is_some_and(|hosts| !hosts.is_empty())
    });
    worker
}

/// The claim of a run comes after the backup that takes the place of the server. `is_submitted`: its submission comes before.
fn outlives(is_submitted: bool, replace: impl FnOnce(&mut PostgresServer)) {
    let Some(mut server) = PostgresServer::start() else { return };
    let team = Team::on(server.address(), SESSION);
    let (one, other) = (team.machine(), team.machine());
    other.world.run(["runs"]).code(0);
    let mut worker = None;
    if is_submitted {
        submit(&other, &one);
    } else {
        worker = Some(work(&one));
    }
    server.back_up("backup");
    let worker = worker.unwrap_or_else(|| one.world.start(["work"]));
    if !is_submitted {
        submit(&other, &one);
    }
    until("the command runs", || record(&one) == "begin\n");
    replace(&mut server);
    let _next = other.world.start(["work"]);
    until("the run has come back", || run_a(&other)["status"] == "running");
    // The other worker executes what comes next, once anybody may claim again.
    other.world.run(["submit", "--id", "b", "--", "true"]).code(0);
    other.world.run(["run", "wait", "b"]).code(0);
    assert_eq!((record(&one).as_str(), &run_a(&other)["attempt"]), ("begin\n", &1.into()));
    one.world.touch("go");
    other.world.run(["run", "wait", "a"]).code(3);
    assert_eq!((record(&one).as_str(), &run_a(&other)["exit_code"]), ("begin\nend\n", &3.into()));
    drop(worker);
}

/// Invariants 9 and 10.
#[test]
fn a_restored_backup_does_not_let_a_second_worker_execute_a_run() {
    outlives(true, |server| server.restore("backup"));
}

/// Invariants 9 and 10. The server knows nothing of the run.
#[test]
fn a_promoted_standby_gets_a_run_again_that_it_never_had() {
    outlives(false, |server| server.promote_standby("backup"));
}

/// The command ends before its worker renews its session the next time.
#[test]
fn the_end_of_a_run_is_written_although_the_server_has_lost_its_beginning() {
    for is_submitted in [true, false] {
        let Some(mut server) = PostgresServer::start() else { return };
        let team = Team::on(server.address(), "2m");
        let one = team.machine();
        let _worker = work(&one);
        if is_submitted {
            // The worker has something else to do.
            let busy = "touch busy; until [ -e free ]; do sleep 0.05; done";
            one.world.run(["submit", "--", "sh", "-c", busy]).code(0);
            until("the worker is busy", || one.world.path("busy").exists());
            submit(&one, &one);
        }
        server.back_up("backup");
        if is_submitted {
            one.world.touch("free");
        } else {
            submit(&one, &one);
        }
        until("the command runs", || record(&one) == "begin\n");
        server.restore("backup");
        one.world.touch("go");
        until("the run has ended", || run_a(&one)["status"] == "succeeded");
        assert_eq!((record(&one).as_str(), &run_a(&one)["exit_code"]), ("begin\nend\n", &3.into()));
    }
}

/// The server has lost the end of a run: it does not stay `running` for as long as its worker lives.
#[test]
fn a_run_whose_end_the_server_has_lost_ends_again() {
    let Some(mut server) = PostgresServer::start() else { return };
    let team = Team::on(server.address(), "6s");
    let one = team.machine();
    let _worker = work(&one);
    one.world.run(["submit", "--id", "a", "--", "sh", "-c", "until [ -e go ]; do sleep 0.05; done"]).code(0);
    until("the command runs", || run_a(&one)["status"] == "running");
    server.back_up("backup");
    one.world.touch("go");
    one.world.run(["run", "wait", "a"]).code(0);
    server.restore("backup");
    until("the run has ended", || {
        let status = run_a(&one)["status"].clone();
        status == "failed" || status == "succeeded"
    });
}
