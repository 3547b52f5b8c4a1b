//! Simulated hosts on the servers of each store, faults by dice, and a judge over the history.
//!
//! A host is a network, pid, mount and uts namespace with a boot id and a runtime folder of its own. Each simulation runs in
//! namespaces, too, so that nothing of it is left behind, and nothing of the machine's network is touched. All run side by side. `LOCKKEEPER_SOAK` says for
//! how many seconds faults come, `LOCKKEEPER_HOSTS` which simulations run (`postgres,redis`), and `LOCKKEEPER_SEED` repeats the order of the faults.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod fault;
mod history;
mod host;
mod network;
mod server;
mod servers {
    pub(crate) mod etcd;
    pub(crate) mod postgres;
    pub(crate) mod redis;
    pub(crate) mod served;
}
mod simulation;
mod workers;

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lockkeeper_testing::{Dice, is_installed, is_root, skip, this_test};

use servers::etcd::Etcd;
use servers::postgres::Postgres;
use servers::redis::Redis;
use servers::served::Served;
use simulation::simulate;

/// How long faults come, if nobody says otherwise.
const SPAN: Duration = Duration::from_secs(50);
const STORES: [&str; 5] = ["postgres", "etcd", "etcd-cluster", "redis", "served"];
/// Says which simulations run.
const CHOSEN: &str = "LOCKKEEPER_HOSTS";

/// Invariants 1, 2, 4 and 7. Requirement 157.
#[test]
fn faults_never_let_two_in_at_once() {
    let tools = ["unshare", "nsenter", "ip", "openssl", "flock"];
    let missing = tools.into_iter().find(|tool| !is_installed(tool));
    let can_unshare = || {
        let mut tried = Command::new("unshare");
        tried.args(["--net", "--pid", "--mount", "--fork", "true"]).stderr(Stdio::null());
        tried.status().is_ok_and(|status| status.success())
    };
    if missing.is_some() || !is_root() || !can_unshare() {
        let needs =
            missing.map_or_else(|| "root, and the right to make namespaces".to_owned(), str::to_owned);
        assert!(std::env::var("CI").is_err(), "simulated hosts need {needs}");
        return skip(&needs);
    }
    let seed = Dice::from_environment().seed();
    let chosen = std::env::var(CHOSEN).unwrap_or_else(|_| STORES.join(","));
    let begin = |store: &str| {
        assert!(STORES.contains(&store), "{CHOSEN} names {store}, which is none of {STORES:?}");
        let inside = this_test("the_test_itself");
        let mut unshare = Command::new("unshare");
        unshare.args(["--net", "--pid", "--mount", "--uts", "--fork", "--kill-child", "--mount-proc"]);
        unshare.arg(inside.get_program()).args(inside.get_args());
        unshare.env(CHOSEN, store).env("LOCKKEEPER_SEED", seed.to_string()).spawn().unwrap()
    };
    let running: Vec<(&str, Child)> = chosen.split(',').map(|store| (store, begin(store))).collect();
    let ended = running.into_iter().map(|(store, mut child)| (store, child.wait().unwrap()));
    let failed: Vec<&str> = ended.filter(|(_, status)| !status.success()).map(|(store, _)| store).collect();
    assert!(failed.is_empty(), "LOCKKEEPER_SEED={seed}: two were inside, or nobody, on {failed:?}");
}

#[test]
#[ignore = "faults_never_let_two_in_at_once starts it in namespaces of its own"]
fn the_test_itself() {
    let dice = Dice::from_environment();
    let soak = std::env::var("LOCKKEEPER_SOAK");
    let span = soak.map_or(SPAN, |text| Duration::from_secs(text.parse().unwrap()));
    let store = std::env::var(CHOSEN).unwrap();
    match store.as_str() {
        "postgres" => simulate::<Postgres>(&store, dice, span),
        "etcd" => simulate::<Etcd<1>>(&store, dice, span),
        "etcd-cluster" => simulate::<Etcd<3>>(&store, dice, span),
        "redis" => simulate::<Redis>(&store, dice, span),
        "served" => simulate::<Served>(&store, dice, span),
        other => panic!("{CHOSEN}={other}"),
    }
}

/// Where `Server::lets_two_in` is true, users can read it.
#[test]
fn what_stores_cannot_hold_is_in_the_guide() {
    let read = |path: &str| {
        let path = format!("{}/../../docs/{path}", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(path).unwrap()
    };
    let guide = read("guide/teams.md");
    assert!(guide.contains("two servers are masters at once"));
    // Once for PostgreSQL, once for Redis.
    assert_eq!(guide.matches("the clock of the server is set **forward**").count(), 2);
    let of_redis = read("decisions/0048-leases-in-redis.md");
    assert!(of_redis.contains("two servers may both be masters"));
    assert!(of_redis.contains("a clock that is set forward ends all sessions"));
    assert!(
        read("decisions/0036-leases-in-postgresql.md")
            .contains("a clock that is set forward ends all sessions")
    );
    assert!(read("internals/known-gaps.md").contains("the clock of a PostgreSQL server is set forward"));
}
