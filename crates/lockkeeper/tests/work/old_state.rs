//! State folders of Lockkeeper 0.1.0: its workers named runs in `ahead/` before their claims were on the disk, and kept
//! logs in `spare/`.

use std::path::PathBuf;
use std::time::Duration;

use lockkeeper_core::id::RunId;
use lockkeeper_core::request::Request;
use lockkeeper_core::retry::RetryPolicy;
use lockkeeper_core::run::{Reason, Status};
use lockkeeper_engine::runs::Runs;
use rusqlite::Connection;

use super::site::Site;

/// A request whose command says that it ran.
fn recorded(site: &Site, id: &str) -> Request {
    site.script(id, "echo $LOCKKEEPER_REQUEST_ID $LOCKKEEPER_ATTEMPT >> record")
}

/// Leaves a file that names these runs, and a folder for logs, as a worker of 0.1.0 did.
fn leave(site: &Site, boot: &str, worker: &str, names: &str) {
    let [ahead, spare] = ["ahead", "spare"].map(|name| site.store().join(name));
    std::fs::create_dir_all(&ahead).unwrap();
    std::fs::write(ahead.join(format!("{boot}.{worker}")), names).unwrap();
    std::fs::create_dir_all(spare.join(worker)).unwrap();
    std::fs::write(spare.join(worker).join("1"), "").unwrap();
    std::fs::write(spare.join(worker).join("1.notes"), "").unwrap();
}

/// What is left in both folders.
fn left(site: &Site) -> Vec<PathBuf> {
    let entries = ["ahead", "spare"].map(|name| std::fs::read_dir(site.store().join(name)));
    entries.into_iter().flatten().flatten().map(|entry| entry.unwrap().path()).collect()
}

fn lost(site: &Site, run: &RunId) -> bool {
    let run = site.run(run);
    (run.status(), run.reason()) == (Status::Failed, Some(Reason::Lost))
}

/// Invariant 10. The worker was killed and the machine went on: its claims are in the log of the store, and what it has
/// named and not claimed has not begun.
#[test]
fn what_a_killed_worker_has_named_is_executed_by_the_next() {
    let site = Site::new();
    let run = site.submit(&recorded(&site, "a"));
    leave(&site, &lockkeeper_platform::origin::origin().unwrap().boot, "W-gone", &format!("\n{run}\n"));
    site.drain("1");
    assert_eq!((site.run(&run).status(), site.record()), (Status::Succeeded, vec!["a 1".to_owned()]));
    assert_eq!(left(&site), Vec::<PathBuf>::new());
}

/// Requirement 92. Invariants 9, 10. Nobody can know whether a run had begun that was named before the power failed: it is
/// not executed a second time without being allowed to.
#[test]
fn what_was_named_before_a_power_loss_is_lost_unless_it_may_be_tried_again() {
    let site = Site::new();
    let retry = RetryPolicy { limit: 1, base: Duration::from_millis(5), ..RetryPolicy::default() };
    let once = site.submit(&recorded(&site, "once"));
    let twice = site.submit(&Request { retry, ..recorded(&site, "twice") });
    let other = site.submit(&recorded(&site, "other"));
    let unfinished = other.as_str().split_at(other.as_str().len() - 2).0;
    leave(&site, "another boot", "W-1", &format!("\n{once}\n\n{twice}\n\n{unfinished}"));
    site.pretend_another_boot();
    site.drain("1");
    assert!(lost(&site, &once));
    assert_eq!(site.kinds(&once), ["submitted", "claimed", "ended"]);
    assert_eq!((site.run(&twice).status(), site.run(&twice).attempt()), (Status::Succeeded, 2));
    assert_eq!(site.run(&other).status(), Status::Succeeded);
    let mut record = site.record();
    record.sort();
    assert_eq!(record, ["other 1", "twice 2"]);
    assert_eq!(left(&site), Vec::<PathBuf>::new());
}

/// 0.1.0 was killed between its two steps: the run is marked, and nobody has ended it yet.
#[test]
fn what_was_marked_after_a_power_loss_is_lost() {
    let site = Site::new();
    let marked = site.submit(&recorded(&site, "marked"));
    let other = site.submit(&recorded(&site, "other"));
    let database = Connection::open(site.runs.folder().join("runs.db")).unwrap();
    let script = format!(
        "CREATE INDEX run_doubtful ON run (seq) WHERE ready < 0;
         UPDATE run SET ready = -1 WHERE id = '{marked}'"
    );
    database.execute_batch(&script).unwrap();
    let opened = Runs::open(&site.store()).unwrap();
    assert_eq!(opened.run(&marked).unwrap().reason(), Some(Reason::Lost));
    site.drain("1");
    assert!(lost(&site, &marked));
    assert_eq!((site.run(&other).status(), site.record()), (Status::Succeeded, vec!["other 1".to_owned()]));
}

/// A worker of 0.1.0 that still works keeps its files.
#[test]
fn files_of_a_registered_worker_stay() {
    let site = Site::new();
    let _worker = site.worker(&[]);
    let mut workers = Vec::new();
    super::site::until("it is registered", || {
        workers = site.runs.store().snapshot().unwrap().workers().unwrap();
        !workers.is_empty()
    });
    leave(&site, &lockkeeper_platform::origin::origin().unwrap().boot, workers[0].id.as_str(), "\nRUN-1\n");
    site.drain("1");
    assert_eq!(left(&site).len(), 2);
}
