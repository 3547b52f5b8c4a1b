//! Executors of every kind that are killed: the next process that waits for the run, or could start one, looks after it.

use std::time::Duration;

use lockkeeper_core::id::RunId;
use lockkeeper_core::request::Request;
use lockkeeper_core::retry::RetryPolicy;
use lockkeeper_core::run::{Reason, Status};
use lockkeeper_engine::open::open_engine;
use lockkeeper_engine::runs::Runs;
use lockkeeper_engine::work::{ClaimResult, Settings, Worker};
use lockkeeper_testing::http::{Http, Response};
use lockkeeper_testing::{Finished, ServerProcess, Signal, Started, stages, this_test};
use serde_json::json;

use super::site::{Site, lives, number_in, until};

const LONG: &str =
    "echo $$ > started; echo $LOCKKEEPER_ATTEMPT >> record; until [ -e go ]; do sleep 0.01; done; exit 7";

/// A process that executes a run.
pub(crate) enum Executor {
    Server(ServerProcess),
    Command(Started),
}

/// Every kind of process that executes runs, but `stages run`.
pub(crate) const KINDS: [&str; 6] =
    ["work", "serve --work", "serve, one", "serve, queue", "queue run-next", "queue auto"];

impl Executor {
    /// Starts an executor that executes the run of this request.
    pub(crate) fn start(site: &Site, kind: &str, request: &str) -> Self {
        let command = |args: &[&str]| Self::Command(Started::of(&mut site.lockkeeper(args)));
        match kind {
            "work" => command(&["work"]),
            "serve --work" => Self::Server(serve(site, &["--work", "1"])),
            "serve, one" => {
                let server = serve(site, &[]);
                accepted(&server.post(&format!("/api/requests/{request}/run"), &json!({})));
                Self::Server(server)
            }
            "serve, queue" => {
                let server = serve(site, &[]);
                accepted(&server.post("/api/queue/run-next", &json!({ "auto": true })));
                Self::Server(server)
            }
            "queue run-next" => command(&["queue", "run-next"]),
            "queue auto" => command(&["queue", "auto"]),
            other => panic!("no such executor: {other}"),
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        match self {
            Self::Server(server) => server.pid(),
            Self::Command(command) => command.pid(),
        }
    }

    /// Ends it by a signal that it does not handle, and waits for its end.
    pub(crate) fn end_by(self, signal: Signal) {
        match self {
            Self::Server(server) => {
                server.signal(signal);
                drop(server.wait());
            }
            Self::Command(command) => {
                command.signal(signal);
                drop(command.wait());
            }
        }
    }
}

/// In a storm, the start may be refused: others hold what the run needs, execute it, or have executed it.
fn accepted(response: &Response) {
    assert!(matches!(response.status, 200 | 202 | 409), "{}", response.text());
}

pub(crate) fn serve(site: &Site, args: &[&str]) -> ServerProcess {
    let all = [&["--json", "serve", "--listen", "127.0.0.1:0"], args].concat();
    ServerProcess::of(site.lockkeeper(&all))
}

fn go(site: &Site) {
    std::fs::write(site.dir().join("go"), "").unwrap();
}

/// Waits until the process of the command is recorded.
fn until_recorded(site: &Site, run: &RunId) {
    until("the process is recorded", || site.run(run).process().is_some_and(|one| one.command.is_some()));
}

/// Kills an executor while its command runs, and checks that `rescue` is enough to bring the run to its end.
fn killed(kind: &str, signal: Signal, rescue: impl FnOnce(&Site, &RunId)) {
    let site = Site::new();
    let run = site.submit(&Request { locks: vec!["db".parse().unwrap()], ..site.script("a", LONG) });
    let executor = Executor::start(&site, kind, "a");
    let pid = number_in(&site.dir().join("started"));
    until_recorded(&site, &run);
    executor.end_by(signal);
    assert!(lives(pid), "{kind}: the command does not notice");
    rescue(&site, &run);
    assert_eq!(site.record(), ["1"], "{kind}: it ran once");
    assert_eq!(site.kinds(&run).iter().filter(|kind| *kind == "ended").count(), 1, "{kind}");
    site.assert_settled(kind);
}

/// Requirements 88, 92. Issue of killed executors: `run wait` looks after the run.
#[test]
fn a_wait_for_a_run_looks_after_it_when_its_executor_was_killed() {
    for kind in KINDS {
        killed(kind, Signal::KILL, |site, run| {
            let wait = Started::of(&mut site.lockkeeper(&["run", "wait", run.as_str()]));
            until("it is adopted", || site.kinds(run).contains(&"adopted".to_owned()));
            go(site);
            let code = wait.wait().exit_code();
            let ended = site.run(run);
            let expected = if ended.reason() == Some(Reason::Lost) { 1 } else { 7 };
            assert_eq!((ended.status(), code), (Status::Failed, Some(expected)), "{kind}");
        });
    }
}

/// Requirements 88, 92. SIGQUIT ends an executor as SIGKILL does. A server without `--work` looks after the run.
#[test]
fn a_server_looks_after_runs_whose_executor_was_killed() {
    for kind in KINDS {
        killed(kind, Signal::QUIT, |site, run| {
            let server = serve(site, &[]);
            until("it is adopted", || site.kinds(run).contains(&"adopted".to_owned()));
            go(site);
            assert_eq!(site.end_of(run).status(), Status::Failed, "{kind}");
            // The request can be executed again.
            std::fs::remove_file(site.dir().join("record")).unwrap();
            server.post("/api/requests/a/run", &json!({})).expect(202);
            until("the second run has ended", || site.runs.find("a").unwrap().status().is_terminal());
            until("the server is no worker any more", || {
                site.runs.store().snapshot().unwrap().active_runs().unwrap().is_empty()
            });
        });
    }
}

/// Requirement 90. `run cancel` ends a live command that nobody looks after.
#[test]
fn a_run_without_an_executor_is_canceled_with_its_command() {
    for kind in ["serve, one", "queue run-next"] {
        killed(kind, Signal::KILL, |site, run| {
            let pid = number_in(&site.dir().join("started"));
            Finished::of(&mut site.lockkeeper(&["run", "cancel", run.as_str()])).code(0).says("is canceled");
            assert!(!lives(pid));
            assert_eq!(site.run(run).status(), Status::Canceled);
        });
    }
}

/// A run whose executor was killed, and whose command has ended since.
fn executor_and_command_gone() -> (Site, RunId) {
    let site = Site::new();
    let run = site.submit(&site.script("a", LONG));
    let executor = Executor::start(&site, "queue run-next", "a");
    let pid = number_in(&site.dir().join("started"));
    until_recorded(&site, &run);
    executor.end_by(Signal::KILL);
    go(&site);
    until("the command has ended", || !lives(pid));
    (site, run)
}

/// Requirement 90. A command that has ended keeps its end, although nobody has recorded it yet.
#[test]
fn a_command_that_has_ended_is_not_canceled() {
    let (site, run) = executor_and_command_gone();
    Finished::of(&mut site.lockkeeper(&["run", "cancel", run.as_str()])).code(75).says("failed");
    assert_eq!((site.run(&run).status(), site.run(&run).reason()), (Status::Failed, Some(Reason::ExitCode)));
}

/// Requirement 86. `run retry` finds a dead executor and a dead command: the run is LOST, and queued again.
#[test]
fn a_run_whose_executor_and_command_are_gone_can_be_retried_at_once() {
    let (site, run) = executor_and_command_gone();
    Finished::of(&mut site.lockkeeper(&["run", "retry", run.as_str()])).code(0);
    assert_eq!(site.run(&run).reason(), Some(Reason::ExitCode), "its guardian saw the end");
    assert_eq!(site.runs.find("a").unwrap().status(), Status::Queued);
}

/// Requirement 85. The worker is dead, and only a server is up: the timeout holds.
#[test]
fn a_server_enforces_the_timeout_of_a_run_whose_worker_was_killed() {
    let site = Site::new();
    let request = Request { timeout: Some(Duration::from_secs(2)), ..site.script("a", LONG) };
    let run = site.submit(&request);
    let server = serve(&site, &[]);
    let mut worker = site.worker(&[]);
    let pid = number_in(&site.dir().join("started"));
    worker.kill();
    let ended = site.end_of(&run);
    assert_eq!((ended.status(), ended.reason()), (Status::TimedOut, Some(Reason::ExecutionTimeout)));
    assert!(!lives(pid), "the end is written when the command is gone");
    drop(server);
    site.assert_settled("after the timeout");
}

/// Requirement 86. An executor is killed between two attempts: the command that waits for the run makes the next one.
#[test]
fn an_attempt_is_made_although_the_executor_died_in_the_pause_before_it() {
    for (kind, rescue) in [("queue run-next", "run wait"), ("serve, one", "serve")] {
        let site = Site::new();
        let retry = RetryPolicy { limit: 1, base: Duration::from_secs(2), ..RetryPolicy::default() };
        let script = "echo $LOCKKEEPER_ATTEMPT >> record; [ $LOCKKEEPER_ATTEMPT = 2 ]";
        let run = site.submit(&Request { retry, ..site.script("a", script) });
        let executor = Executor::start(&site, kind, "a");
        until("the first attempt failed", || site.run(&run).waits_for_retry());
        executor.end_by(Signal::KILL);
        if rescue == "serve" {
            let _server = serve(&site, &[]);
            assert_eq!(site.end_of(&run).status(), Status::Succeeded, "{kind}");
        } else {
            Finished::of(&mut site.lockkeeper(&["run", "wait", run.as_str()])).code(0);
        }
        assert_eq!(site.record(), ["1", "2"], "{kind}");
        site.assert_settled(kind);
    }
}

/// The role of a worker that is killed after it has claimed a run, and before it has started the command.
#[test]
#[ignore = "other tests start it"]
fn claimer() {
    let folder = std::path::PathBuf::from(std::env::var_os("SITE").unwrap());
    let (runs, leases) = (Runs::open(&folder).unwrap(), open_engine(&folder).unwrap());
    let worker = Worker::begin(runs, leases, Settings::default(), 1, None, Box::new(|_| {})).unwrap();
    let id = std::env::var("RUN").unwrap().parse().unwrap();
    let ClaimResult::Claimed(_claimed) = worker.claim(&id).unwrap() else { panic!("it is not claimed") };
    println!("claimed");
    loop {
        std::thread::park();
    }
}

/// A run that is claimed by a worker that was killed before it started the command.
fn claimed_by_the_dead(site: &Site, request: &Request) -> RunId {
    let run = site.submit(request);
    let mut role = this_test("executors::claimer");
    let mut claimer = Started::of(role.env("SITE", site.store()).env("RUN", run.as_str()));
    claimer.line_with("claimed");
    claimer.kill();
    assert_eq!(site.run(&run).status(), Status::Running);
    run
}

/// Requirements 88, 91. The command has not begun: the run is claimed again, and the attempt is not counted twice.
#[test]
fn a_run_whose_worker_died_before_the_command_began_is_executed_once() {
    let rescues =
        [&["work", "--drain"][..], &["queue", "run-next"], &["run", "wait", "a"], &["doctor", "--full"]];
    for rescue in rescues {
        let site = Site::new();
        let script = "echo $LOCKKEEPER_ATTEMPT >> record";
        let request = Request { locks: vec!["db".parse().unwrap()], ..site.script("a", script) };
        let run = claimed_by_the_dead(&site, &request);
        Finished::of(&mut site.lockkeeper(rescue)).code(0);
        if rescue[0] == "doctor" {
            assert_eq!((site.run(&run).status(), site.run(&run).worker()), (Status::Running, None));
            site.drain("1");
        }
        let ended = site.end_of(&run);
        assert_eq!((ended.status(), ended.attempt()), (Status::Succeeded, 1), "{rescue:?}");
        assert_eq!(site.record(), ["1"], "{rescue:?}");
        let kinds = site.kinds(&run);
        assert_eq!(kinds[..4], ["submitted", "claimed", "returned", "claimed"], "{rescue:?}: {kinds:?}");
        site.assert_settled("after the second claim");
    }
}

/// Requirement 85. The end is written when the process tree is gone, so that a retry never runs beside it.
#[test]
fn a_run_whose_time_is_up_ends_when_its_processes_are_gone() {
    let site = Site::new();
    // It lives on after SIGTERM, until it is killed at the end of the grace.
    let script = "trap : TERM; echo $$ > started; while :; do sleep 0.05; done";
    let request = Request { timeout: Some(Duration::from_millis(300)), ..site.script("a", script) };
    let run = site.submit(&request);
    let _worker = site.worker(&[]);
    let pid = number_in(&site.dir().join("started"));
    let shown = || {
        let shown = Finished::of(&mut site.lockkeeper(&["--json", "run", "show", run.as_str()])).code(0);
        shown.json()["run"]["blocked"]["because"].clone()
    };
    until("it shows that its time is up", || shown() == "time_is_up");
    assert!(lives(pid));
    assert_eq!(site.run(&run).status(), Status::Running);
    Finished::of(&mut site.lockkeeper(&["run", "retry", "a"])).code(75);
    let ended = site.end_of(&run);
    assert_eq!((ended.status(), ended.reason()), (Status::TimedOut, Some(Reason::ExecutionTimeout)));
    assert!(!lives(pid), "the end is written when the command is gone");
    Finished::of(&mut site.lockkeeper(&["run", "retry", "a"])).code(0);
}

/// `stage.json` says how a run ended, also if another process found that out.
#[test]
fn the_stage_file_of_a_lost_run_has_its_end() {
    let site = Site::new();
    for (id, rescue) in [("a", &["doctor", "--full"][..]), ("b", &["run", "wait", "b"])] {
        let run = site.submit(&site.script(id, LONG));
        let mut worker = site.worker(&[]);
        let pid = number_in(&site.dir().join("started"));
        until_recorded(&site, &run);
        until("the stage file is there", || site.runs.folder_of(&run).stage().exists());
        worker.kill();
        go(&site);
        until("the command has ended", || !lives(pid));
        drop(Finished::of(&mut site.lockkeeper(rescue)));
        let text = std::fs::read_to_string(site.runs.folder_of(&run).stage()).unwrap();
        let stage: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(stage["status"], "failed", "{id}: {text}");
        assert!(stage["completed_at"].is_string(), "{id}: {text}");
        for name in ["started", "go"] {
            std::fs::remove_file(site.dir().join(name)).unwrap();
        }
    }
}

/// The worker was killed after the end of a run was in the store and before it was in the file.
#[test]
fn a_stage_file_without_the_end_that_the_store_has_is_mended() {
    for rescue in [&["doctor", "--full"][..], &["work", "--drain"]] {
        let site = Site::new();
        let run = site.submit(&site.script("a", "sleep 0.1"));
        let mut worker = site.worker(&[]);
        site.end_of(&run);
        worker.until("ended");
        let stage = site.runs.folder_of(&run).stage();
        let read = || serde_json::from_slice::<serde_json::Value>(&std::fs::read(&stage).unwrap()).unwrap();
        until("the file has the end", || stage.exists() && read()["status"] == "succeeded");
        worker.kill();
        let mut old = read();
        (old["status"], old["completed_at"]) = ("running".into(), serde_json::Value::Null);
        std::fs::write(&stage, old.to_string()).unwrap();
        Finished::of(&mut site.lockkeeper(rescue)).code(0);
        assert_eq!(read()["status"], "succeeded", "{rescue:?}");
        assert!(read()["completed_at"].is_string(), "{rescue:?}");
    }
}

/// Requirement 92. The agents of a killed `stages run` go on, and a server looks after them.
#[test]
fn a_server_looks_after_the_agents_of_a_killed_stage() {
    let world = lockkeeper_testing::world!().with_state();
    let mut execution = stages::Execution::begin(&world);
    let statuses = || {
        let listed = world.json(&["runs"])["runs"].take();
        let status = |run: &serde_json::Value| run["status"].as_str().unwrap().to_owned();
        listed.as_array().unwrap().iter().map(status).collect::<Vec<_>>()
    };
    until("an agent runs", || statuses().contains(&"running".to_owned()));
    execution.kill();
    let _server = ServerProcess::start(&world, &[]);
    for group in ["api", "web", "docs"] {
        stages::let_end(&world, group);
    }
    until("nothing runs", || !statuses().contains(&"running".to_owned()));
}
