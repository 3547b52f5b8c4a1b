//! Workers, in this process: what they execute, and what becomes of it.

use lockkeeper_core::request::{Request, RequestStatus};
use lockkeeper_core::run::{Reason, Run, Status};
use lockkeeper_engine::runs::Runs;
use lockkeeper_engine::work::{Listener, Settings, Worker, WorkerEvent};
use lockkeeper_platform::signal::{Signal, Signals};

use super::world::{World, request};

/// A request that runs a script.
pub(crate) fn script(id: &str, script: &str) -> Request {
    Request { command: vec!["sh".into(), "-c".into(), script.into()], env: path(), ..request(id) }
}

fn path() -> Vec<(String, String)> {
    vec![("PATH".to_owned(), std::env::var("PATH").unwrap())]
}

/// Works until nothing is left to do.
fn drain(world: &World, jobs: u32, listener: Box<Listener>) {
    let folder = world.folder.path();
    let leases = lockkeeper_engine::open::open_engine(folder).unwrap();
    let runs = Runs::open(folder).unwrap();
    let worker = Worker::begin(runs, leases, Settings::default(), jobs, None, listener).unwrap();
    worker.run(&Signals::receive(&[Signal::USR2]).unwrap(), true).unwrap();
}

fn latest(world: &World, request: &str) -> Run {
    world.runs.find(request).unwrap()
}

/// Requirement 92. A listener panics at a start: that run is given up with its processes, the others are not.
#[test]
fn a_bug_on_the_way_costs_one_run() {
    let world = World::new();
    let holding =
        |id: &str, command: &str| Request { locks: vec!["db".parse().unwrap()], ..script(id, command) };
    world.runs.submit(&holding("bad", "exec sleep 300"), None).unwrap();
    world.runs.submit(&holding("good", "exit 0"), None).unwrap();
    let listener = |event: &WorkerEvent| {
        assert!(!matches!(event, WorkerEvent::Started(run) if run.request.as_str() == "bad"), "on purpose");
    };
    drain(&world, 1, Box::new(listener));
    let (bad, good) = (latest(&world, "bad"), latest(&world, "good"));
    assert_eq!((bad.status(), bad.reason(), bad.process()), (Status::Failed, Some(Reason::Lost), None));
    assert_eq!(good.status(), Status::Succeeded);
    let left = lockkeeper_engine::open::open_engine(world.folder.path()).unwrap().listing().unwrap();
    assert!(left.holders.is_empty(), "{left:?}");
}

/// Requirements 73, 76, 77, 84.
#[test]
fn commands_are_executed_and_their_exit_code_decides() {
    let world = World::new();
    for (id, command) in [("good", "echo out; echo err >&2"), ("bad", "exit 3"), ("asks", "exit 10")] {
        world.runs.submit(&script(id, command), None).unwrap();
    }
    drain(&world, 2, Box::new(|_| {}));
    let good = latest(&world, "good");
    assert_eq!((good.status(), good.reason()), (Status::Succeeded, None));
    let output = std::fs::read_to_string(world.runs.folder_of(&good.id).output()).unwrap();
    assert_eq!(output, "out\nerr\n");
    let bad = latest(&world, "bad");
    assert_eq!((bad.status(), bad.reason()), (Status::Failed, Some(Reason::ExitCode)));
    assert_eq!(bad.ending().unwrap().exit_code(), 3);
    assert_eq!(RequestStatus::from(&latest(&world, "asks")), RequestStatus::NeedsInput);
}
