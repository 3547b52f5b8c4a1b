//! The liveness lock with real processes: killed holders, commands that outlive them, many holders.
#![expect(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use lockkeeper_core::id::HolderId;
use lockkeeper_core::liveness::LockState;
use lockkeeper_platform::liveness_lock::LivenessFile;
use lockkeeper_platform::random;
use lockkeeper_testing::{Signal, Started, processes, this_test};

const ROLE: &str = "PLATFORM_LIFE_ROLE";
const DIR: &str = "PLATFORM_LIFE_DIR";
const HOLDER: &str = "PLATFORM_LIFE_HOLDER";

/// Not a test, but the process that the tests below start. It holds until its input ends.
#[test]
#[ignore = "a process that other tests start"]
fn other_side() {
    let role = std::env::var(ROLE).unwrap();
    let file = LivenessFile::open(Path::new(&std::env::var_os(DIR).unwrap())).unwrap();
    let lock = file.hold(HolderId(std::env::var(HOLDER).unwrap().parse().unwrap())).unwrap();
    let command = (role == "wrapper").then(|| {
        let _shared = lock.share_with_children().unwrap();
        Command::new("sleep").arg("600").stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap()
    });
    println!("\nready {}", command.map_or(0, |child| child.id()));
    std::io::stdout().flush().unwrap();
    let _ = std::io::stdin().read(&mut [0]);
}

struct Holder {
    process: Started,
    command: u32,
}

impl Holder {
    fn start(role: &str, dir: &Path, holder: HolderId) -> Self {
        let mut command = this_test("other_side");
        command.env(ROLE, role).env(DIR, dir).env(HOLDER, holder.0.to_string());
        let mut process = Started::of(&mut command);
        let command = process.line_with("ready ").parse().unwrap();
        Self { process, command }
    }

    /// Kills the holder. Returns the number of its command.
    fn kill(mut self) -> u32 {
        self.process.kill();
        self.command
    }
}

#[test]
fn a_killed_holder_is_free_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let file = LivenessFile::open(dir.path()).unwrap();
    let id = random::holder_id().unwrap();
    assert_eq!(file.look(id), LockState::Free);
    let holder = Holder::start("holder", dir.path(), id);
    assert_eq!(file.look(id), LockState::Held);
    assert_eq!(file.look(HolderId(id.0 ^ 1)), LockState::Free);
    holder.kill();
    assert_eq!(file.look(id), LockState::Free);
}

#[test]
fn a_command_keeps_the_lock_of_its_killed_wrapper_until_it_ends() {
    let dir = tempfile::tempdir().unwrap();
    let file = LivenessFile::open(dir.path()).unwrap();
    let id = random::holder_id().unwrap();
    let command = Holder::start("wrapper", dir.path(), id).kill();
    assert_eq!(file.look(id), LockState::Held);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| file.wait_free(id));
        assert_eq!(file.look(id), LockState::Held);
        processes::signal(command, Signal::KILL);
        waiter.join().unwrap().unwrap();
    });
    assert_eq!(file.look(id), LockState::Free);
}

#[test]
fn this_process_sees_its_own_hold() {
    let dir = tempfile::tempdir().unwrap();
    let file = LivenessFile::open(dir.path()).unwrap();
    let id = random::holder_id().unwrap();
    let lock = file.hold(id).unwrap();
    assert_eq!(lock.holder(), id);
    assert_eq!(file.look(id), LockState::Held);
    assert!(file.hold(id).is_err(), "two holders on one number");
    drop(lock);
    assert_eq!(file.look(id), LockState::Free);
}

#[test]
fn those_who_wait_for_an_end_are_not_taken_for_holders() {
    let dir = tempfile::tempdir().unwrap();
    let file = LivenessFile::open(dir.path()).unwrap();
    let id = random::holder_id().unwrap();
    for _ in 0..200 {
        std::thread::scope(|scope| {
            scope.spawn(|| file.wait_free(id).unwrap());
            assert_eq!(file.look(id), LockState::Free);
        });
    }
}

#[test]
fn a_released_lock_is_free_although_a_command_shares_it() {
    let dir = tempfile::tempdir().unwrap();
    let file = LivenessFile::open(dir.path()).unwrap();
    let lock = file.hold(random::holder_id().unwrap()).unwrap();
    let id = lock.holder();
    let shared = lock.share_with_children().unwrap();
    assert!(shared.number() >= 100);
    lock.release().unwrap();
    assert_eq!(file.look(id), LockState::Free);
}

#[test]
fn two_hundred_holders_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let file = LivenessFile::open(dir.path()).unwrap();
    let ids: Vec<HolderId> = (0..200).map(|_| random::holder_id().unwrap()).collect();
    let locks: Vec<_> = ids.iter().map(|id| file.hold(*id).unwrap()).collect();
    let processes: Vec<HolderId> = (0..20).map(|_| random::holder_id().unwrap()).collect();
    let holders: Vec<_> = processes.iter().map(|id| Holder::start("holder", dir.path(), *id)).collect();
    assert!(ids.iter().chain(&processes).all(|id| file.look(*id) == LockState::Held));
    for (place, lock) in locks.into_iter().enumerate() {
        drop(lock);
        assert_eq!(file.look(ids[place]), LockState::Free);
        assert!(ids[place + 1..].iter().all(|id| file.look(*id) == LockState::Held));
    }
    for (id, holder) in processes.iter().zip(holders) {
        holder.kill();
        assert_eq!(file.look(*id), LockState::Free);
    }
}

#[test]
fn an_id_beyond_the_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = LivenessFile::open(dir.path()).unwrap();
    assert!(file.hold(HolderId(1 << 63)).is_err());
    assert_eq!(file.look(HolderId(u64::MAX)), LockState::Unreadable);
    assert!(file.hold(HolderId((1 << 62) - 1)).is_ok());
}

/// A deleted file, and a copy in its place, prove nothing about holders of the file that was there before.
#[test]
fn another_file_in_its_place_proves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("life");
    let before = LivenessFile::open(dir.path()).unwrap();
    let held = before.hold_new().unwrap();
    let dead = before.hold_new().unwrap().holder();
    assert_eq!((before.look(held.holder()), before.look(dead)), (LockState::Held, LockState::Free));
    for copied in [false, true] {
        if copied {
            std::fs::copy(&path, dir.path().join("copy")).unwrap();
            std::fs::rename(dir.path().join("copy"), &path).unwrap();
        } else {
            std::fs::remove_file(&path).unwrap();
        }
        let after = LivenessFile::open(dir.path()).unwrap();
        for holder in [held.holder(), dead] {
            assert_eq!(after.look(holder), LockState::Unreadable, "copied: {copied}");
            assert!(after.wait_free(holder).is_err());
        }
        // Holders of the new file are judged by the new file, also by a process that has the old one open.
        let newer = after.hold_new().unwrap();
        assert_eq!(
            (after.look(newer.holder()), before.look(newer.holder())),
            (LockState::Held, LockState::Held)
        );
        assert_eq!(before.look(held.holder()), LockState::Held);
    }
}
