//! Runs that nobody would look after: frozen executors while no pool runs, and attempts of stages whose `stages run` is gone.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockkeeper_core::id::RunId;
use lockkeeper_core::request::Request;
use lockkeeper_core::retry::RetryPolicy;
use lockkeeper_core::run::{Reason, Status};
use lockkeeper_core::time::Ttl;
use lockkeeper_engine::open::open_engine;
use lockkeeper_engine::runs::Runs;
use lockkeeper_engine::work::{ClaimResult, ControlListener, Settings, Worker, WorkerEvent};
use lockkeeper_formats::swarm::{Attempt, Swarm};
use lockkeeper_platform::wall_clock::WallTime;
use lockkeeper_testing::{Finished, Started};
use rustix::process::Signal;

use super::executors::serve;
use super::site::{PATIENCE, Site, lives, number_in, until};

const LONG: &str = "echo $$ > started; echo $LOCKKEEPER_ATTEMPT >> record; exec sleep 300";

/// Requirement 88. Whatever waits for runs replaces a worker that lives and does nothing, as pools do.
#[test]
fn a_frozen_worker_is_replaced_by_everything_that_waits_for_runs() {
    for kind in ["run wait", "serve", "queue auto"] {
        let site = Site::new();
        let run = site.submit(&site.script("a", LONG));
        let frozen = site.worker(&["--heartbeat", "200ms"]);
        let pid = number_in(&site.dir().join("started"));
        until("the process is recorded", || {
            site.run(&run).process().is_some_and(|one| one.command.is_some())
        });
        site.freeze(&frozen);
        let (mut server, mut command) = (None, None);
        match kind {
            "serve" => server = Some(serve(&site, &[])),
            "run wait" => {
                command = Some(Started::of(&mut site.lockkeeper(&["run", "wait", run.as_str()])));
            }
            _ => {
                site.submit(&site.script("b", "until [ -e go ]; do sleep 0.01; done"));
                command = Some(Started::of(&mut site.lockkeeper(&["queue", "auto"])));
            }
        }
        let ended = site.end_of(&run);
        assert_eq!((ended.status(), ended.reason()), (Status::Failed, Some(Reason::WorkerSilent)), "{kind}");
        assert!(!lives(pid), "{kind}");
        assert_eq!(site.record(), ["1"], "{kind}");
        std::fs::write(site.dir().join("go"), "").unwrap();
        frozen.signal(Signal::CONT);
        drop(server);
        if let Some(command) = command {
            drop(command.wait());
        }
    }
}

/// A run of a stage that waits for its second attempt. Nobody executes the stage.
fn waiting_run(site: &Site) -> RunId {
    let long = Duration::from_secs(3600);
    let retry = RetryPolicy { limit: 1, base: long, longest: long, codes: Vec::new() };
    let origin = Some("stage:EX-1.1".to_owned());
    let run = site.submit(&Request { origin, retry, ..site.script("a", "exit 3") });
    let (runs, leases) = (Runs::open(&site.store()).unwrap(), open_engine(&site.store()).unwrap());
    let worker = Worker::begin(runs, leases, Settings::default(), 0, None, Box::new(|_| {})).unwrap();
    let ClaimResult::Claimed(claimed) = worker.claim(&run).unwrap() else { panic!("it is not claimed") };
    worker.execute(*claimed).unwrap();
    assert!(site.run(&run).waits_for_retry());
    run
}

fn assert_given_up(site: &Site, run: &RunId, about: &str) {
    let ended = site.end_of(run);
    assert_eq!((ended.status(), ended.reason()), (Status::Failed, Some(Reason::ExitCode)), "{about}");
    assert_eq!(ended.ending().map(|ending| ending.exit_code()), Some(3), "{about}");
    assert!(ended.message().is_some_and(|message| message.contains("--resume")), "{about}: {ended:?}");
    site.assert_settled(about);
}

/// Requirement 92. Its `stages run` died in the pause before the next attempt.
#[test]
fn an_attempt_of_a_stage_that_nobody_will_make_is_given_up() {
    for kind in ["run wait", "serve", "work"] {
        let site = Site::new();
        let run = waiting_run(&site);
        match kind {
            "serve" => {
                let _server = serve(&site, &[]);
                site.end_of(&run);
            }
            "work" => drop(Finished::of(&mut site.lockkeeper(&["work", "--drain"]))),
            _ => drop(Finished::of(&mut site.lockkeeper(&["run", "wait", run.as_str()])).code(3)),
        }
        assert_given_up(&site, &run, kind);
    }
}

/// A run of a stage whose `stages run` died before it claimed the run.
fn queued_run(site: &Site) -> RunId {
    let origin = Some("stage:EX-1.1".to_owned());
    site.submit(&Request { origin, ..site.script("a", "echo made >> record") })
}

