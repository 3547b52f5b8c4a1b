//! Runs: their store, runs without a process, processes and folders without a run.

use std::fs;
use std::process::Command;

use lockkeeper_core::id::{HolderId, RunId};
use lockkeeper_core::request::Request;
use lockkeeper_core::retry::RetryPolicy;
use lockkeeper_core::run::transition::{self, Claimant};
use lockkeeper_core::run::{Reason, Status};
use lockkeeper_engine::runs::Runs;
use lockkeeper_platform::liveness_lock::{LivenessFile, LivenessLock};
use lockkeeper_platform::{origin, process};
use lockkeeper_store::runs::{Moved, Worker};
use lockkeeper_testing::{Started, files, processes, until_seen};
use rusqlite::Connection;

use crate::doctor::Doctor;

/// No lease was ever taken here, so there is no lease store.
#[test]
fn a_claim_from_outside_is_found_without_a_lease_store() {
    let doctor = Doctor::new();
    let runs = Runs::open(&doctor.state()).unwrap();
    let run = runs.submit(&request("a", RetryPolicy::default()), None).unwrap().run;
    let claimant = Claimant { worker: "my-runner".parse().unwrap(), holder: None, lease: None };
    let claimed = transition::claim(&runs.run(&run).unwrap(), claimant, runs.store().now()).unwrap();
    assert_eq!(runs.store().move_runs(&[claimed]).unwrap(), [Moved::Applied]);
    doctor.quick().says("runs", "PASS", "my-runner");
}

fn request(id: &str, retry: RetryPolicy) -> Request {
    let command = vec!["true".to_owned()];
    Request { title: id.to_owned(), retry, ..Request::new(id.parse().unwrap(), command, "/".to_owned()) }
}

/// A repository with a queue of runs that no worker executes.
struct Queue {
    doctor: Doctor,
    runs: Runs,
}

impl Queue {
    fn new() -> Self {
        let doctor = Doctor::new();
        let runs = Runs::open(&doctor.state()).unwrap();
        // Every worker opens both stores.
        lockkeeper_engine::open::open_engine(&doctor.state()).unwrap();
        Self { doctor, runs }
    }

    fn submit(&self, id: &str) -> RunId {
        self.submit_with(id, RetryPolicy::default())
    }

    fn submit_with(&self, id: &str, retry: RetryPolicy) -> RunId {
        self.runs.submit(&request(id, retry), None).unwrap().run
    }

    /// A worker claims a run. The processes of the run will share this kernel lock.
    fn claim(&self, run: &RunId, worker: &str, holder: HolderId) {
        let claimant = Claimant { worker: worker.parse().unwrap(), holder: Some(holder), lease: None };
        let store = self.runs.store();
        let before = self.runs.run(run).unwrap();
        let claimed = transition::claim(&before, claimant, store.now()).unwrap();
        assert_eq!(store.move_runs(&[claimed]).unwrap(), [Moved::Applied]);
    }

    fn worker(&self, id: &str, holder: HolderId) {
        let worker = Worker {
            id: id.parse().unwrap(),
            holder,
            origin: origin::origin().unwrap(),
            process: process::current().unwrap(),
            jobs: 1,
            labels: Vec::new(),
            started_at: 0,
            heartbeat_at: None,
        };
        self.runs.store().register_worker(&worker).unwrap();
    }

    fn hold(&self, holder: HolderId) -> LivenessLock {
        LivenessFile::open(&self.doctor.state()).unwrap().hold(holder).unwrap()
    }

    fn sql(&self, script: &str) {
        Connection::open(self.doctor.state().join("runs.db")).unwrap().execute_batch(script).unwrap();
    }
}

