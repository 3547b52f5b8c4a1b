//! The settings of a store in Redis.

use lockkeeper_testing::{RedisServer, World};

use super::team::Team;

#[test]
fn a_password_in_an_address_is_refused_and_not_shown() {
    let world = World::new(env!("CARGO_BIN_EXE_lockkeeper")).set("LOCKKEEPER_PROJECT", "p");
    let said = world.run(["locks", "--store", "redis://me:hunter2@localhost"]).code(2);
    let said = said.says("contains a password").says("REDISCLI_AUTH");
    assert!(!format!("{}{}", said.stdout(), said.stderr()).contains("hunter2"));
    world.run(["locks", "--store", "redis://redis.example"]).code(2).says("unencrypted").says("rediss://");
    world.run(["locks", "--store", "unix:relative"]).code(2).says("begins with a slash");
}

#[test]
fn a_server_with_a_password_lets_in_who_knows_it() {
    let Some(server) = RedisServer::start(&["--requirepass", "hunter2"]) else { return };
    let world = World::new(env!("CARGO_BIN_EXE_lockkeeper")).set("LOCKKEEPER_PROJECT", "p");
    let address = server.address();
    world.run(["locks", "--store", &address]).code(69).says("NOAUTH");
    let wrong = World::new(env!("CARGO_BIN_EXE_lockkeeper")).set("LOCKKEEPER_PROJECT", "p");
    let wrong = wrong.set("REDISCLI_AUTH", "hunter3");
    let said = wrong.run(["locks", "--store", &address]).code(69).says("WRONGPASS");
    assert!(!format!("{}{}", said.stdout(), said.stderr()).contains("hunter3"));
    world.set("REDISCLI_AUTH", "hunter2").run(["locks", "--store", &address]).code(0);
}

#[test]
fn a_server_that_is_not_there_is_exit_69() {
    let world = World::new(env!("CARGO_BIN_EXE_lockkeeper")).set("LOCKKEEPER_PROJECT", "p");
    world
        .run(["exec", "db", "--store", "redis://127.0.0.1:1", "--", "touch", "ran"])
        .code(69)
        .says("redis://127.0.0.1:1/0");
    assert!(!world.path("ran").exists());
}

/// The doctor says what the settings of the server mean for locks.
#[test]
fn the_doctor_says_how_the_server_may_lose_leases() {
    let forgets = "keeps nothing on disk";
    for (options, says, omits) in [
        (
            &["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"][..],
            &["allkeys-lru", forgets][..],
            "fsync",
        ),
        (&["--appendonly", "yes"][..], &["append-only file, fsync everysec"][..], forgets),
    ] {
        let Some(server) = RedisServer::start(options) else { return };
        let machine = Team::on(server.address(), "5m").machine();
        let shown = machine.world.run(["doctor", "--quick"]);
        let shown = format!("{}{}", shown.stdout(), shown.stderr());
        assert!(says.iter().all(|text| shown.contains(text)), "{shown}");
        assert!(!shown.contains(omits), "{shown}");
    }
}
