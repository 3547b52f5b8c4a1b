//! Requests and runs: their store, runs without a process, processes without a run, folders without either.

use std::fs;
use std::process::{Command, Stdio};

use lockkeeper_core::id::{HolderId, RunId};
use lockkeeper_core::request::Request;
use lockkeeper_core::retry::RetryPolicy;
use lockkeeper_core::run::life::{self, Taker};
use lockkeeper_core::run::{Reason, Status};
use lockkeeper_engine::runs::Runs;
use lockkeeper_platform::liveness_lock::{LivenessFile, LivenessLock};
use lockkeeper_platform::{origin, process};
use lockkeeper_store::runs::Worker;
use rusqlite::Connection;

use crate::clinic::Clinic;

fn request(id: &str, retry: RetryPolicy) -> Request {
    let command = vec!["true".to_owned()];
    Request { title: id.to_owned(), retry, ..Request::new(id.parse().unwrap(), command, "/".to_owned()) }
}

/// A clinic with requests, of which nobody executes any.
struct Ward {
    clinic: Clinic,
    runs: Runs,
}

impl Ward {
    fn new() -> Self {
        let clinic = Clinic::new();
        let runs = Runs::open(&clinic.state()).unwrap();
        Self { clinic, runs }
    }

    fn submit(&self, id: &str) -> RunId {
        self.submit_with(id, RetryPolicy::default())
    }

    fn submit_with(&self, id: &str, retry: RetryPolicy) -> RunId {
        self.runs.submit(&request(id, retry), None).unwrap().run
    }

    /// A worker takes a run; its processes will share this kernel lock.
    fn claim(&self, run: &RunId, worker: &str, holder: HolderId) {
        let taker = Taker { worker: worker.parse().unwrap(), holder: Some(holder), lease: None };
        self.runs
            .store()
            .write(|tables| {
                let before = tables.run(run)?.unwrap();
                assert!(tables.advance(&before, &life::claim(&before, taker, tables.now()).unwrap())?);
                Ok(())
            })
            .unwrap();
    }

    fn worker(&self, id: &str, holder: HolderId) {
        let worker = Worker {
            id: id.parse().unwrap(),
            holder,
            origin: origin::origin().unwrap(),
            process: process::current().unwrap(),
            jobs: 1,
            started_at: 0,
        };
        self.runs.store().write(|tables| tables.insert_worker(&worker)).unwrap();
    }

    fn hold(&self, holder: HolderId) -> LivenessLock {
        LivenessFile::open(&self.clinic.state()).unwrap().hold(holder).unwrap()
    }

    fn sql(&self, script: &str) {
        Connection::open(self.clinic.state().join("runs.db")).unwrap().execute_batch(script).unwrap();
    }
}

#[test]
fn a_run_whose_worker_and_processes_are_gone_is_named() {
    let ward = Ward::new();
    let [lost, held, looked_after] = ["RQ-1", "RQ-2", "RQ-3"].map(|id| ward.submit(id));
    ward.claim(&lost, "w1", HolderId(11));
    ward.claim(&held, "w2", HolderId(12));
    ward.claim(&looked_after, "w3", HolderId(13));
    ward.worker("w1", HolderId(21));
    ward.worker("w3", HolderId(23));
    // The command of the second outlived its worker; the worker of the third has not started its command yet.
    let (command, worker) = (ward.hold(HolderId(12)), ward.hold(HolderId(23)));
    let quick = ward.clinic.quick();
    quick.says("runs", "WARN", &format!("{lost} of request RQ-1 (running)")).fix("runs", "lockkeeper work");
    let detail = quick.text("runs", "detail");
    assert!(!detail.contains("RQ-2") && !detail.contains("RQ-3"), "{detail}");
    quick.says("run-store", "PASS", "3 running");
    let full = ward.clinic.full();
    assert_eq!(full.recovered("runs"), [format!("{lost} of request RQ-1")]);
    assert_eq!(full.check("runs")["recovered"][0]["why"], "nothing of it lives: failed");
    full.says("runs", "PASS", "looked after");
    let ended = ward.runs.find("RQ-1").unwrap();
    assert_eq!((ended.status, ended.reason), (Status::Failed, Some(Reason::Lost)));
    drop((command, worker));
    let again = ward.clinic.full();
    assert_eq!(again.recovered("runs").len(), 2, "{}", again.value);
    assert!(ward.clinic.full().recovered("runs").is_empty());
}

/// What a run may be tried again for, it is tried again for, whoever noticed that it was lost.
#[test]
fn a_lost_run_that_may_be_tried_again_waits_for_its_next_attempt() {
    let ward = Ward::new();
    let retry = RetryPolicy { limit: 1, ..RetryPolicy::default() };
    let run = ward.submit_with("RQ-1", retry);
    ward.claim(&run, "w1", HolderId(11));
    let full = ward.clinic.full();
    assert_eq!(full.check("runs")["recovered"][0]["why"], "nothing of it lives: it will be tried again");
    let found = ward.runs.find("RQ-1").unwrap();
    assert!(found.status == Status::Running && found.waits_for_retry(), "{found:?}");
    assert_eq!(ward.clinic.quick().troubles(), [""; 0]);
}

