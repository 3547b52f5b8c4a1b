//! One queue of the serving machine and of others, and what becomes of runs when a worker or the server is killed.

use std::fs;

use lockkeeper_testing::processes::{is_alive, pid_in};
use lockkeeper_testing::until;
use serde_json::json;

use super::team::Team;

/// Invariant 9. Requests go both ways, with folders of the clone and the output of both.
#[test]
fn the_serving_machine_and_another_execute_what_the_other_submits() {
    let team = Team::new().unwrap();
    let serving = team.kept.lock().unwrap();
    let other = team.machine();
    for world in [&serving.world, &other.world] {
        fs::create_dir(world.path("api")).unwrap();
    }
    let script = "pwd; echo $HOME";
    // Nobody has come from elsewhere yet.
    serving.world.run(["submit", "--id", "a", "--cwd", "api", "--", "sh", "-c", "pwd; pwd > where"]).code(0);
    other.world.run(["work", "--drain"]).code(0);
    assert!(other.world.path("api/where").exists());
    let folder = fs::canonicalize(other.world.path("api")).unwrap();
    let printed = serving.world.run(["run", "logs", "a"]).code(0);
    assert_eq!(printed.stdout(), format!("{}\n", folder.display()));
    other.world.run(["submit", "--id", "b", "--cwd", "api", "--", "sh", "-c", script]).code(0);
    serving.world.run(["work", "--drain"]).code(0);
    other.world.run(["run", "wait", "b"]).code(0);
    let folder = fs::canonicalize(serving.world.path("api")).unwrap();
    let printed = other.world.run(["run", "logs", "b"]).code(0);
    assert_eq!(printed.stdout(), format!("{}\n{}\n", folder.display(), serving.world.home().display()));
    for world in [&serving.world, &other.world] {
        let seen = world.json(&["runs", "--json"]);
        assert!(seen["runs"][0]["host"].is_string() && seen["runs"][1]["host"].is_string(), "{seen}");
    }
}

/// Both kinds of workers are listed, and live, wherever one looks from.
#[test]
fn hosts_show_workers_of_both_kinds() {
    let team = Team::new().unwrap();
    let serving = team.kept.lock().unwrap();
    let (one, other) = (team.machine(), team.machine());
    other.world.run(["runs"]).code(0);
    let _workers = [serving.world.start(["work", "--jobs", "2"]), other.world.start(["work", "--jobs", "3"])];
    for world in [&serving.world, &other.world, &one.world] {
        until("both are there", || world.json(&["hosts", "--json"])["hosts"][0]["jobs"] == 5);
    }
    one.world.run(["submit", "--id", "a", "--", "true"]).code(0);
    one.world.run(["run", "wait", "a"]).code(0);
}

/// Invariants 9 and 10. Only the serving machine sees its own processes: its server looks after the run.
#[test]
fn the_run_of_a_killed_worker_of_the_serving_machine_is_ended_by_its_server() {
    let team = Team::new().unwrap();
    let serving = team.kept.lock().unwrap();
    let other = team.machine();
    let script = "echo $$ > pid; until [ -e go ]; do sleep 0.05; done; exit 7";
    other.world.run(["runs"]).code(0);
    serving.world.run(["submit", "--id", "a", "--", "sh", "-c", script]).code(0);
    let mut worker = serving.world.start(["work"]);
    pid_in(&serving.world.path("pid"));
    worker.kill();
    let _next = other.world.start(["work"]);
    let shown = other.world.json(&["run", "show", "a", "--json"]);
    assert_eq!(shown["run"]["status"], "running", "{shown}");
    serving.world.touch("go");
    other.world.run(["run", "wait", "a"]).code(7);
}

