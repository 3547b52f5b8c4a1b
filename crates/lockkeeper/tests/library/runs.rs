//! Runs: submit, wait, cancel and find.

use std::time::Duration;

use lockkeeper::{Error, RunStatus};

use crate::Site;

#[test]
fn a_canceled_run_ends_the_wait_for_it() {
    let site = Site::new();
    let keeper = site.keeper();
    let run = keeper.submit(["true"]).title("nothing").enqueue().unwrap();
    assert_eq!(run.status().unwrap(), RunStatus::Queued);
    assert_eq!(run.wait_timeout(Duration::from_millis(1)).unwrap(), None);
    let found = site.keeper().find_run(run.request_id()).unwrap();
    assert_eq!((found.id(), found.request_id()), (run.id(), run.request_id()));
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| run.wait().unwrap());
        assert_eq!(found.cancel().unwrap(), RunStatus::Canceled);
        let outcome = waiter.join().unwrap();
        assert_eq!((outcome.status, outcome.exit_code, outcome.attempts), (RunStatus::Canceled, None, 0));
        assert_eq!(outcome.reason.as_deref(), Some("USER_CANCELED"));
    });
    assert_eq!(run.cancel().unwrap(), RunStatus::Canceled, "a run that has ended stays as it is");
}

#[test]
fn a_run_that_never_starts_is_given_up() {
    let site = Site::new();
    let run = site.keeper().submit(["true"]).queue_timeout(Duration::from_millis(5)).enqueue().unwrap();
    let outcome = run.wait().unwrap();
    assert_eq!((outcome.status, outcome.reason.as_deref()), (RunStatus::TimedOut, Some("QUEUE_TIMEOUT")));
}

#[test]
fn what_the_queue_does_not_accept_is_an_error() {
    let site = Site::new();
    let keeper = site.keeper();
    let no_command: [&str; 0] = [];
    let invalid = [
        keeper.submit(no_command),
        keeper.submit(["true"]).lock("a//b"),
        keeper.submit(["true"]).path("src/["),
        keeper.submit(["true"]).priority(101),
        keeper.submit(["true"]).timeout(Duration::MAX),
        keeper.submit(["true"]).env("A=B", ""),
    ];
    for builder in invalid {
        let shown = format!("{builder:?}");
        let attempt = builder.enqueue();
        assert!(matches!(attempt, Err(Error::Invalid(_))), "{shown}: {attempt:?}");
    }
    let first = keeper.submit(["true"]).id("build").key("build 1").enqueue().unwrap();
    let again = keeper.submit(["true"]).key("build 1").enqueue().unwrap();
    assert_eq!((again.id(), again.request_id()), (first.id(), "build"));
    for refused in [keeper.submit(["true"]).id("build"), keeper.submit(["true"]).after("nothing")] {
        let attempt = refused.enqueue();
        assert!(matches!(attempt, Err(Error::Refused(_))), "{attempt:?}");
    }
    assert!(matches!(keeper.find_run("RUN-0"), Err(Error::NoRun(_))));
}

#[test]
fn a_builder_shows_no_variables() {
    let site = Site::new();
    let builder = site.keeper().submit(["deploy"]).env("PASSWORD", "open sesame");
    let shown = format!("{builder:?}");
    assert!(shown.contains("deploy") && !shown.contains("sesame"), "{shown}");
}

/// A worker of the command executes what the library submits.
#[cfg(feature = "cli")]
mod with_worker {
    use super::{Duration, RunStatus, Site};
    use lockkeeper_testing::Started;
    use std::process::Command;

    fn worker(site: &Site, args: &[&str]) -> Started {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lockkeeper"));
        Started::of(command.arg("--dir").arg(site.path()).arg("work").args(args))
    }

    #[test]
    fn submitted_runs_are_executed_and_waited_for() {
        let site = Site::new();
        let keeper = site.keeper();
        let out = site.path().join("out");
        let script = "test -n \"$LOCKKEEPER_TOKEN\" && pwd > out && echo \"$WHO\" >> out";
        let build = keeper
            .submit(["sh", "-c", script])
            .lock("db")
            .path("src/**")
            .env("WHO", "library")
            .current_dir(site.path())
            .enqueue()
            .unwrap();
        let tests = keeper
            .submit(["sh", "-c", "exit 3"])
            .after(build.request_id())
            .retries(1)
            .backoff(Duration::from_millis(1))
            .timeout(Duration::from_secs(60))
            .enqueue()
            .unwrap();
        let skipped = keeper.submit(["true"]).after(tests.request_id()).enqueue().unwrap();
        let worker = worker(&site, &["--drain"]);
        let outcome = build.wait().unwrap();
        assert_eq!((outcome.status, outcome.exit_code), (RunStatus::Succeeded, Some(0)), "{outcome:?}");
        let written = std::fs::read_to_string(out).unwrap();
        let folder = site.path().canonicalize().unwrap();
        assert_eq!(written, format!("{}\nlibrary\n", folder.display()));
        let outcome = tests.wait().unwrap();
        assert_eq!((outcome.status, outcome.exit_code, outcome.attempts), (RunStatus::Failed, Some(3), 2));
        assert_eq!(outcome.reason.as_deref(), Some("EXIT_CODE"));
        // A run failed, and the one after it can never start.
        worker.wait().code(1).says("can never start");
        assert_eq!(skipped.status().unwrap(), RunStatus::Queued);
    }

    #[test]
    fn a_running_command_can_be_canceled() {
        let site = Site::new();
        let keeper = site.keeper();
        let run = keeper.submit(["sleep", "600"]).lock("db").enqueue().unwrap();
        let worker = worker(&site, &["--drain"]);
        lockkeeper_testing::until_seen("running", || run.status().unwrap(), |at| *at == RunStatus::Running);
        assert!(keeper.lock("db").try_acquire().is_err());
        run.cancel().unwrap();
        assert_eq!(run.wait().unwrap().status, RunStatus::Canceled);
        // The worker releases the lock when the end is on the disk.
        keeper.lock("db").acquire().unwrap().release().unwrap();
        worker.wait().code(0);
    }
}