#[test]
fn a_run_whose_worker_and_processes_are_gone_is_named() {
    let queue = Queue::new();
    let [lost, held, looked_after] = ["RQ-1", "RQ-2", "RQ-3"].map(|id| queue.submit(id));
    queue.claim(&lost, "w1", HolderId(11));
    queue.claim(&held, "w2", HolderId(12));
    queue.claim(&looked_after, "w3", HolderId(13));
    queue.worker("w1", HolderId(21));
    queue.worker("w3", HolderId(23));
    // The command of RQ-2 outlived its worker. The worker of RQ-3 has not started its command yet.
    let (command, worker) = (queue.hold(HolderId(12)), queue.hold(HolderId(23)));
    let quick = queue.doctor.quick();
    quick.says("runs", "WARN", &format!("{lost} of request RQ-1 (running)")).fix("runs", "lockkeeper work");
    quick.says("runs", "WARN", "their commands run, but their worker is gone").fix("runs", "run wait");
    let detail = quick.text("runs", "detail");
    assert!(detail.contains(&format!("gone: {held} of request RQ-2")), "{detail}");
    assert!(!detail.contains("RQ-3"), "{detail}");
    quick.says("run-store", "PASS", "3 running");
    let full = queue.doctor.full();
    assert_eq!(full.recovered("runs"), [format!("{lost} of request RQ-1")]);
    assert_eq!(full.check("runs")["recovered"][0]["why"], "its worker and its processes are gone: failed");
    full.says("runs", "WARN", &format!("their worker is gone: {held}"));
    let ended = queue.runs.find("RQ-1").unwrap();
    assert_eq!((ended.status(), ended.reason()), (Status::Failed, Some(Reason::Lost)));
    drop((command, worker));
    let again = queue.doctor.full();
    assert_eq!(again.recovered("runs").len(), 2, "{}", again.value);
    assert!(queue.doctor.full().recovered("runs").is_empty());
}

/// The retry policy also counts for a run that the doctor finds lost.
#[test]
fn a_lost_run_that_may_be_tried_again_waits_for_its_next_attempt() {
    let queue = Queue::new();
    let retry = RetryPolicy { limit: 1, ..RetryPolicy::default() };
    let run = queue.submit_with("RQ-1", retry);
    queue.claim(&run, "w1", HolderId(11));
    let full = queue.doctor.full();
    assert_eq!(
        full.check("runs")["recovered"][0]["why"],
        "its worker and its processes are gone: it will be retried"
    );
    let found = queue.runs.find("RQ-1").unwrap();
    assert!(found.status() == Status::Running && found.waits_for_retry(), "{found:?}");
    assert_eq!(queue.doctor.quick().troubles(), [""; 0]);
}

/// Requirement 92. A worker that is killed with its command leaves a run that the doctor ends.
#[test]
fn a_run_of_a_killed_worker_is_ended_by_the_full_pass() {
    let queue = Queue::new();
    let command = ["sh", "-c", "echo up > up; exec sleep 600"].map(str::to_owned).to_vec();
    let dir = queue.doctor.root().to_str().unwrap().to_owned();
    let env = vec![("PATH".to_owned(), std::env::var("PATH").unwrap())];
    let fifo = queue.doctor.root().join("up");
    files::make_fifo(&fifo);
    queue
        .runs
        .submit(&Request { command, dir, env, ..request("RQ-1", RetryPolicy::default()) }, None)
        .unwrap();
    let mut worker = queue.doctor.world.start(["work"]);
    assert_eq!(fs::read_to_string(&fifo).unwrap(), "up\n");
    queue.doctor.quick().says("runs", "PASS", "has a worker or a process").says(
        "run-store",
        "PASS",
        "1 running",
    );
    // The worker records the process after it has started it.
    let command = || queue.runs.find("RQ-1").unwrap().process().and_then(|process| process.command);
    let command = until_seen("the worker recorded the process", command, Option::is_some).unwrap();
    worker.kill();
    queue.doctor.full().says("runs", "WARN", "their commands run, but their worker is gone");
    processes::kill(command.pid);
    let full = queue.doctor.full();
    assert_eq!(full.recovered("runs").len(), 1, "{}", full.value);
    // The guardian of the worker has seen how the command ended.
    assert_eq!(queue.runs.find("RQ-1").unwrap().reason(), Some(Reason::Signal));
}

#[test]
fn processes_of_a_run_that_is_over_are_named() {
    let queue = Queue::new();
    let run = queue.submit("RQ-1");
    let mut command = Command::new("cat");
    command.env("LOCKKEEPER_RUN_ID", run.as_str());
    let survivor = Started::of(&mut command);
    queue.doctor.quick().says("run-processes", "PASS", "no process of an ended run is left");
    queue.runs.cancel(&run, None).unwrap();
    let diagnosis = queue.doctor.quick();
    let told = format!("process {} of {run} (canceled)", survivor.pid());
    diagnosis.says("run-processes", "WARN", &told).fix("run-processes", "kill");
    survivor.finish().code(0);
    queue.doctor.quick().says("run-processes", "PASS", "no process of an ended run is left");
    // The doctor also finds processes by their kernel lock, when their environment does not name the run.
    let _held = queue.hold(HolderId(31));
    queue.sql("UPDATE run SET holder = 31");
    queue.doctor.quick().says("run-processes", "WARN", &format!("processes of {run} (canceled)"));
}