/// Requirement 92. A worker that is killed with its command leaves a run that the doctor ends.
#[test]
fn a_run_of_a_killed_worker_is_ended_by_the_full_pass() {
    let ward = Ward::new();
    let command = ["sh", "-c", "echo up > up; exec sleep 600"].map(str::to_owned).to_vec();
    let dir = ward.clinic.root().to_str().unwrap().to_owned();
    let env = vec![("PATH".to_owned(), std::env::var("PATH").unwrap())];
    let fifo = ward.clinic.root().join("up");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    ward.runs
        .submit(&Request { command, dir, env, ..request("RQ-1", RetryPolicy::default()) }, None)
        .unwrap();
    let mut worker = ward.clinic.env.start(["work"]);
    assert_eq!(fs::read_to_string(&fifo).unwrap(), "up\n");
    ward.clinic.quick().says("runs", "PASS", "looked after").says("run-store", "PASS", "1 running");
    let limit = std::time::Instant::now() + std::time::Duration::from_secs(60);
    let command = loop {
        // The worker notes the process after it has started it.
        let found = ward.runs.find("RQ-1").unwrap().process.and_then(|process| process.command);
        match found {
            Some(command) => break command,
            None => assert!(std::time::Instant::now() < limit),
        }
    };
    worker.kill();
    ward.clinic.full().says("runs", "PASS", "looked after");
    assert!(Command::new("kill").args(["-9", &command.pid.to_string()]).status().unwrap().success());
    // Nobody tells when the kernel has taken the process down.
    while ward.clinic.full().recovered("runs").is_empty() {
        assert!(std::time::Instant::now() < limit);
    }
    assert_eq!(ward.runs.find("RQ-1").unwrap().reason, Some(Reason::Lost));
}

#[test]
fn processes_of_a_run_that_is_over_are_named() {
    let ward = Ward::new();
    let run = ward.submit("RQ-1");
    let mut command = Command::new("cat");
    command.env("LOCKKEEPER_RUN_ID", run.as_str()).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut survivor = command.spawn().unwrap();
    ward.clinic.quick().says("run-processes", "PASS", "nothing is left");
    ward.runs.cancel(&run, None).unwrap();
    let diagnosis = ward.clinic.quick();
    let told = format!("process {} of {run} (canceled)", survivor.id());
    diagnosis.says("run-processes", "WARN", &told).fix("run-processes", "kill");
    drop(survivor.stdin.take());
    survivor.wait().unwrap();
    ward.clinic.quick().says("run-processes", "PASS", "nothing is left");
    // By the kernel lock, for those that carry no mark any more.
    let _held = ward.hold(HolderId(31));
    ward.sql("UPDATE run SET holder = 31");
    ward.clinic.quick().says("run-processes", "WARN", &format!("processes of {run} (canceled)"));
}

/// Invariant 12.
#[test]
fn a_store_of_runs_that_is_damaged_fails() {
    let ward = Ward::new();
    ward.submit("RQ-1");
    ward.clinic.full().says("run-store", "PASS", "1 queued");
    ward.sql("UPDATE run SET events = 7");
    ward.clinic.quick().says("run-store", "PASS", "1 queued");
    ward.clinic.full().says("run-store", "FAIL", "1 runs do not have the events that they count");
    ward.sql("PRAGMA user_version = 99");
    ward.clinic.quick().says("run-store", "FAIL", "version 99").fix("run-store", "newer lockkeeper");
    let state = ward.clinic.state();
    drop(ward.runs);
    for name in ["runs.db-wal", "runs.db-shm"] {
        let _ = fs::remove_file(state.join(name));
    }
    fs::write(state.join("runs.db"), "rubbish ".repeat(1_000)).unwrap();
    let diagnosis = ward.clinic.quick();
    diagnosis.says("run-store", "FAIL", "is damaged").fix("run-store", "move");
    assert_eq!(diagnosis.troubles(), ["run-store"], "the rest is looked at all the same");
    assert!(fs::read_to_string(state.join("runs.db")).unwrap().starts_with("rubbish"));
}

#[test]
fn folders_of_no_run_are_named_and_left_alone() {
    let ward = Ward::new();
    let run = ward.submit("RQ-1");
    ward.runs.folder_of(&run).make().unwrap();
    ward.clinic.quick().says("run-folders", "PASS", "each belongs");
    let orphan = ward.clinic.state().join("runs/RUN-20260131-120000-abc");
    fs::create_dir(&orphan).unwrap();
    for diagnosis in [ward.clinic.quick(), ward.clinic.full()] {
        assert_eq!(diagnosis.troubles(), ["run-folders"], "{}", diagnosis.value);
        diagnosis.says("run-folders", "WARN", orphan.to_str().unwrap()).fix("run-folders", "remove");
    }
    assert!(orphan.exists());
}
