//! A holder and a waiter, and a server that is replaced by one that knows less.

use lockkeeper_testing::{Started, until};

use super::team::{Machine, Team};

/// Longer than the server is away, also on a slow machine.
const SESSION: &str = "20s";

/// Holds `db` until the file `go` is there, and prints its token.
pub(crate) fn hold(machine: &Machine) -> (Started, u64) {
    let script = "echo $LOCKKEEPER_TOKEN; until [ -e go ]; do sleep 0.05; done";
    let mut holder = machine.world.start(["exec", "db", "--", "sh", "-c", script]);
    let token = holder.line().parse().unwrap();
    (holder, token)
}

pub(crate) fn next_token(machine: &Machine) -> u64 {
    let said = machine.world.run(["exec", "db", "--", "sh", "-c", "echo $LOCKKEEPER_TOKEN"]).code(0);
    said.stdout().trim().parse().unwrap()
}

/// The holders that another machine sees.
pub(crate) fn holders(machine: &Machine) -> usize {
    let listed = machine.world.run(["locks", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&listed.stdout()).unwrap_or_default();
    json["leases"].as_array().map_or(0, Vec::len)
}

/// A copy of the server, made by `back_up` before the lease was granted, takes its place by `replace`.
pub(crate) fn the_lease_outlives_the_server<S>(
    server: &mut S,
    address: String,
    back_up: impl FnOnce(&mut S),
    replace: impl FnOnce(&mut S),
) {
    let team = Team::on(address, SESSION);
    let (one, mut other) = (team.machine(), team.machine());
    // A waiter bears the outage for this long.
    other.world = other.world.set("LOCKKEEPER_CONNECT_TIMEOUT", "30s");
    one.world.run(["exec", "db", "--", "true"]).code(0);
    back_up(server);
    let (holder, token) = hold(&one);
    let waiter = other.world.start(["exec", "db", "--", "echo", "next"]);
    other.world.until_waiting(1);
    replace(server);
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
