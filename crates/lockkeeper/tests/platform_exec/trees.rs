//! Process trees, ended by a process that did not start them.

use std::process::Command;
use std::time::Duration;

use lockkeeper_core::liveness::{ProcessRef, ProcessState};
use lockkeeper_platform::process;
use lockkeeper_platform::tree::{Root, Stop, descendants, stop_tree};
use lockkeeper_testing::Started;

/// Starts a script, and reads the numbers of its processes, which it prints.
fn tree(script: &str, size: usize) -> (Started, Vec<ProcessRef>) {
    tree_of(Command::new("sh").args(["-c", script]), size)
}

fn tree_of(command: &mut Command, size: usize) -> (Started, Vec<ProcessRef>) {
    let mut root = Started::of(command);
    let processes = (0..size).map(|_| process::identify(root.line().parse().unwrap()).unwrap()).collect();
    (root, processes)
}

fn stop(root: Root, grace: Duration, mark: Option<&str>) -> Vec<ProcessRef> {
    stop_tree(&Stop { root, grace, mark }).unwrap()
}

const STUBBORN: &str = "trap '' TERM; echo $$; sh -c 'echo $$; sleep 600 & echo $!; wait' & wait; wait";

#[test]
fn a_stranger_ends_root_and_all_below_it() {
    let (mut root, processes) = tree(STUBBORN, 3);
    assert_eq!(descendants(root.pid()).unwrap().len(), 2);
    assert_eq!(stop(Root::Process(processes[0]), Duration::from_millis(20), None), []);
    assert!(processes.iter().all(|process| process::look(*process) == ProcessState::Gone));
    root.end();
}

#[test]
fn a_reused_number_is_never_signalled() {
    let (mut root, processes) = tree("echo $$; exec sleep 600", 1);
    let earlier = ProcessRef { started: processes[0].started - 1, ..processes[0] };
    assert_eq!(stop(Root::Process(earlier), Duration::ZERO, None), []);
    assert_eq!(process::look(processes[0]), ProcessState::Running);
    root.kill();
}

#[test]
fn this_process_and_those_who_started_it_are_refused() {
    let own = process::current().unwrap();
    let parent = process::identify(std::os::unix::process::parent_id()).unwrap();
    for root in [own, parent] {
        let stop = Stop { root: Root::Process(root), grace: Duration::ZERO, mark: None };
        assert!(stop_tree(&stop).is_err());
    }
}

#[test]
fn what_was_left_behind_is_found_by_its_mark() {
    let id = format!("test-{}", std::process::id());
    let mark = format!("LOCKKEEPER_RUN_ID={id}");
    let script = "(setsid sleep 600 & echo $!)";
    let (mut root, processes) =
        tree_of(Command::new("sh").args(["-c", script]).env("LOCKKEEPER_RUN_ID", id), 1);
    root.end();
    assert_eq!(process::look(processes[0]), ProcessState::Running);
    assert_eq!(stop(Root::Marked, Duration::from_secs(60), Some(&mark)), []);
    assert_eq!(process::look(processes[0]), ProcessState::Gone);
}

/// A process is also found in the moment in which one program makes way for the next.
#[test]
fn a_process_that_changes_its_program_all_the_time_is_found_by_its_mark() {
    for round in 0..20 {
        let id = format!("exec-{}-{round}", std::process::id());
        let mark = format!("LOCKKEEPER_RUN_ID={id}");
        // Should it not be found, it does not spin for ever.
        let script = "ulimit -t 20; export AGAIN='exec sh -c \"$AGAIN\"'; setsid sh -c \"$AGAIN\" & echo $!";
        let (mut root, processes) =
            tree_of(Command::new("sh").args(["-c", script]).env("LOCKKEEPER_RUN_ID", id), 1);
        root.end();
        assert_eq!(stop(Root::Marked, Duration::from_secs(60), Some(&mark)), []);
        assert_eq!(process::look(processes[0]), ProcessState::Gone, "round {round}");
    }
}