fn assert_canceled(site: &Site, run: &RunId, about: &str) {
    let ended = site.end_of(run);
    assert_eq!(ended.status(), Status::Canceled, "{about}");
    assert!(ended.message().is_some_and(|message| message.contains("--resume")), "{about}: {ended:?}");
    assert!(site.record().is_empty(), "{about}: nobody but its stage executes it");
    site.assert_settled(about);
}

/// Requirement 92.
#[test]
fn a_queued_run_of_a_stage_that_nobody_executes_is_canceled() {
    for kind in ["run wait", "serve", "work"] {
        let site = Site::new();
        let run = queued_run(&site);
        match kind {
            "serve" => {
                let _server = serve(&site, &[]);
                site.end_of(&run);
            }
            "work" => drop(Finished::of(&mut site.lockkeeper(&["work", "--drain"]))),
            _ => drop(Finished::of(&mut site.lockkeeper(&["run", "wait", run.as_str()])).code(75)),
        }
        assert_canceled(&site, &run, kind);
    }
    let site = Site::new();
    let run = queued_run(&site);
    // A `stages run` has taken a lease before it queues anything.
    Finished::of(&mut site.lockkeeper(&["exec", "any", "--", "true"])).code(0);
    drop(Finished::of(&mut site.lockkeeper(&["doctor"])).prints("their `stages run` is gone"));
    drop(Finished::of(&mut site.lockkeeper(&["doctor", "--full"])));
    assert_canceled(&site, &run, "the doctor");
}

/// The doctor finds it, and repairs it if it may. While the stage is executed, it is left alone.
#[test]
fn the_doctor_gives_up_an_attempt_of_a_stage_that_nobody_will_make() {
    let site = Site::new();
    let run = waiting_run(&site);
    let script = "echo $$ > holds; exec sleep 300";
    let mut holder = site.lockkeeper(&["exec", "stages/EX-1", "--", "sh", "-c", script]);
    let holder = Started::of(holder.current_dir(site.dir()));
    number_in(&site.dir().join("holds"));
    let doctor = |args: &[&str]| Finished::of(&mut site.lockkeeper(args));
    let gone = "their `stages run` is gone";
    let quiet = doctor(&["doctor", "--full"]);
    assert!(!quiet.stdout().contains(gone), "{}", quiet.stdout());
    assert!(site.run(&run).waits_for_retry());
    holder.signal(lockkeeper_testing::Signal::TERM);
    drop(holder.wait());
    drop(doctor(&["doctor"]).prints(gone));
    assert!(site.run(&run).waits_for_retry(), "a quick look changes nothing");
    drop(doctor(&["doctor", "--full"]));
    assert_given_up(&site, &run, "the doctor");
    until("nothing is left to say", || !doctor(&["doctor"]).stdout().contains(gone));
}

/// Requirement 68. While no pool runs, a worker for single runs makes the retry as soon as the lock file is free. Nothing in the
/// store changes when another program removes a lock file.
#[test]
fn a_retry_whose_lock_file_was_held_is_made_when_the_file_is_free() {
    let site = Site::new();
    let swarm = Swarm::new(site.path("swarm"), Ttl::new(Duration::from_secs(300)).unwrap());
    let pause = Duration::from_millis(20);
    let retry = RetryPolicy { limit: 1, base: pause, longest: pause, codes: Vec::new() };
    let origin = Some("swarm:task-1".to_owned());
    let script = "[ $LOCKKEEPER_ATTEMPT = 2 ]";
    let run = site.submit(&Request { origin, retry, ..site.script("a", script) });
    let (runs, leases) = (Runs::open(&site.store()).unwrap(), open_engine(&site.store()).unwrap());
    let (sender, waits) = channel();
    let sender = Mutex::new(sender);
    let listener = move |event: &WorkerEvent| {
        if let WorkerEvent::Waiting(_, why) = event {
            let _ = sender.lock().unwrap().send(why.clone());
        }
    };
    let settings = Settings { swarm: Some(swarm.clone()), ..Settings::default() };
    let worker = Arc::new(Worker::begin(runs, leases, settings, 0, None, Box::new(listener)).unwrap());
    let ClaimResult::Claimed(claimed) = worker.claim(&run).unwrap() else { panic!("it is not claimed") };
    worker.execute(*claimed).unwrap();
    assert!(site.run(&run).waits_for_retry());
    let Attempt::Locked { lock, .. } = swarm.lock("task-1", "foreign", None, WallTime::now()).unwrap() else {
        panic!("the worker has released it")
    };
    let _listener = ControlListener::begin(&worker, None).unwrap();
    let why = waits.recv_timeout(PATIENCE).expect("the listener tries to make the retry");
    assert_eq!(why, "task task-1 is locked by foreign");
    lock.unlock().unwrap();
    let ended = site.end_of(&run);
    assert_eq!((ended.status(), ended.attempt()), (Status::Succeeded, 2));
}
