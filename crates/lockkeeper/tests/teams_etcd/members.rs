//! Three members: the leader is killed, a member is cut off, the majority is lost and comes back.

use lockkeeper_testing::{EtcdCluster, World, until};

use super::server;
use super::team::machine;

fn machines(cluster: &EtcdCluster, limit: &str) -> [World; 2] {
    server::prepare(&cluster.endpoint(0), "p");
    [[0, 1, 2], [2, 1, 0]].map(|members| {
        machine(&cluster.address(&members), "p")
            .set("LOCKKEEPER_CONNECT_TIMEOUT", limit)
            .set("LOCKKEEPER_SESSION", "5m")
    })
}

fn token(world: &World) -> u64 {
    let said = world.run(["exec", "token", "--", "sh", "-c", "echo $LOCKKEEPER_TOKEN"]).code(0);
    said.stdout().trim().parse().unwrap()
}

/// Invariants 1 and 2. What was committed stays, tokens grow on, and a holder keeps its lease.
#[test]
fn a_killed_leader_loses_no_lease_and_no_number() {
    let Some(mut cluster) = EtcdCluster::start(3) else { return };
    let [one, other] = machines(&cluster, "30s");
    let before = token(&one);
    let holder = one.hold(&["db"]);
    let waiter = other.start(["exec", "db", "--", "echo", "next"]);
    one.until_waiting(1);
    cluster.kill(cluster.leader().unwrap());
    assert!(token(&other) > before);
    other.run(["exec", "db", "--no-wait", "--", "true"]).code(75);
    holder.finish().code(0);
    waiter.wait().code(0).prints("next");
}

/// A member that answers nobody costs a share of the limit, and then the next one is asked.
#[test]
fn a_member_that_is_cut_off_is_passed_over() {
    let Some(cluster) = EtcdCluster::start(3) else { return };
    let [one, other] = machines(&cluster, "60s");
    let before = token(&one);
    let follower = (0..3).find(|member| Some(*member) != cluster.leader()).unwrap();
    cluster.freeze(follower, true);
    let holder = one.hold(&["db"]);
    other.run(["exec", "db", "--no-wait", "--", "true"]).code(75);
    assert!(token(&other) > before);
    cluster.freeze(follower, false);
    holder.finish().code(0);
    other.run(["exec", "db", "--no-wait", "--", "true"]).code(0);
}

/// Invariant 1. Without a majority nothing is granted. When it is back, what was held is held.
#[test]
fn a_lost_majority_grants_nothing_and_forgets_nothing() {
    let Some(mut cluster) = EtcdCluster::start(3) else { return };
    let [one, other] = machines(&cluster, "30s");
    let holder = one.hold(&["db"]);
    let last = cluster.leader().unwrap();
    let gone: Vec<usize> = (0..3).filter(|member| *member != last).collect();
    gone.iter().for_each(|member| cluster.kill(*member));
    let hasty = machine(&cluster.address(&[last]), "p").set("LOCKKEEPER_CONNECT_TIMEOUT", "3s");
    hasty.run(["exec", "web", "--", "touch", "ran"]).code(69);
    assert!(!hasty.path("ran").exists());
    gone.iter().for_each(|member| cluster.start_member(*member));
    until("there is a leader again", || cluster.leader().is_some());
    other.run(["exec", "db", "--no-wait", "--", "true"]).code(75);
    holder.finish().code(0);
    other.run(["exec", "db", "--", "true"]).code(0);
}
