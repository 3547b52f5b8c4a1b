//! Servers that lose data: restarted, emptied, set back, replaced by a replica. Holders write their leases again.

use lockkeeper_testing::{RedisServer, until};

use super::outlive::{hold, holders, next_token, the_lease_outlives_the_server};
use super::team::Team;

fn outlives(
    options: &[&str],
    back_up: impl FnOnce(&mut RedisServer),
    replace: impl FnOnce(&mut RedisServer),
) {
    let Some(mut server) = RedisServer::start(options) else { return };
    let address = server.address();
    the_lease_outlives_the_server(&mut server, address, back_up, replace);
}

/// Invariants 1, 2 and 7.
#[test]
fn a_server_that_was_restarted_empty_does_not_let_a_second_holder_in() {
    outlives(&[], |_| {}, RedisServer::restart);
}

/// Invariants 1, 2 and 7. The file is older than the lease.
#[test]
fn a_server_that_was_restarted_from_an_old_file_does_not_let_a_second_holder_in() {
    let save = |server: &mut RedisServer| drop(server.command("SAVE"));
    outlives(&[], save, RedisServer::restart);
}

/// Invariants 1, 2 and 7. The file has everything, but nobody can know that.
#[test]
fn a_server_that_was_restarted_from_its_file_goes_on() {
    outlives(&["--appendonly", "yes", "--appendfsync", "always"], |_| {}, RedisServer::restart);
}

/// Invariants 1, 2 and 7. Also a client that never saw the store finds out that somebody has emptied the server.
#[test]
fn a_server_that_was_emptied_does_not_let_a_second_holder_in() {
    outlives(&[], |_| {}, |server| drop(server.command("FLUSHALL")));
}

/// Invariants 1, 2 and 7. The replica did not get the lease before it was promoted.
#[test]
fn a_promoted_replica_that_lagged_does_not_let_a_second_holder_in() {
    let port = RedisServer::free_port().to_string();
    let Some(mut master) = RedisServer::start(&["--port", &port]) else { return };
    let Some(replica) = RedisServer::start(&["--replicaof", "127.0.0.1", &port]) else { return };
    let cut_off = |_: &mut RedisServer| {
        until("the replica has the store", || {
            replica.command("INFO replication").contains("master_link_status:up")
                && !replica.command("KEYS lockkeeper:*about").starts_with("*0")
        });
        replica.command("REPLICAOF NO ONE");
    };
    let replace = |master: &mut RedisServer| {
        master.kill();
        std::fs::rename(replica.socket(), master.socket()).unwrap();
    };
    let address = master.address();
    the_lease_outlives_the_server(&mut master, address, cut_off, replace);
}

/// The key with what the store notes about the server.
fn about(server: &RedisServer) -> String {
    server.command("KEYS lockkeeper:*:about").lines().nth(2).unwrap().to_owned()
}

/// A server that was set back goes on without a start. Its holders see a version that is too small.
#[test]
fn a_holder_notices_that_the_server_was_set_back() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let team = Team::on(server.address(), "9s");
    let (one, other) = (team.machine(), team.machine());
    let (holder, token) = hold(&one);
    let about = about(&server);
    let key = |name: &str| about.replace(":about", name);
    server.command(&format!("DEL {} {} {}", key(":records"), key(":keys"), key(":parts")));
    server.command(&format!("HSET {about} version 1"));
    until("the holder has come back", || holders(&other) == 1);
    other.world.run(["exec", "db", "--no-wait", "--", "true"]).code(75);
    one.world.touch("go");
    holder.wait().code(0);
    assert!(next_token(&other) > token, "tokens grow");
}

/// Invariants 1 and 2. The store's clock stands still where the server's clock was set back.
#[test]
fn a_clock_that_is_set_back_ends_no_session_and_repeats_no_token() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let team = Team::on(server.address(), "9s");
    let (one, other) = (team.machine(), team.machine());
    let before = next_token(&other);
    let (holder, token) = hold(&one);
    // The store has seen the server's clock one hour ahead of where it is now.
    let about = about(&server);
    let ahead = 3_600_000_000_i64;
    let seconds: i64 = server.command("TIME").lines().nth(2).unwrap().parse().unwrap();
    server.command(&format!("HSET {about} wall {} ahead {}", seconds * 1_000_000 + ahead, -ahead));
    other.world.run(["exec", "db", "--no-wait", "--", "true"]).code(75);
    let beside = other.world.run(["exec", "beside", "--", "sh", "-c", "echo $LOCKKEEPER_TOKEN"]).code(0);
    let beside: u64 = beside.stdout().trim().parse().unwrap();
    assert!(before < token && token < beside, "{before} {token} {beside}");
    one.world.touch("go");
    holder.wait().code(0);
    assert!(next_token(&other) > beside, "tokens grow");
}

/// Invariant 2. What Redis cannot hold: two servers are masters at once, and both grant. The later token is larger, so a
/// resource that checks tokens refuses the first holder. docs/guide/teams.md names the case.
#[test]
fn of_two_masters_at_once_the_later_token_is_larger_and_the_first_holder_is_refused() {
    let port = RedisServer::free_port().to_string();
    let Some(master) = RedisServer::start(&["--port", &port]) else { return };
    let Some(replica) = RedisServer::start(&["--replicaof", "127.0.0.1", &port]) else { return };
    let team = Team::on(master.address(), "8s");
    until("the replica has the store", || {
        replica.command("INFO replication").contains("master_link_status:up")
            && !replica.command("KEYS lockkeeper:*about").starts_with("*0")
    });
    replica.command("REPLICAOF NO ONE");
    let one = team.machine();
    let (holder, token) = hold(&one);
    let other = Team { server: replica.address(), project: team.project.clone(), ..team }.machine();
    let next = next_token(&other);
    assert!(next > token, "{next} {token}");
    other.world.run(["fence", "db", &token.to_string()]).code(75);
    one.world.touch("go");
    holder.wait().code(0);
    let guide =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/teams.md")).unwrap();
    assert!(guide.contains("two servers are masters at once"));
}
