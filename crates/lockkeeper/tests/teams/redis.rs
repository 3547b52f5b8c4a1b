//! Several machines on one Redis server: leases, cut links, and servers that forget.

use lockkeeper_testing::processes::pid_in;
use lockkeeper_testing::{Signal, World, skip, until};
use rustix::process::{Pid, kill_process};

use super::redis_server::RedisServer;
use super::team::Team;

/// Names the Redis server of the tests.
const SERVER: &str = "LOCKKEEPER_TEST_REDIS";

fn team(session: &'static str) -> Option<Team> {
    let Ok(server) = std::env::var(SERVER) else {
        skip("a Redis server in LOCKKEEPER_TEST_REDIS (scripts/with-redis COMMAND)");
        return None;
    };
    Some(Team::on_redis(server, session))
}

fn token(world: &World) -> u64 {
    let said = world.run(["exec", "db", "--", "sh", "-c", "echo $LOCKKEEPER_TOKEN"]).code(0);
    said.stdout().trim().parse().unwrap()
}

/// Invariants 1, 2 and 7. Requirement 157.
#[test]
fn a_lease_of_one_machine_excludes_the_others_and_passes_on_in_order() {
    let Some(team) = team("5m") else { return };
    let (one, other) = (team.machine(), team.machine());
    let holder = one.world.hold(&["db", "--path", "src/**"]);
    other.world.run(["exec", "db", "--no-wait", "--", "true"]).code(75);
    other.world.run(["exec", "--path", "src/a.rs", "--no-wait", "--", "true"]).code(75);
    let shown = other.world.json(&["locks", "--json"]);
    assert_eq!(shown["leases"][0]["state"], "unknown", "{shown}");
    let first = other.world.start(["exec", "db", "--", "echo", "first"]);
    other.world.until_waiting(1);
    let second = one.world.start(["exec", "db", "--", "echo", "second"]);
    other.world.until_waiting(2);
    holder.finish().code(0);
    first.wait().code(0).prints("first");
    second.wait().code(0).prints("second");
    let tokens = [&one, &other].map(|machine| token(&machine.world));
    assert!(tokens[0] < tokens[1], "{tokens:?}");
}

/// Invariant 4. On its own machine a killed holder is succeeded at once, whatever its session says.
#[test]
fn a_killed_holder_is_succeeded_at_once_on_its_own_machine() {
    let Some(team) = team("5m") else { return };
    let machine = team.machine();
    let mut wrapper = machine.world.start(["exec", "db", "--", "sh", "-c", "echo $$ > pid; exec sleep 300"]);
    let command = pid_in(&machine.world.path("pid"));
    let waiter = machine.world.start(["exec", "db", "--", "echo", "next"]);
    machine.world.until_waiting(1);
    wrapper.kill();
    kill_process(Pid::from_raw(command.cast_signed()).unwrap(), Signal::KILL).unwrap();
    waiter.wait().code(0).prints("next");
}

/// Invariant 1. The command is stopped before its session can end, so the next holder never runs beside it.
#[test]
fn a_holder_that_is_cut_off_stops_its_command_before_another_machine_gets_the_lease() {
    let Some(team) = team("8s") else { return };
    let (one, other) = (team.machine(), team.machine());
    let record = one.world.path("record");
    let script = format!("> up; while :; do echo A >> '{}'; sleep 0.05; done", record.display());
    let holder = one.world.start(["exec", "db", "--", "sh", "-c", &script]);
    until("the command runs", || one.world.path("up").exists());
    let next = other.world.start([
        "exec",
        "db",
        "--",
        "sh",
        "-c",
        &format!("echo B >> '{}'; sleep 1", record.display()),
    ]);
    other.world.until_waiting(1);
    one.link.silence(true);
    holder.wait().code(76).says("could not be renewed in time");
    next.wait().code(0);
    let lines = std::fs::read_to_string(&record).unwrap();
    let after = lines.lines().skip_while(|line| *line == "A").collect::<Vec<_>>();
    assert_eq!(after, ["B"], "nothing of the first holder came after the second began");
}

