//! Runs that nobody would look after: frozen executors while no pool runs, and attempts of stages whose `stages run` is gone.

use std::time::Duration;

use lockkeeper_core::id::RunId;
use lockkeeper_core::request::Request;
use lockkeeper_core::retry::RetryPolicy;
use lockkeeper_core::run::{Reason, Status};
use lockkeeper_engine::open::open_engine;
use lockkeeper_engine::runs::Runs;
use lockkeeper_engine::work::{ClaimResult, Settings, Worker};
use lockkeeper_testing::{Finished, Started};
use rustix::process::Signal;

use super::executors::serve;
use super::site::{Site, lives, number_in, until};

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
