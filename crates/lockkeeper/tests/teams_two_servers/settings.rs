//! The setting `runs`.

use lockkeeper_testing::World;

use super::team::Team;

const POSTGRES: &str = "postgres://me@127.0.0.1:1/locks";
const REDIS: &str = "redis://127.0.0.1:1";

fn world() -> World {
    World::new(env!("CARGO_BIN_EXE_lockkeeper")).set("LOCKKEEPER_PROJECT", "p")
}

#[test]
fn combinations_that_cannot_be_are_refused_with_the_line_to_write() {
    for (store, runs, says, hint) in [
        (None, POSTGRES, "do not protect the runs of others", "store = \"postgres://HOST/DATABASE\""),
        (Some("sqlite:x"), POSTGRES, "do not protect the runs of others", "instead of `runs`"),
        (None, "sqlite:x", "in one folder", "write `store = \"sqlite:x\"` instead of `runs`"),
        (
            Some(REDIS),
            "etcd://127.0.0.1:1",
            "an etcd cluster, which keeps leases only",
            "runs = \"postgres://",
        ),
        (Some(REDIS), REDIS, "a Redis server, which keeps leases only", "runs = \"postgres://"),
        (Some(REDIS), "https://h", "a folder that `lockkeeper serve` serves", "runs = \"postgres://"),
        (Some(REDIS), "mysql:x", "`mysql:x` is not a store", "sqlite:FOLDER"),
    ] {
        let mut world = world().set("LOCKKEEPER_RUNS", runs);
        if let Some(store) = store {
            world = world.set("LOCKKEEPER_STORE", store);
        }
        world.run(["runs"]).code(2).says(says).says(hint);
        world.run(["locks"]).code(2).says(says);
    }
}

#[test]
fn a_password_in_the_address_of_runs_is_refused_and_not_shown() {
    let text =
        format!("store = \"{REDIS}\"\nruns = \"postgres://me:hunter2@localhost/locks\"\nproject = \"p\"\n");
    let said = world().write("lockkeeper.toml", &text).run(["runs"]).code(2);
    let said = said.says("the address in `runs`").says("contains a password").says("~/.pgpass");
    assert!(!format!("{}{}", said.stdout(), said.stderr()).contains("hunter2"));
}

/// One command in another folder needs no other file of settings.
#[test]
fn a_folder_that_a_stronger_source_names_has_leases_and_runs() {
    let text = format!("store = \"{REDIS}\"\nruns = \"{POSTGRES}\"\n");
    let world = world().write("lockkeeper.toml", &text);
    world.run(["submit", "--id", "a", "--store", "sqlite:here", "--", "true"]).code(0);
    assert!(world.path("here/runs.db").exists());
    world.run(["submit", "--id", "a", "--", "true"]).code(69).says("127.0.0.1:1");
}

#[test]
fn config_and_the_check_of_the_server_know_where_runs_are() {
    let Some(team) = Team::new() else { return };
    let machine = team.machine();
    machine.world.run(["config"]).code(0).prints("LOCKKEEPER_RUNS");
    let found = machine.world.run(["store", "check", "--json"]).json();
    assert_eq!(found["notified"], true, "{found}");
    assert!(found["store"].as_str().unwrap().starts_with("postgres://"), "{found}");
    machine.world.run(["doctor", "--quick"]).code(0);
}

/// A folder of each machine, with the output of its runs. The guardian of a worker uses the same one.
#[test]
fn runs_in_a_named_folder_stay_on_this_machine() {
    let Some(team) = Team::new() else { return };
    let machine = team.machine();
    let store = machine.world.lockkeeper(["config", "--json"]).output().unwrap();
    let shown: serde_json::Value = serde_json::from_slice(&store.stdout).unwrap();
    let value = |key: &str| {
        let found = shown["settings"].as_array().unwrap().iter().find(|one| one["key"] == key).unwrap();
        found["value"].as_str().unwrap().to_owned()
    };
    let text = format!(
        "store = \"{}\"\nruns = \"sqlite:queue\"\nproject = \"{}\"\n",
        value("store"),
        value("project")
    );
    let world = world()
        .write("lockkeeper.toml", &text)
        .set("LOCKKEEPER_RUNTIME_DIR", machine.world.beside("runtime"));
    world.run(["submit", "--id", "a", "--lock", "db", "--", "echo", "hello"]).code(0);
    world.run(["work", "--drain"]).code(0);
    world.run(["run", "logs", "a"]).code(0).prints("hello");
    assert!(world.path("queue/runs.db").exists());
    assert_eq!(machine.world.json(&["runs", "--json"])["runs"], serde_json::json!([]));
}
