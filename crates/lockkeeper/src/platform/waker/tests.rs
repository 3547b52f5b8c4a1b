//! Bells that are woken, announced, left behind and swept.

use super::*;
use crate::platform::poll;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::Duration;

fn wake(dir: &Path, waker: WakerId) -> io::Result<bool> {
    WakeSender::new(dir).wake(waker, None)
}

fn remove(dir: &Path, waker: WakerId) -> io::Result<()> {
    WakeSender::new(dir).remove(waker)
}

/// Whoever is told that a word is about to come hears it without falling asleep again; and does not wait for long.
#[test]
fn a_word_that_was_announced_is_looked_out_for() {
    let dir = tempfile::tempdir().unwrap();
    let waker = Waker::create(dir.path()).unwrap();
    let ringer = WakeSender::new(dir.path());
    ringer.alert(waker.id());
    assert_eq!(waker.hear().unwrap(), (false, None), "nobody opens a waker only to announce something");
    assert!(ringer.wake(waker.id(), None).unwrap());
    ringer.alert(waker.id());
    let since = Instant::now();
    assert_eq!(waker.hear().unwrap(), (true, None));
    assert!(since.elapsed() >= LOOK_OUT || !has_company());
    // Until one of many words comes while it is looked out for.
    let heard = (0..10_000).any(|_| {
        ringer.alert(waker.id());
        std::thread::scope(|scope| {
            scope.spawn(|| ringer.wake(waker.id(), Some(&[7; 24])).unwrap());
            let heard = waker.hear().unwrap();
            heard == (true, Some([7; 24]))
        })
    });
    assert!(heard);
}

#[test]
fn a_word_comes_with_its_ring_however_many_rings_there_are() {
    let dir = tempfile::tempdir().unwrap();
    let waker = Waker::create(dir.path()).unwrap();
    let ringer = WakeSender::new(dir.path());
    for others in [0, 1, 230, 231, 240, 255, 256, 257, 1000] {
        (0..others).for_each(|_| assert!(ringer.wake(waker.id(), None).unwrap()));
        for said in [1, 2] {
            assert!(ringer.wake(waker.id(), Some(&[said; 24])).unwrap());
        }
        (0..others).for_each(|_| assert!(ringer.wake(waker.id(), None).unwrap()));
        let (mut woken, mut word) = waker.hear().unwrap();
        while let (true, later) = waker.hear().unwrap() {
            (woken, word) = (true, later.or(word));
        }
        assert_eq!((woken, word), (true, Some([2; 24])), "{others} other wakes");
    }
}

#[test]
fn a_bell_that_was_put_up_again_is_rung_by_who_rang_the_old_one() {
    let dir = tempfile::tempdir().unwrap();
    let ringer = WakeSender::new(dir.path());
    let ids: Vec<WakerId> = (1..=MOST_OPEN as u64 + 2).map(WakerId).collect();
    for _ in 0..2 {
        let wakers: Vec<Waker> =
            ids.iter().map(|id| Waker::create_with_id(dir.path(), *id).unwrap()).collect();
        for waker in wakers.iter().chain(&wakers) {
            assert!(ringer.wake(waker.id(), None).unwrap());
            assert!(waker.hear().unwrap().0);
        }
        drop(wakers);
        for id in &ids {
            assert!(!ringer.wake(*id, None).unwrap());
        }
    }
}

#[test]
fn a_ring_is_heard_once_however_often_it_rang() {
    let dir = tempfile::tempdir().unwrap();
    let waker = Waker::create(dir.path()).unwrap();
    assert!(!waker.hear().unwrap().0);
    for _ in 0..3 {
        assert!(wake(dir.path(), waker.id()).unwrap());
    }
    assert!(poll::wait(&[waker.as_fd()], None).unwrap().any());
    assert!(waker.hear().unwrap().0);
    assert!(!poll::wait(&[waker.as_fd()], Some(Duration::ZERO)).unwrap().any());
}

#[test]
fn a_sleeper_is_woken_by_another_process() {
    let dir = tempfile::tempdir().unwrap();
    let waker = Waker::create(dir.path()).unwrap();
    let script = format!("printf x > '{}'", path(dir.path(), waker.id()).display());
    let mut ringer = std::process::Command::new("sh").args(["-c", &script]).spawn().unwrap();
    assert!(poll::wait(&[waker.as_fd()], None).unwrap().contains(0));
    ringer.wait().unwrap();
}

#[test]
fn a_full_bell_counts_as_rung() {
    let dir = tempfile::tempdir().unwrap();
    let waker = Waker::create(dir.path()).unwrap();
    while rustix::io::write(&waker, &[0; 4096]).is_ok() {}
    assert!(wake(dir.path(), waker.id()).unwrap());
    assert!(waker.hear().unwrap().0);
}

#[test]
fn nobody_hears_a_bell_that_is_gone_or_was_left_behind() {
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
fn a_sweep_takes_down_what_nobody_has_open_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    sweep(dir.path()).unwrap();
    let waker = Waker::create(dir.path()).unwrap();
    let (left, file) = (path(dir.path(), WakerId(1)), path(dir.path(), WakerId(2)));
    make_fifo(&left).unwrap();
    std::fs::write(&file, "keep").unwrap();
    sweep(dir.path()).unwrap();
    assert!(!left.exists() && file.exists());
    assert!(wake(dir.path(), waker.id()).unwrap());
    assert!(waker.hear().unwrap().0);
}

#[test]
fn no_bell_is_swept_while_it_is_put_up() {
    let dir = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        let putting_up = scope.spawn(|| {
            for _ in 0..300 {
                let waker = Waker::create(dir.path()).unwrap();
                assert!(wake(dir.path(), waker.id()).unwrap());
            }
        });
        while !putting_up.is_finished() {
            sweep(dir.path()).unwrap();
        }
    });
}

#[test]
fn nothing_but_a_fifo_is_written_to() {
    let dir = tempfile::tempdir().unwrap();
    make_folder(dir.path()).unwrap();
    let (file, link) = (WakerId(1), WakerId(2));
    std::fs::write(path(dir.path(), file), "keep").unwrap();
    symlink(path(dir.path(), file), path(dir.path(), link)).unwrap();
    assert!(wake(dir.path(), file).is_err());
    assert!(wake(dir.path(), link).is_err());
    assert_eq!(std::fs::read_to_string(path(dir.path(), file)).unwrap(), "keep");
}
