//! A cluster that comes back with less than it had acknowledged: holders write their leases again.

use lockkeeper_testing::EtcdCluster;

use super::outlive::{hold, next_token, the_lease_outlives_the_server};
use super::team::Team;

/// Invariants 1, 2 and 7.
#[test]
fn a_restored_snapshot_does_not_let_a_second_holder_in() {
    let Some(mut cluster) = EtcdCluster::start(1) else { return };
    let address = cluster.endpoint(0);
    let (save, restore) = (
        |cluster: &mut EtcdCluster| cluster.save("snapshot"),
        |cluster: &mut EtcdCluster| cluster.restore("snapshot"),
    );
    the_lease_outlives_the_server(&mut cluster, address, save, restore);
}

/// Invariants 1, 2 and 7.
#[test]
fn a_copy_of_the_files_of_a_member_does_not_let_a_second_holder_in() {
    let Some(mut cluster) = EtcdCluster::start(1) else { return };
    let address = cluster.endpoint(0);
    let (copy, put_back) = (
        |cluster: &mut EtcdCluster| cluster.copy("data0", "copy"),
        |cluster: &mut EtcdCluster| cluster.copy("copy", "data0"),
    );
    the_lease_outlives_the_server(&mut cluster, address, copy, put_back);
}

/// Invariants 1, 2 and 7.
#[test]
fn an_empty_data_folder_does_not_let_a_second_holder_in() {
    let Some(mut cluster) = EtcdCluster::start(1) else { return };
    let address = cluster.endpoint(0);
    the_lease_outlives_the_server(&mut cluster, address, |_| {}, EtcdCluster::lose_data);
}

/// A single member that was started again cannot be told from a copy of it. It loses nothing.
#[test]
fn a_restarted_member_goes_on_and_grants_nothing_for_one_session() {
    let Some(mut cluster) = EtcdCluster::start(1) else { return };
    let team = Team::on(cluster.endpoint(0), "10s");
    let (one, other) = (team.machine(), team.machine());
    let (holder, token) = hold(&one);
    cluster.restart();
    other.world.run(["exec", "new", "--no-wait", "--", "true"]).code(75).says("nobody gets yet");
    let waiter = other.world.start(["exec", "db", "--", "echo", "next"]);
    other.world.until_waiting(1);
    one.world.touch("go");
    holder.wait().code(0);
    waiter.wait().code(0).prints("next");
    assert!(next_token(&other) > token, "tokens grow");
    other.world.run(["exec", "new", "--no-wait", "--", "true"]).code(0);
}
