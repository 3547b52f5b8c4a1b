//! What a started command inherits, and what a failed start reports.

use std::ffi::OsString;
use std::io::{Read, Seek};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use lockkeeper_core::liveness::LockState;
use rustix::io::{FdFlags, fcntl_setfd};

use super::*;
use crate::exec::Next;
use crate::liveness_lock::LivenessFile;
use crate::random;

fn worker_spec(program: &str) -> Spec {
    Spec { program: program.into(), only_env: true, mode: Mode::Worker, ..Spec::default() }
}

/// Runs a shell script as a worker's command, and returns what it writes.
fn output(script: &str, env: &[(&str, &str)], dir: Option<&Path>, life: Option<&LivenessLock>) -> String {
    let mut log = tempfile::NamedTempFile::new().unwrap();
    let variables = [("PATH", "/usr/bin:/bin")].iter().chain(env);
    let spec = Spec {
        args: vec!["-c".into(), script.into()],
        env: variables.map(|(name, value)| (OsString::from(name), OsString::from(value))).collect(),
        dir: dir.map(Path::to_owned),
        log: Some(log.path().to_owned()),
        ..worker_spec("sh")
    };
    let running = start(&spec, life).unwrap();
    assert_eq!(running.supervise(&[], &mut |_| Next::Wait).unwrap().exit_code(), 0);
    let mut text = String::new();
    log.rewind().unwrap();
    log.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn a_command_gets_its_arguments_environment_and_folder_and_a_group_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().canonicalize().unwrap();
    let script = "echo $0 $A $B; pwd; cut -d ' ' -f 5 /proc/$$/stat; echo $$; grep SigBlk /proc/self/status";
    let text = output(script, &[("A", "1"), ("B", "2"), ("A", "3")], Some(&dir), None);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[..2], ["sh 3 2", dir.to_str().unwrap()]);
    assert_eq!(lines[2], lines[3], "it leads its process group");
    assert_eq!(lines[4].split_ascii_whitespace().last(), Some("0000000000000000"));
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[test]
fn a_command_inherits_the_liveness_lock_and_no_other_descriptor() {
    let dir = tempfile::tempdir().unwrap();
    let life = LivenessFile::open(dir.path()).unwrap();
    let lock = life.hold(random::holder_id().unwrap()).unwrap();
    let inherited = tempfile::tempfile().unwrap();
    fcntl_setfd(&inherited, FdFlags::empty()).unwrap();
    let text = output("ls -l /proc/$$/fd; exit 0", &[], None, Some(&lock));
    let files: Vec<&str> = text.lines().filter_map(|line| Some(line.split_once(" -> ")?.1)).collect();
    assert_eq!(files.iter().filter(|file| file.ends_with("/life")).count(), 1, "{text}");
    assert_eq!(files[0], "/dev/null");
    assert_eq!(
        files.len(),
        4,
        "stdin, stdout, stderr and the lock, without {}: {text}",
        inherited.as_raw_fd()
    );
}

#[cfg(target_os = "linux")]
#[test]
fn no_handler_and_no_ignored_pipe_is_inherited() {
    let received = crate::signal::Signals::receive(&[crate::signal::Signal::USR1]);
    let text = output("grep -E 'Sig(Ign|Cgt)' /proc/self/status", &[], None, None);
    drop(received);
    let sets: Vec<u64> = text
        .lines()
        .map(|line| u64::from_str_radix(line.split_ascii_whitespace().last().unwrap(), 16).unwrap())
        .collect();
    let bit = |signal: i32| 1 << (signal - 1);
    // std makes this process ignore SIGPIPE.
    assert_eq!((sets[0] & bit(libc::SIGPIPE), sets[1] & bit(libc::SIGUSR1)), (0, 0), "{text}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_failed_start_leaves_no_child_behind() {
    assert!(start(&worker_spec("/nowhere/nothing"), None).is_err());
    let children = std::fs::read_to_string("/proc/thread-self/children").unwrap();
    assert_eq!(children, "");
}

#[test]
fn a_failed_start_says_why() {
    let failure = |program: &str, dir: Option<&str>, log: Option<PathBuf>| {
        let spec = Spec { dir: dir.map(Into::into), log, ..worker_spec(program) };
        match start(&spec, None).unwrap_err() {
            StartError::NotFound { source, .. }
            | StartError::CannotExecute { source, .. }
            | StartError::Lost { source, .. }
            | StartError::Other { source, .. } => source.kind(),
        }
    };
    assert_eq!(failure("/nowhere/true", None, None), io::ErrorKind::NotFound);
    assert_eq!(failure("/", None, None), io::ErrorKind::PermissionDenied);
    assert_eq!(failure("/bin/true", Some("/nowhere"), None), io::ErrorKind::NotFound);
    assert_eq!(failure("/bin/true", None, Some("/nowhere/log".into())), io::ErrorKind::NotFound);
    assert_eq!(failure("/bin/tr\0ue", None, None), io::ErrorKind::InvalidInput);
}

/// Until its exec, every other command has a copy of the lock.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[test]
fn a_released_liveness_lock_is_not_held_by_a_command_that_starts_at_the_same_time() {
    let dir = tempfile::tempdir().unwrap();
    let life = LivenessFile::open(dir.path()).unwrap();
    let spec = Spec { dir: Some("/".into()), ..worker_spec("/bin/true") };
    let over = AtomicBool::new(false);
    let start_many = || {
        while !over.load(Ordering::Relaxed) {
            let lock = life.hold(random::holder_id().unwrap()).unwrap();
            let running = start(&spec, Some(&lock)).unwrap();
            assert_eq!(running.supervise(&[], &mut |_| Next::Wait).unwrap().exit_code(), 0);
        }
    };
    thread::scope(|scope| {
        (0..4).for_each(|_| drop(scope.spawn(start_many)));
        for round in 0..500 {
            let holder = random::holder_id().unwrap();
            drop(life.hold(holder).unwrap());
            let seen = between_starts(|| life.look(holder));
            over.store(seen != LockState::Free || round == 499, Ordering::Relaxed);
            assert_eq!(seen, LockState::Free, "in round {round}");
        }
    });
}
