//! A server that comes back with less than it had acknowledged: holders write their leases again.

use lockkeeper_testing::{PostgresServer, until};

use super::outlive::{hold, holders, next_token, the_lease_outlives_the_server};
use super::team::Team;

/// A backup that was made before the lease was granted takes the place of the server. `replace` does it.
fn outlives(replace: impl FnOnce(&mut PostgresServer)) {
    let Some(mut server) = PostgresServer::start() else { return };
    let address = server.address();
    the_lease_outlives_the_server(&mut server, address, |server| server.back_up("backup"), replace);
}

/// Invariants 1, 2 and 7.
#[test]
fn a_restored_backup_does_not_let_a_second_holder_in() {
    outlives(|server| server.restore("backup"));
}

/// Invariants 1, 2 and 7.
#[test]
fn a_promoted_standby_that_lagged_does_not_let_a_second_holder_in() {
    outlives(|server| server.promote_standby("backup"));
}

/// A virtual machine that was set back goes on without a start. Its holders see numbers that are too small.
#[test]
fn a_holder_notices_that_the_server_was_set_back() {
    let Some(server) = PostgresServer::start() else { return };
    let team = Team::on(server.address(), "9s");
    let (one, other) = (team.machine(), team.machine());
    one.world.run(["exec", "db", "--", "true"]).code(0);
    // So many that the machines that ask meanwhile do not draw them again.
    server.sql("SELECT setval('lockkeeper.numbers', 1000000)");
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