/// Invariant 12.
#[test]
fn a_store_of_runs_that_is_damaged_fails() {
    let queue = Queue::new();
    queue.submit("RQ-1");
    queue.doctor.full().says("run-store", "PASS", "1 queued");
    queue.sql("UPDATE run SET events = 7");
    queue.doctor.quick().says("run-store", "PASS", "1 queued");
    queue.doctor.full().says("run-store", "FAIL", "1 runs do not have the events that they count");
    queue.sql("PRAGMA user_version = 99");
    queue.doctor.quick().says("run-store", "FAIL", "version 99").fix("run-store", "newer lockkeeper");
    let state = queue.doctor.state();
    drop(queue.runs);
    for name in ["runs.db-wal", "runs.db-shm"] {
        let _ = fs::remove_file(state.join(name));
    }
    fs::write(state.join("runs.db"), "rubbish ".repeat(1_000)).unwrap();
    let diagnosis = queue.doctor.quick();
    diagnosis.says("run-store", "FAIL", "is damaged").fix("run-store", "move");
    assert_eq!(diagnosis.troubles(), ["run-store"], "the rest is looked at all the same");
    assert!(fs::read_to_string(state.join("runs.db")).unwrap().starts_with("rubbish"));
}

#[test]
fn folders_of_no_run_are_named_and_left_alone() {
    let queue = Queue::new();
    let run = queue.submit("RQ-1");
    queue.runs.folder_of(&run).make().unwrap();
    queue.doctor.quick().says("run-folders", "PASS", "each folder belongs");
    let orphan = queue.doctor.state().join("runs/RUN-20260131-120000-abc");
    fs::create_dir(&orphan).unwrap();
    for diagnosis in [queue.doctor.quick(), queue.doctor.full()] {
        assert_eq!(diagnosis.troubles(), ["run-folders"], "{}", diagnosis.value);
        diagnosis.says("run-folders", "WARN", orphan.to_str().unwrap()).fix("run-folders", "remove");
    }
    assert!(orphan.exists());
}

/// The command of a run that was canceled after its worker died is ended by the full pass.
#[test]
fn a_canceled_run_without_a_worker_is_ended_by_the_full_pass() {
    let queue = Queue::new();
    let command = ["sh", "-c", "echo up > up; exec sleep 600"].map(str::to_owned).to_vec();
    let dir = queue.doctor.root().to_str().unwrap().to_owned();
    let env = vec![("PATH".to_owned(), std::env::var("PATH").unwrap())];
    let fifo = queue.doctor.root().join("up");
    files::make_fifo(&fifo);
    let request = Request { command, dir, env, ..request("RQ-1", RetryPolicy::default()) };
    let run = queue.runs.submit(&request, None).unwrap().run;
    let mut worker = queue.doctor.world.start(["work"]);
    assert_eq!(fs::read_to_string(&fifo).unwrap(), "up\n");
    worker.kill();
    queue.runs.cancel(&run, None).unwrap();
    queue.doctor.quick().says("runs", "WARN", &format!("their worker is gone: {run}"));
    assert_eq!(queue.doctor.full().recovered("runs").len(), 1);
    assert_eq!(queue.runs.find("RQ-1").unwrap().status(), Status::Canceled);
}

/// An attempt that is due, and nobody makes it: the executor died in the pause before it.
#[test]
fn an_attempt_that_is_due_without_a_worker_is_named() {
    let queue = Queue::new();
    let retry = RetryPolicy { limit: 1, base: std::time::Duration::ZERO, ..RetryPolicy::default() };
    let run = queue.submit_with("RQ-1", retry);
    queue.claim(&run, "w1", HolderId(11));
    let _ = queue.doctor.full();
    let due = || queue.doctor.quick().text("runs", "detail").to_owned();
    let due = until_seen("the attempt is due", due, |detail| detail.contains("next attempt is due"));
    assert!(due.contains(run.as_str()), "{due}");
    queue.doctor.quick().fix("runs", "lockkeeper run wait");
}

/// Nobody can see whether an executor outside of Lockkeeper lives.
#[test]
fn a_run_that_was_claimed_outside_of_lockkeeper_is_named() {
    let queue = Queue::new();
    let run = queue.submit("RQ-1");
    queue.runs.claim(&run, "ci".parse().unwrap()).unwrap();
    queue.doctor.quick().says("runs", "PASS", &format!("anybody executes them: {run} by ci for"));
}