/// Invariants 9 and 10. The server is killed while a machine executes a run and while its command ends.
#[test]
fn a_run_goes_on_while_the_server_is_started_again() {
    let team = Team::with_session("8s").unwrap();
    let (one, other) = (team.machine(), team.machine());
    let script = "echo began >> record; echo $$ > pid; echo first; until [ -e go ]; do sleep 0.05; done; echo last; exit 3";
    one.world.run(["submit", "--id", "a", "--retries", "0", "--", "sh", "-c", script]).code(0);
    let _worker = other.world.start(["work"]);
    let command = pid_in(&other.world.path("pid"));
    let waiter = one.world.start(["run", "wait", "a"]);
    let mut serving = team.kept.lock().unwrap();
    serving.restart(|_| {});
    one.world.run(["submit", "--id", "b", "--", "true"]).code(0);
    assert!(is_alive(command));
    serving.restart(|_| {
        other.world.touch("go");
        until("the command has ended", || !is_alive(command));
    });
    one.world.run(["run", "wait", "a"]).code(3);
    drop(waiter);
    one.world.run(["run", "wait", "b"]).code(0);
    assert_eq!(fs::read_to_string(other.world.path("record")).unwrap(), "began\n");
    assert_eq!(one.world.run(["run", "logs", "a"]).code(0).stdout(), "first\nlast\n");
}

/// Invariants 1, 6 and 9. As after a reboot, the leases are forgotten and the runs are not: a run that holds a name goes on, and the next
/// one that needs the name begins after it.
#[test]
fn after_a_reboot_runs_go_on_and_keep_what_they_hold() {
    let team = Team::with_session("8s").unwrap();
    let (one, other) = (team.machine(), team.machine());
    let script = "echo $$ > pid; echo began >> ../record; until [ -e go ]; do sleep 0.05; done; echo ended >> ../record";
    fs::create_dir(other.world.path("api")).unwrap();
    fs::create_dir(one.world.path("api")).unwrap();
    one.world.run(["submit", "--id", "a", "--cwd", "api", "--lock", "db", "--", "sh", "-c", script]).code(0);
    let _worker = other.world.start(["work"]);
    let command = pid_in(&other.world.path("api/pid"));
    team.kept.lock().unwrap().restart(|world| {
        for suffix in ["", "-wal", "-shm"] {
            fs::remove_file(world.path(&format!(".lockkeeper/leases.db{suffix}"))).unwrap();
        }
    });
    let next = ["submit", "--id", "b", "--lock", "db", "--", "sh", "-c", "echo next >> record"];
    one.world.run(next).code(0);
    let _next = one.world.start(["work"]);
    until("the lease is back", || one.world.json(&["locks", "--json"])["leases"][0]["owner"].is_string());
    assert!(is_alive(command));
    let waits = one.world.json(&["run", "show", "b", "--json"]);
    assert_eq!(waits["run"]["status"], "queued", "{waits}");
    other.world.touch("api/go");
    one.world.run(["run", "wait", "a"]).code(0);
    one.world.run(["run", "wait", "b"]).code(0);
    assert_eq!(fs::read_to_string(other.world.path("record")).unwrap().lines().next(), Some("began"));
}

#[test]
fn a_run_is_retried_and_followed_from_another_machine() {
    let team = Team::new().unwrap();
    let serving = team.kept.lock().unwrap();
    let other = team.machine();
    other.world.run(["submit", "--id", "a", "--", "sh", "-c", "echo one; [ -e fixed ]"]).code(0);
    serving.world.run(["work", "--drain"]).code(1);
    other.world.run(["run", "wait", "a"]).code(1);
    serving.world.touch("fixed");
    other.world.run(["run", "retry", "a"]).code(0);
    let follower = other.world.start(["run", "logs", "a", "--follow"]);
    serving.world.run(["work", "--drain"]).code(0);
    assert_eq!(follower.wait().code(0).stdout(), "one\n");
    other.world.run(["runs", "prune", "--older-than", "0s"]).code(0);
    assert_eq!(serving.world.json(&["runs", "--json"])["runs"], json!([]));
}

/// Runs may still be those of each machine, and in a database.
#[test]
fn the_setting_runs_takes_them_elsewhere() {
    let team = Team::new().unwrap();
    let (one, other) = (team.machine(), team.machine());
    let apart = one.world.set("LOCKKEEPER_RUNS", "sqlite:here");
    apart.run(["submit", "--id", "a", "--", "true"]).code(0);
    assert_eq!(other.world.json(&["runs", "--json"])["runs"], json!([]));
    let refused = other.world.lockkeeper(["runs"]).env("LOCKKEEPER_RUNS", &team.server).output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
}
