//! Processes of the machine that serves its folder, and what a server does that is started again.

use std::fs;

use lockkeeper_testing::processes::{is_alive, pid_in};
use lockkeeper_testing::until;

use super::team::Team;

/// Invariants 1 and 2. Both kinds of processes follow the same records.
#[test]
fn the_serving_machine_and_the_others_exclude_each_other() {
    let team = Team::new().unwrap();
    let serving = team.kept.lock().unwrap();
    let other = team.machine();
    let holder = serving.world.hold(&["db", "--path", "src/**"]);
    other.world.run(["exec", "db", "--no-wait", "--", "true"]).code(75);
    other.world.run(["exec", "--path", "src/a.rs", "--no-wait", "--", "true"]).code(75);
    let waiter = other.world.start(["exec", "db", "--", "echo", "remote"]);
    serving.world.until_waiting(1);
    holder.finish().code(0);
    waiter.wait().code(0).prints("remote");
    let holder = other.world.hold(&["db"]);
    serving.world.run(["exec", "db", "--no-wait", "--", "true"]).code(75);
    let waiter = serving.world.start(["exec", "db", "--", "echo", "local"]);
    other.world.until_waiting(1);
    holder.finish().code(0);
    waiter.wait().code(0).prints("local");
}

/// Invariant 4. Only the serving machine sees its own processes: its server removes the lease of a dead one.
#[test]
fn a_killed_holder_of_the_serving_machine_is_succeeded() {
    let team = Team::new().unwrap();
    let serving = team.kept.lock().unwrap();
    let other = team.machine();
    let mut holder = serving.world.start(["exec", "db", "--", "sh", "-c", "echo $$ > pid; exec sleep 300"]);
    let command = pid_in(&serving.world.path("pid"));
    let waiter = other.world.start(["exec", "db", "--", "echo", "next"]);
    serving.world.until_waiting(1);
    holder.kill();
    lockkeeper_testing::processes::kill(command);
    waiter.wait().code(0).prints("next");
}

/// A server that is started again has its folder as it was.
#[test]
fn a_server_that_is_started_again_forgets_nothing() {
    let team = Team::with_session("8s").unwrap();
    let (one, other) = (team.machine(), team.machine());
    let holder = one.world.hold(&["db"]);
    team.kept.lock().unwrap().restart(|_| {});
    other.world.run(["exec", "db", "--no-wait", "--", "true"]).code(75);
    holder.finish().code(0);
    other.world.run(["exec", "db", "--no-wait", "--", "true"]).code(0);
}

/// Invariants 1 and 6. As after a reboot, the database is made anew: nothing is granted for a session, also not to processes of the
/// serving machine, and the holder says again what it holds.
#[test]
fn a_database_that_was_made_anew_grants_nothing_until_holders_came_back() {
    let team = Team::with_session("8s").unwrap();
    let (one, other) = (team.machine(), team.machine());
    let script = "echo $$ > pid; echo $LOCKKEEPER_TOKEN > token; exec sleep 300";
    let mut holder = one.world.start(["exec", "db", "--", "sh", "-c", script]);
    let command = pid_in(&one.world.path("pid"));
    let mut serving = team.kept.lock().unwrap();
    serving.restart(|world| {
        for suffix in ["", "-wal", "-shm"] {
            fs::remove_file(world.path(&format!(".lockkeeper/leases.db{suffix}"))).unwrap();
        }
    });
    other.world.run(["exec", "db", "--no-wait", "--", "true"]).code(75);
    other.world.run(["exec", "web", "--no-wait", "--", "true"]).code(75);
    serving.world.run(["exec", "web", "--no-wait", "--", "true"]).code(75);
    until("the lease is back", || other.world.json(&["locks", "--json"])["leases"][0]["owner"].is_string());
    // A waiter outlasts the silence, and gets the free name, not the one that is held.
    other.world.run(["exec", "web", "--", "true"]).code(0);
    assert!(is_alive(command));
    serving.world.run(["exec", "db", "--no-wait", "--", "true"]).code(75);
    let token: u64 = fs::read_to_string(one.world.path("token")).unwrap().trim().parse().unwrap();
    holder.kill();
    lockkeeper_testing::processes::kill(command);
    let said = one.world.run(["exec", "db", "--", "sh", "-c", "echo $LOCKKEEPER_TOKEN"]).code(0);
    assert!(said.stdout().trim().parse::<u64>().unwrap() > token);
}
