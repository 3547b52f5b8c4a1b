//! The clock of the server is set while a lease is held. Days make no difference to a minute.

use lockkeeper_testing::PostgresServer;

use super::outlive::{hold, next_token};
use super::team::Team;

const DAY: i64 = 86_400;
/// Its third part is long enough for another machine to come before the next renewal.
const SESSION: &str = "24s";

/// Invariants 1 and 2. The store's clock stands still, and then goes on.
#[test]
fn a_clock_that_is_set_back_neither_frees_nor_freezes_a_lease() {
    let Some(server) = PostgresServer::start_with_clock() else { return };
    let team = Team::on(server.address(), SESSION);
    let (one, other) = (team.machine(), team.machine());
    let (holder, token) = hold(&one);
    server.set_clock(-DAY);
    other.world.run(["exec", "db", "--no-wait", "--", "true"]).code(75);
    let waiter = other.world.start(["exec", "db", "--", "echo", "next"]);
    other.world.until_waiting(1);
    one.world.touch("go");
    holder.wait().code(0);
    waiter.wait().code(0).prints("next");
    assert!(next_token(&other) > token, "tokens grow");
}

/// Invariant 2. What the store cannot hold (docs/internals/known-gaps.md): the session seems to be over. The next token is larger, so a resource
/// that checks tokens refuses the first holder, whose command is stopped.
#[test]
fn a_clock_that_is_set_forward_lets_another_holder_in_and_the_first_one_is_refused() {
    let Some(server) = PostgresServer::start_with_clock() else { return };
    let team = Team::on(server.address(), SESSION);
    let (one, other) = (team.machine(), team.machine());
    let (holder, token) = hold(&one);
    server.set_clock(DAY);
    assert!(next_token(&other) > token, "tokens grow");
    other.world.run(["fence", "db", &token.to_string()]).code(75);
    holder.wait().code(76);
}
