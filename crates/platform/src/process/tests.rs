//! Processes that run, stop, end, or are no processes.

use std::os::fd::AsFd;
use std::process::{Child, Command};

use super::*;
use crate::poll;

fn sleeper() -> Child {
    Command::new("sleep").arg("600").spawn().unwrap()
}

#[test]
fn this_process_is_running_and_has_an_identity() {
    let own = current().unwrap();
    assert_eq!(own.pid, std::process::id());
    assert_eq!(identify(own.pid).unwrap(), own);
    assert_eq!(look(own), ProcessState::Running);
}

#[test]
fn numbers_outside_the_range_of_pids_are_refused() {
    for pid in [0, MAX_PID + 1, u32::MAX, (-1_i32) as u32] {
        assert!(matches!(identify(pid), Err(IdentifyError::OutOfRange(_))), "{pid}");
        assert_eq!(look(ProcessRef { pid, started: 1 }), ProcessState::Unreadable);
    }
}

/// Requirement 20.
#[test]
fn a_pid_alone_is_checked_without_a_signal() {
    let mut child = sleeper();
    assert!(is_running(child.id()).unwrap() && is_running(1).unwrap());
    child.kill().unwrap();
    child.wait().unwrap();
    for pid in [child.id(), 0, MAX_PID + 1, u32::MAX] {
        assert!(!is_running(pid).unwrap(), "{pid}");
    }
}

#[test]
fn init_is_alive_although_it_cannot_be_signalled() {
    assert_eq!(look(identify(1).unwrap()), ProcessState::Running);
}

#[test]
fn a_zombie_is_gone_and_so_is_a_reaped_process() {
    let mut child = sleeper();
    let process = identify(child.id()).unwrap();
    let Watch::Exit(end) = watch(process) else { panic!("no watch") };
    assert_eq!(look(process), ProcessState::Running);
    child.kill().unwrap();
    assert!(poll::wait(&[end.as_fd()], None).unwrap().any());
    assert_eq!(look(process), ProcessState::Gone);
    assert!(matches!(watch(process), Watch::Gone), "a zombie is nothing to wait for");
    assert!(matches!(identify(process.pid), Err(IdentifyError::NotRunning(_))));
    assert_eq!(look_in_table(process, checked(process.pid).unwrap()), ProcessState::Gone);
    child.wait().unwrap();
    assert_eq!(look(process), ProcessState::Gone);
    assert!(matches!(watch(process), Watch::Gone));
    assert_eq!(look_in_table(process, checked(process.pid).unwrap()), ProcessState::Gone);
}

#[test]
fn a_stopped_process_is_alive() {
    let mut child = sleeper();
    let process = identify(child.id()).unwrap();
    let number = checked(process.pid).unwrap();
    rustix::process::kill_process(number, rustix::process::Signal::STOP).unwrap();
    rustix::process::waitpid(Some(number), rustix::process::WaitOptions::UNTRACED).unwrap();
    assert_eq!(look(process), ProcessState::Running);
    assert_eq!(look_in_table(process, number), ProcessState::Running);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn another_start_time_is_another_process() {
    let own = current().unwrap();
    let earlier = ProcessRef { started: own.started - 1, ..own };
    assert_eq!(look(earlier), ProcessState::Reused);
    assert_eq!(look_in_table(earlier, checked(own.pid).unwrap()), ProcessState::Reused);
    assert!(matches!(watch(earlier), Watch::Gone));
}

#[cfg(target_os = "linux")]
#[test]
fn a_thread_is_not_a_process() {
    let (sender, receiver) = std::sync::mpsc::channel::<()>();
    let (thread_ids, thread_id) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        thread_ids.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
        receiver.recv().unwrap();
    });
    let pid = u32::try_from(thread_id.recv().unwrap()).unwrap();
    assert!(matches!(identify(pid), Err(IdentifyError::Thread(_))));
    assert!(process_table::is_thread(pid) && !process_table::is_thread(std::process::id()));
    assert_eq!(look(ProcessRef { pid, started: 1 }), ProcessState::Reused);
    sender.send(()).unwrap();
    thread.join().unwrap();
}
