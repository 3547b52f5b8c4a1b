//! The command `store`, and a pooler between machines and server.

use lockkeeper_testing::{Pooler, PostgresServer, World};

use super::migrate::address;
use super::team::Team;

/// The same store as another user.
fn as_user(server: &PostgresServer, world: World, user: &str) -> World {
    let folder = server.folder().display().to_string().replace('/', "%2F");
    world.set("LOCKKEEPER_STORE", format!("postgres://{user}@{folder}/postgres"))
}

#[test]
fn a_role_with_the_printed_privileges_can_lock_and_nothing_more() {
    let Some(server) = PostgresServer::start() else { return };
    let team = Team::on(server.address(), "20s");
    server.sql("CREATE ROLE \"a worker\" LOGIN");
    let sql = team.machine().world.run(["store", "init", "--role", "a worker"]).code(0).stdout();
    server.sql(&sql);
    let mut machine = team.machine();
    machine.world = as_user(&server, machine.world, "a%20worker");
    machine.world.run(["exec", "db", "--", "echo", "ran"]).code(0).prints("ran");
    machine.world.run(["submit", "--id", "a", "--", "true"]).code(0);
    machine.world.run(["work", "--drain"]).code(0);
    let found = machine.world.run(["store", "check", "--json"]).code(1).json();
    assert_eq!((&found["missing_privileges"], &found["notified"]), (&serde_json::json!([]), &true.into()));
    // The servers of tests do not wait for the disk.
    assert_eq!((&found["durable"], &found["ok"]), (&false.into(), &false.into()));
    server.sql("REVOKE UPDATE ON lockkeeper.clock FROM \"a worker\"");
    machine.world.run(["store", "check"]).code(1).prints("no UPDATE on lockkeeper.clock");
    server.sql("REVOKE USAGE ON SCHEMA lockkeeper FROM \"a worker\"");
    machine.world.run(["store", "check"]).code(1).says("permission denied").says("store init --role");
}

#[test]
fn a_server_that_is_not_there_and_a_folder_are_told_apart() {
    let world = World::new(env!("CARGO_BIN_EXE_lockkeeper")).set("LOCKKEEPER_PROJECT", "p");
    world.run(["store", "check", "--store", "postgres://me@127.0.0.1:1/x"]).code(69);
    world.run(["store", "check"]).code(2).says("folder of this machine");
}

#[test]
fn the_bench_counts_what_it_did() {
    let Some(team) = Team::new() else { return };
    let found = team.machine().world.run(["store", "bench", "--pairs", "20", "--json"]).code(0).json();
    assert_eq!(found["pairs"], 20);
    assert!(found["per_second"].as_f64().unwrap() > 0.0, "{found}");
}

/// Behind a pooler that shares connections no notification comes through. Waiters look by themselves.
#[test]
fn behind_a_pooler_it_works_by_looking() {
    let Some(server) = PostgresServer::start() else { return };
    let Some(pooler) = Pooler::start(&server) else { return };
    let team = Team::on(server.address(), "20s");
    let [one, other] = [(); 2].map(|()| team.machine().world.set("LOCKKEEPER_STORE", pooler.url()));
    let holder = one.hold(&["db"]);
    let found = other.run(["store", "check", "--json"]).json();
    assert_eq!(found["notified"], false, "{found}");
    let waiter = other.start(["exec", "db", "--", "echo", "next"]);
    one.until_waiting(1);
    holder.finish().code(0);
    waiter.wait().code(0).prints("next");
}

#[test]
fn the_demo_runs_against_a_server_and_leaves_no_project() {
    let Some(server) = PostgresServer::start() else { return };
    let machine = Team::on(server.address(), "20s").machine();
    let shown = machine.world.run(["demo", "--fast", "--json", "--store", &address(&machine)]).code(0).json();
    assert_eq!((&shown["status"], shown["steps"].as_array().unwrap().len()), (&"done".into(), 4), "{shown}");
    assert!(machine.link.round_trips() > 20, "it used the server");
    for table in ["lockkeeper.project", "lockkeeper.record", "lockkeeper_runs.run", "lockkeeper_runs.worker"]
    {
        server.sql(&format!("DO 'BEGIN ASSERT NOT EXISTS (SELECT FROM {table}); END'"));
    }
}
