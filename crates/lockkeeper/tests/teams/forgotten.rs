//! A server that comes back with less than it had acknowledged: holders say again what they hold.

use lockkeeper_testing::{PostgresServer, Started, until};

use super::team::{Machine, Team};

/// Longer than the server is away, also on a slow machine.
const SESSION: &str = "20s";

/// Holds `db` until the file `go` is there, and prints its token.
fn hold(machine: &Machine) -> (Started, u64) {
    let script = "echo $LOCKKEEPER_TOKEN; until [ -e go ]; do sleep 0.05; done";
    let mut holder = machine.world.start(["exec", "db", "--", "sh", "-c", script]);
    let token = holder.line().parse().unwrap();
    (holder, token)
}

fn next_token(machine: &Machine) -> u64 {
    let said = machine.world.run(["exec", "db", "--", "sh", "-c", "echo $LOCKKEEPER_TOKEN"]).code(0);
    said.stdout().trim().parse().unwrap()
}

/// The holders that another machine sees.
fn holders(machine: &Machine) -> usize {
    let listed = machine.world.run(["locks", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&listed.stdout()).unwrap_or_default();
    json["leases"].as_array().map_or(0, Vec::len)
}

/// A backup that was made before the lease was granted takes the place of the server. `replace` does it.
fn the_lease_outlives_the_server(replace: impl FnOnce(&mut PostgresServer)) {
    let Some(mut server) = PostgresServer::start() else { return };
    let team = Team::on(server.address(), SESSION);
    let (one, mut other) = (team.machine(), team.machine());
    // A waiter bears the outage for this long.
    other.world = other.world.set("LOCKKEEPER_CONNECT_TIMEOUT", "30s");
    one.world.run(["exec", "db", "--", "true"]).code(0);
    server.back_up("backup");
    let (holder, token) = hold(&one);
    let waiter = other.world.start(["exec", "db", "--", "echo", "next"]);
    other.world.until_waiting(1);
    replace(&mut server);
    // Nobody gets what the server does not know of, while holders come back.
    other.world.run(["exec", "other", "--no-wait", "--", "true"]).code(75).says("nobody gets yet");
    until("holder and waiter have come back", || holders(&other) == 1);
    other.world.until_waiting(1);
    one.world.run(["fence", "db", &token.to_string()]).code(0);
    one.world.touch("go");
    holder.wait().code(0);
    waiter.wait().code(0).prints("next");
    assert!(next_token(&other) > token, "tokens grow");
}

/// Invariants 1, 2 and 7.
#[test]
fn a_restored_backup_does_not_let_a_second_holder_in() {
    the_lease_outlives_the_server(|server| server.restore("backup"));
}

/// Invariants 1, 2 and 7.
#[test]
fn a_promoted_standby_that_lagged_does_not_let_a_second_holder_in() {
    the_lease_outlives_the_server(|server| server.promote_standby("backup"));
}

/// A virtual machine that was set back goes on without a start. Its holders see numbers that are too small.
#[test]
fn a_holder_notices_that_the_server_was_set_back() {
    let Some(server) = PostgresServer::start() else { return };
    let team = Team::on(server.address(), "9s");
    let (one, other) = (team.machine(), team.machine());
    let (holder, token) = hold(&one);
    server.sql(
        "BEGIN; DELETE FROM lockkeeper.record; DELETE FROM lockkeeper.key; DELETE FROM lockkeeper.part;
         SELECT setval('lockkeeper.numbers', 1); COMMIT",
    );
    until("the holder has come back", || holders(&other) == 1);
    other.world.run(["exec", "db", "--no-wait", "--", "true"]).code(75);
    one.world.touch("go");
    holder.wait().code(0);
    assert!(next_token(&other) > token, "tokens grow");
}

/// A command that ends while the server does not know of its lease has lost nothing.
#[test]
fn a_command_that_ends_before_its_holder_comes_back_has_lost_nothing() {
    let Some(mut server) = PostgresServer::start() else { return };
    let team = Team::on(server.address(), "2m");
    let one = team.machine();
    one.world.run(["exec", "db", "--", "true"]).code(0);
    server.back_up("backup");
    let (holder, _) = hold(&one);
    server.restore("backup");
    one.world.touch("go");
    holder.wait().code(0);
}

/// A start of the server loses nothing, and long after it nobody waits.
#[test]
fn a_restarted_server_goes_on() {
    let Some(server) = PostgresServer::start() else { return };
    let team = Team::on(server.address(), "10s");
    let (one, other) = (team.machine(), team.machine());
    let (holder, token) = hold(&one);
    server.crash();
    other.world.run(["exec", "db", "--", "true"]).code(69);
    server.begin();
    let waiter = other.world.start(["exec", "db", "--", "echo", "next"]);
    other.world.until_waiting(1);
    one.world.touch("go");
    holder.wait().code(0);
    waiter.wait().code(0).prints("next");
    assert!(next_token(&other) > token, "tokens grow");
    other.world.run(["exec", "new", "--no-wait", "--", "true"]).code(0);
}
