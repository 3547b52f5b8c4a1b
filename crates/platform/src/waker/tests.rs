//! Wakers that are woken, left behind and swept.

use super::*;
use crate::poll;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::Duration;

fn wake(dir: &Path, waker: WakerId) -> io::Result<bool> {
    WakeSender::new(dir).wake(waker, None)
}

fn remove(dir: &Path, waker: WakerId) -> io::Result<()> {
    WakeSender::new(dir).remove(waker)
}

#[test]
fn a_message_comes_through_among_any_number_of_wake_ups() {
    let dir = tempfile::tempdir().unwrap();
    let waker = Waker::create(dir.path()).unwrap();
    let sender = WakeSender::new(dir.path());
    for others in [0, 1, 230, 231, 240, 255, 256, 257, 1000] {
        (0..others).for_each(|_| assert!(sender.wake(waker.id(), None).unwrap()));
        for said in [1, 2] {
            assert!(sender.wake(waker.id(), Some(&[said; 24])).unwrap());
        }
        (0..others).for_each(|_| assert!(sender.wake(waker.id(), None).unwrap()));
        let (mut woken, mut message) = waker.receive().unwrap();
        while let (true, later) = waker.receive().unwrap() {
            (woken, message) = (true, later.or(message));
        }
        assert_eq!((woken, message), (true, Some([2; 24])), "{others} other wake-ups");
    }
}

#[test]
fn a_waker_that_was_created_again_is_woken_through_the_same_sender() {
    let dir = tempfile::tempdir().unwrap();
    let sender = WakeSender::new(dir.path());
    let ids: Vec<WakerId> = (1..=MOST_OPEN as u64 + 2).map(WakerId).collect();
    for _ in 0..2 {
        let wakers: Vec<Waker> =
            ids.iter().map(|id| Waker::create_with_id(dir.path(), *id).unwrap()).collect();
        for waker in wakers.iter().chain(&wakers) {
            assert!(sender.wake(waker.id(), None).unwrap());
            assert!(waker.receive().unwrap().0);
        }
        drop(wakers);
        for id in &ids {
            assert!(!sender.wake(*id, None).unwrap());
        }
    }
}

#[test]
fn any_number_of_wake_ups_count_as_one() {
    let dir = tempfile::tempdir().unwrap();
    let waker = Waker::create(dir.path()).unwrap();
    assert!(!waker.receive().unwrap().0);
    for _ in 0..3 {
        assert!(wake(dir.path(), waker.id()).unwrap());
    }
    assert!(poll::wait(&[waker.as_fd()], None).unwrap().any());
    assert!(waker.receive().unwrap().0);
    assert!(!poll::wait(&[waker.as_fd()], Some(Duration::ZERO)).unwrap().any());
}

#[test]
fn a_sleeper_is_woken_by_another_process() {
    let dir = tempfile::tempdir().unwrap();
    let waker = Waker::create(dir.path()).unwrap();
    let script = format!("printf x > '{}'", path(dir.path(), waker.id()).display());
    let mut sender = std::process::Command::new("sh").args(["-c", &script]).spawn().unwrap();
    assert!(poll::wait(&[waker.as_fd()], None).unwrap().contains(0));
    sender.wait().unwrap();
}

#[test]
fn a_full_fifo_counts_as_woken() {
    let dir = tempfile::tempdir().unwrap();
    let waker = Waker::create(dir.path()).unwrap();
    while rustix::io::write(&waker, &[0; 4096]).is_ok() {}
    assert!(wake(dir.path(), waker.id()).unwrap());
    assert!(waker.receive().unwrap().0);
}

#[test]
fn a_waker_that_is_gone_or_was_left_behind_wakes_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let waker = Waker::create(dir.path()).unwrap();
    let (id, path) = (waker.id(), waker.path.clone());
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    drop(waker);
    assert!(!path.exists());
    assert!(!wake(dir.path(), id).unwrap());
    make_fifo(&path).unwrap();
    assert!(!wake(dir.path(), id).unwrap());
    remove(dir.path(), id).unwrap();
    assert!(!path.exists());
    remove(dir.path(), id).unwrap();
}

#[test]
fn a_sweep_removes_what_nobody_has_open_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    sweep(dir.path()).unwrap();
    let waker = Waker::create(dir.path()).unwrap();
    let (left, file) = (path(dir.path(), WakerId(1)), path(dir.path(), WakerId(2)));
    make_fifo(&left).unwrap();
    std::fs::write(&file, "keep").unwrap();
    sweep(dir.path()).unwrap();
    assert!(!left.exists() && file.exists());
    assert!(wake(dir.path(), waker.id()).unwrap());
    assert!(waker.receive().unwrap().0);
}

#[test]
fn a_waker_is_abandoned_when_its_process_is_gone_and_not_while_that_is_unknown() {
    let dir = tempfile::tempdir().unwrap();
    assert!(!is_abandoned(dir.path(), WakerId(1)));
    let waker = Waker::create(dir.path()).unwrap();
    assert!(!is_abandoned(dir.path(), waker.id()));
    assert!(!waker.receive().unwrap().0, "to look is not to wake");
    make_fifo(&path(dir.path(), WakerId(1))).unwrap();
    assert!(is_abandoned(dir.path(), WakerId(1)));
    assert!(!is_abandoned(dir.path(), WakerId(2)));
    // Another process is creating a waker.
    let folder = open_folder(dir.path()).unwrap().unwrap();
    flock(&folder, FlockOperation::LockShared).unwrap();
    assert!(!is_abandoned(dir.path(), WakerId(1)));
}

#[test]
fn no_waker_is_swept_while_it_is_created() {
    let dir = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        let creating = scope.spawn(|| {
            for _ in 0..300 {
                let waker = Waker::create(dir.path()).unwrap();
                assert!(wake(dir.path(), waker.id()).unwrap());
            }
        });
        while !creating.is_finished() {
            sweep(dir.path()).unwrap();
        }
    });
}

#[test]
fn nothing_but_a_fifo_is_written_to() {
    let dir = tempfile::tempdir().unwrap();
    access::make_folder(&dir.path().join("wake")).unwrap();
    let (file, link) = (WakerId(1), WakerId(2));
    std::fs::write(path(dir.path(), file), "keep").unwrap();
    symlink(path(dir.path(), file), path(dir.path(), link)).unwrap();
    assert!(wake(dir.path(), file).is_err());
    assert!(wake(dir.path(), link).is_err());
    assert_eq!(std::fs::read_to_string(path(dir.path(), file)).unwrap(), "keep");
}
