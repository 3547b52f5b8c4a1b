//! Stores and disks that fail while workers work.

use std::process::Command;

use lockkeeper_core::request::Request;
use lockkeeper_core::run::{Reason, Status};
use rustix::process::Signal;

use super::site::{Site, Worker, number_in, until};

/// A site on a small file system of its own, which this process alone sees; none where that is not allowed.
fn small_disk(size: &str) -> Option<Site> {
    let folder = tempfile::tempdir().unwrap();
    let mount = Command::new("mount")
        .args(["-t", "tmpfs", "-o", &format!("size={size}"), "none"])
        .arg(folder.path())
        .output()
        .unwrap();
    if !mount.status.success() {
        eprintln!("SKIPPED: mounting needs root (or CAP_SYS_ADMIN); nothing was checked");
        return None;
    }
    Some(Site::in_folder(folder))
}

struct Unmount(std::path::PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn fill(site: &Site) -> std::path::PathBuf {
    use std::io::Write;
    let path = site.path("fill");
    let mut file = std::fs::File::create(&path).unwrap();
    for size in [65536, 4096, 1] {
        while file.write(&vec![b'x'; size]).is_ok_and(|written| written > 0) {}
    }
    path
}

fn stop(worker: &mut Worker) {
    worker.signal(Signal::TERM);
    assert_eq!(worker.wait(), Some(0));
}

/// Requirement 92. Invariant 12. What runs goes on, and its end is noted as soon as there is room.
#[test]
fn a_full_disk_ends_no_command_and_loses_no_end() {
    let Some(site) = small_disk("3m") else { return };
    let _unmount = Unmount(site.path(""));
    let script = "echo $$ > started; until [ -e go ]; do sleep 0.01; done; exit 5";
    let run = site.submit(&Request { locks: vec!["db".parse().unwrap()], ..site.script("a", script) });
    let mut worker = site.worker(&["--heartbeat", "500ms", "--jobs", "2"]);
    let mut other = site.worker(&["--heartbeat", "500ms"]);
    number_in(&site.dir().join("started"));
    // One that begins on a full disk says so and ends, which is another case.
    let beating = || std::fs::read_dir(site.store().join("beats")).map_or(0, Iterator::count);
    until("both have begun", || beating() == 2);
    let go = site.dir().join("go");
    std::fs::write(&go, "").unwrap();
    std::fs::remove_file(&go).unwrap();
    let fill = fill(&site);
    // Nobody else takes the worker for silent: its beats need no room. More fit into this than make a silence.
    let refused = (0..20).filter(|round| {
        std::thread::sleep(std::time::Duration::from_millis(125));
        site.runs.submit(&site.script(&format!("full{round}"), "exit 0"), None).is_err()
    });
    let refused = refused.count();
    assert!(refused > 0, "the disk was never full");
    std::os::unix::fs::symlink("nowhere", &go).ok();
    std::fs::remove_file(&fill).unwrap();
    let _ = std::fs::remove_file(&go);
    std::fs::write(&go, "").unwrap();
    let ended = site.end_of(&run);
    assert_eq!((ended.claim(), ended.ending().map(|ending| ending.exit_code())), (1, Some(5)), "{ended:?}");
    assert!(!worker.has_ended() && !other.has_ended());
    let next = site.submit(&site.script("next", "exit 0"));
    assert_eq!(site.end_of(&next).status(), Status::Succeeded);
    stop(&mut worker);
    stop(&mut other);
    site.assert_settled("after the full disk");
}

/// Invariant 12. The end comes while nothing can be written.
#[test]
fn an_end_on_a_full_disk_is_noted_later() {
    let Some(site) = small_disk("3m") else { return };
    let _unmount = Unmount(site.path(""));
    let run = site.submit(&site.script("a", "echo $$ > started; exec sleep 300"));
    let mut worker = site.worker(&[]);
    let pid = number_in(&site.dir().join("started"));
    until("the process was noted", || site.run(&run).process().is_some_and(|one| one.command.is_some()));
    let fill = fill(&site);
    let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
    // There may be room in the log of the database for this one end.
    until("it was told", || {
        let told = worker.try_told().unwrap();
        told["event"] == "trouble" || told["event"] == "ended"
    });
    std::fs::remove_file(&fill).unwrap();
    let ended = site.end_of(&run);
    assert_eq!(
        (ended.reason(), ended.ending().map(|ending| ending.exit_code())),
        (Some(Reason::Signal), Some(137))
    );
    stop(&mut worker);
    site.assert_settled("after the full disk");
}

/// A run whose log cannot be made says so.
#[test]
fn a_run_without_room_for_its_log_fails_in_words() {
    let site = Site::new();
    std::fs::write(site.store().join("runs"), "in the way").unwrap();
    let run = site.submit(&site.script("a", "echo ran >> record"));
    site.drain("1");
    let ended = site.run(&run);
    assert_eq!(ended.reason(), Some(Reason::CommandNotStarted));
    assert!(ended.message().unwrap().contains("cannot write to"));
    assert!(site.record().is_empty());
}

/// Requirements 83, 88, 91. Whatever call to the disk fails, every run is executed once and its end is noted.
#[test]
fn a_worker_with_faults_executes_every_run_once() {
    for (calls, error) in [
        ("pwrite64", "ENOSPC"),
        ("pwrite64", "EIO"),
        ("fdatasync", "EIO"),
        ("flock", "ENOLCK"),
        ("pread64", "EIO"),
    ] {
        for step in [1, 5, 9, 14, 20, 27, 40] {
            let site = Site::new();
            let noted = "echo $LOCKKEEPER_RUN_ID >> record; exit 0";
            let runs: Vec<_> = (0..4).map(|n| site.submit(&site.script(&format!("r{n}"), noted))).collect();
            let about = format!("{error} at call {step} of {calls}");
            let call = site.calls_of_the_loader(calls) + step;
            let (trace, inject) =
                (format!("trace={calls}"), format!("inject={calls}:error={error}:when={call}"));
            let strace =
                ["strace", "-f", "-b", "execve", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject];
            let mut worker = site.worker_under(&strace, &["--drain"]);
            // One that failed at its very start has claimed nothing.
            let code = worker.wait();
            assert!(matches!(code, Some(0 | 1 | 69)), "{about}: {code:?}");
            site.drain("1");
            let mut record = site.record();
            record.sort();
            let mut expected: Vec<String> = runs.iter().map(ToString::to_string).collect();
            expected.sort();
            assert_eq!(record, expected, "{about}");
            for id in &runs {
                let run = site.run(id);
                assert_eq!((run.status(), run.attempt()), (Status::Succeeded, 1), "{about}: {run:?}");
            }
            site.assert_settled(&about);
        }
    }
}
