//! Requests and runs: their store, runs without a process, processes without a run, folders without either.

use std::fs;
use std::process::{Command, Stdio};

use lockkeeper::core::id::{HolderId, RunId};
use lockkeeper::core::record::Priority;
use lockkeeper::core::request::Request;
use lockkeeper::core::retry::RetryPolicy;
use lockkeeper::core::run::life::{self, Taker};
use lockkeeper::engine::runs::Runs;
use lockkeeper::platform::life::{LifeFile, LifeLock};
use lockkeeper::platform::{origin, process};
use lockkeeper::store::runs::Worker;
use rusqlite::Connection;

use crate::clinic::Clinic;

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
        let request = Request {
            id: id.parse().unwrap(),
            title: id.to_owned(),
            command: vec!["true".to_owned()],
            dir: "/".to_owned(),
            env: Vec::new(),
            locks: Vec::new(),
            paths: Vec::new(),
            shared: false,
            priority: Priority::new(0).unwrap(),
            after: Vec::new(),
            queue_timeout: None,
            timeout: None,
            retry: RetryPolicy::default(),
            success: vec![0],
            key: None,
            origin: None,
        };
        self.runs.submit(&request, None).unwrap().run
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

    fn hold(&self, holder: HolderId) -> LifeLock {
        LifeFile::open(&self.clinic.state()).unwrap().hold(holder).unwrap()
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
    for diagnosis in [ward.clinic.quick(), ward.clinic.full()] {
        diagnosis
            .says("runs", "WARN", &format!("{lost} of request RQ-1 (running)"))
            .fix("runs", "lockkeeper work");
        let detail = diagnosis.text("runs", "detail");
        assert!(!detail.contains("RQ-2") && !detail.contains("RQ-3"), "{detail}");
        diagnosis.says("run-store", "PASS", "3 running");
    }
    drop((command, worker));
    let detail = ward.clinic.quick().text("runs", "detail").to_owned();
    assert!(detail.contains("RQ-2") && detail.contains("RQ-3"), "{detail}");
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
