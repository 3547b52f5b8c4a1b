//! Workers in different pid namespaces on one state folder, as in containers: nobody replaces what it can neither see dead
//! nor end.

use std::io::Write;
use std::process::Command;

use lockkeeper_core::id::RunId;
use lockkeeper_core::request::Request;
use lockkeeper_core::retry::RetryPolicy;
use lockkeeper_core::run::{Reason, Status};
use lockkeeper_testing::{Finished, Started, files, skip};

use super::site::{Site, number_in, until};

const LONG: &str =
    "echo $$ > started; echo $LOCKKEEPER_ATTEMPT >> record; until [ -e go ]; do sleep 0.01; done; exit 7";
/// The first process of the namespace ends with `unshare`, and all others with the first.
const UNSHARE: [&str; 5] = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"];

/// A worker in a pid namespace of its own, whose first process is a shell that does what the test tells it.
struct Container {
    _shell: Started,
    orders: std::fs::File,
}

impl Container {
    /// None where the machine does not allow it.
    fn start(site: &Site) -> Option<Self> {
        if !Finished::of(Command::new(UNSHARE[0]).args(&UNSHARE[1..]).arg("true")).succeeded() {
            skip("the right to make pid namespaces");
            return None;
        }
        let fifo = site.path("orders");
        files::make_fifo(&fifo);
        let script = "exec 3<>\"$0\"; \"$@\" & worker=$!; while read -r order <&3; do eval \"$order\"; done";
        let mut wrapper = UNSHARE.to_vec();
        wrapper.extend(["sh", "-c", script, fifo.to_str().unwrap()]);
        let mut command = site.lockkeeper_under(&wrapper, &["work", "--heartbeat", "50ms"]);
        let shell = Started::of(&mut command);
        let orders = std::fs::OpenOptions::new().read(true).write(true).open(&fifo).unwrap();
        Some(Self { _shell: shell, orders })
    }

    /// Has the shell execute a line. `$worker` is the worker.
    fn order(&mut self, line: &str) {
        writeln!(self.orders, "{line}").unwrap();
    }

    /// Stops the worker, but not while it writes: nobody else could write before it goes on.
    fn freeze(&mut self, site: &Site) {
        let frozen = site.path("frozen");
        let running = "grep -L '^State:.T' /proc/$worker/task/*/status | grep -q .";
        loop {
            self.order(&format!("kill -STOP $worker; while {running}; do :; done; echo 1 > frozen"));
            number_in(&frozen);
            if site.can_be_written() {
                return;
            }
            std::fs::remove_file(&frozen).unwrap();
            self.order("kill -CONT $worker");
        }
    }
}

fn submit(site: &Site) -> RunId {
    let retry = RetryPolicy { limit: 1, ..RetryPolicy::default() };
    site.submit(&Request { locks: vec!["db".parse().unwrap()], retry, ..site.script("a", LONG) })
}

fn until_recorded(site: &Site, run: &RunId) {
    until("the process is recorded", || site.run(run).process().is_some_and(|one| one.command.is_some()));
}

/// The owners of all leases.
fn owners(site: &Site) -> Vec<String> {
    let leases = lockkeeper_engine::open::open_engine(&site.store()).unwrap();
    leases.listing().unwrap().holders.into_iter().map(|one| one.lease.claim.owner.to_string()).collect()
}

/// Invariants 5, 10. The worker is dead, its command lives in another namespace: a worker beside it cannot judge that.
/// A worker on the host can, and looks after the healthy command.
#[test]
fn a_live_command_of_another_namespace_is_neither_lost_nor_ended() {
    let site = Site::new();
    let Some(mut container) = Container::start(&site) else { return };
    let run = submit(&site);
    number_in(&site.dir().join("started"));
    until_recorded(&site, &run);
    container.order("kill -9 $worker; wait $worker; echo 1 > dead");
    number_in(&site.path("dead"));
    let sibling = |args: &[&str]| Finished::of(&mut site.lockkeeper_under(&UNSHARE, args));
    drop(sibling(&["work", "--drain"]));
    let shown = sibling(&["--json", "run", "show", run.as_str()]).code(0).json()["run"].take();
    assert_eq!(shown["status"], "running");
    assert_eq!(shown["blocked"]["because"], "out_of_reach");
    drop(sibling(&["runs"]).code(0).prints("cannot be judged from here"));
    drop(sibling(&["doctor", "--full"]).code(0).prints("cannot be judged from here"));
    drop(sibling(&["run", "cancel", run.as_str()]).code(0).says("cannot be judged from here"));
    assert_eq!(owners(&site), [format!("run:{run}")], "nobody else may get what it holds");
    assert_eq!(site.run(&run).status(), Status::Cancelling);
    // The host sees the command, and ends it.
    Finished::of(&mut site.lockkeeper(&["run", "cancel", run.as_str()])).code(0).says("is canceled");
    assert_eq!(site.record(), ["1"]);
    site.assert_settled("after the cancellation");
}

/// Invariant 10. A worker on the host adopts the healthy command of a container whose worker died.
#[test]
fn a_worker_on_the_host_looks_after_the_command_of_a_container() {
    let site = Site::new();
    let Some(mut container) = Container::start(&site) else { return };
    let script = LONG.replace("exit 7", "echo over >> record; exit 7");
    let run = site.submit(&site.script("a", &script));
    number_in(&site.dir().join("started"));
    until_recorded(&site, &run);
    container.order("kill -9 $worker; wait $worker; echo 1 > dead");
    number_in(&site.path("dead"));
    let mut worker = site.worker(&[]);
    worker.until("adopted");
    // It does other work beside it.
    let other = site.submit(&site.script("b", "echo b >> record"));
    assert_eq!(site.end_of(&other).status(), Status::Succeeded);
    assert_eq!(site.run(&run).status(), Status::Running);
    std::fs::write(site.dir().join("go"), "").unwrap();
    let ended = site.end_of(&run);
    assert!(matches!(ended.reason(), Some(Reason::ExitCode | Reason::Lost)), "{ended:?}");
    assert_eq!(site.record(), ["1", "b", "over"], "the command came to its own end");
    site.assert_settled("after its end");
}

/// Invariants 9, 10. A worker is frozen and its command goes on: a worker of another namespace makes no second attempt.
#[test]
fn the_command_of_a_frozen_worker_of_another_namespace_is_not_made_twice() {
    let site = Site::new();
    let Some(mut container) = Container::start(&site) else { return };
    let run = submit(&site);
    number_in(&site.dir().join("started"));
    until_recorded(&site, &run);
    container.freeze(&site);
    let sibling = site.worker_under(&UNSHARE, &["--heartbeat", "50ms"]);
    // Far more than three heartbeats.
    for round in 0..20 {
        let other = site.submit(&site.script(&format!("b{round}"), "sleep 0.05"));
        assert_eq!(site.end_of(&other).status(), Status::Succeeded);
    }
    assert_eq!((site.run(&run).status(), site.record()), (Status::Running, vec!["1".to_owned()]));
    container.order("kill -CONT $worker");
    drop(sibling);
    std::fs::write(site.dir().join("go"), "").unwrap();
    until("both attempts failed", || site.run(&run).status().is_terminal());
    assert_eq!(site.record(), ["1", "2"], "the retry comes after the first attempt");
}