#[test]
fn a_machine_that_is_cut_off_gets_no_lease_and_does_not_hang() {
    let Some(team) = team("5m") else { return };
    let machine = team.machine();
    machine.world.run(["exec", "db", "--", "true"]).code(0);
    machine.link.silence(true);
    machine.world.run(["exec", "db", "--", "touch", "ran"]).code(69).says("no answer within 1s");
    machine.world.run(["locks"]).code(69);
    assert!(!machine.world.path("ran").exists());
    machine.link.silence(false);
    machine.world.run(["exec", "db", "--", "true"]).code(0);
}

/// Invariant 1. A server that was restarted empty has forgotten the lease: its holder stops, and nobody gets it meanwhile.
#[test]
fn a_server_that_was_restarted_empty_grants_nothing_for_one_session() {
    let Some(mut server) = RedisServer::start(&[]) else { return };
    let team = Team::on_redis(server.address(), "5m");
    let (one, other) = (team.machine(), team.machine());
    let holder = one.world.start(["exec", "db", "--", "sh", "-c", "> up; exec sleep 300"]);
    until("the command runs", || one.world.path("up").exists());
    server.restart();
    let refused = other.world.run(["exec", "db", "--", "touch", "ran"]).code(69);
    refused.says("may have forgotten leases").says("nothing was changed");
    assert!(!other.world.path("ran").exists());
    holder.wait().code(76);
}

/// Invariant 3. A server that has kept its file knows the leases again, and their holders go on.
#[test]
fn a_server_that_was_restarted_from_its_file_still_knows_the_holder() {
    let Some(mut server) = RedisServer::start(&["--appendonly", "yes", "--appendfsync", "always"]) else {
        return;
    };
    let team = Team::on_redis(server.address(), "5m");
    let (one, other) = (team.machine(), team.machine());
    let holder = one.world.hold(&["db"]);
    server.restart();
    let shown = other.world.json(&["locks", "--json"]);
    assert_eq!(shown["leases"].as_array().map(Vec::len), Some(1), "{shown}");
    other.world.run(["exec", "other", "--no-wait", "--", "true"]).code(69).says("may have forgotten leases");
    holder.finish().code(0);
    assert_eq!(other.world.json(&["locks", "--json"])["leases"], serde_json::json!([]));
}

/// Invariant 2. What Redis cannot hold: a replica is promoted that never saw a lease. Its holder and the next one may work side by
/// side for a while. The token of the first is then refused.
#[test]
fn a_promoted_replica_that_lost_a_lease_refuses_its_token() {
    let port = RedisServer::free_port().to_string();
    let Some(mut master) = RedisServer::start(&["--port", &port]) else { return };
    let Some(replica) = RedisServer::start(&["--replicaof", "127.0.0.1", &port]) else { return };
    let team = Team::on_redis(master.address(), "3s");
    let (one, other) = (team.machine(), team.machine());
    until("the replica has the store", || {
        replica.command("INFO replication").contains("master_link_status:up")
            && !replica.command("KEYS lockkeeper:*about").starts_with("*0")
    });
    replica.command("REPLICAOF NO ONE");
    let holder =
        one.world.start(["exec", "db", "--", "sh", "-c", "echo $LOCKKEEPER_TOKEN > token; exec sleep 300"]);
    let mut lost = String::new();
    until("the command runs", || {
        lost = std::fs::read_to_string(one.world.path("token")).unwrap_or_default().trim().to_owned();
        !lost.is_empty()
    });
    master.kill();
    std::fs::rename(replica.socket(), master.socket()).unwrap();
    let mut next = None;
    until("the replica grants leases", || {
        let said = other.world.run(["exec", "db", "--", "sh", "-c", "echo $LOCKKEEPER_TOKEN"]);
        next = said.succeeded().then(|| said.stdout().trim().parse::<u64>().unwrap());
        next.is_some()
    });
    assert!(next.unwrap() > lost.parse().unwrap(), "{next:?} {lost}");
    other.world.run(["fence", "db", &lost]).code(75);
    holder.wait().code(76);
}

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
        let machine = Team::on_redis(server.address(), "5m").machine();
        let shown = machine.world.run(["doctor", "--quick"]);
        let shown = format!("{}{}", shown.stdout(), shown.stderr());
        assert!(says.iter().all(|text| shown.contains(text)), "{shown}");
        assert!(!shown.contains(omits), "{shown}");
    }
}
