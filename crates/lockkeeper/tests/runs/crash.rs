//! Kill -9 at every step of a submit, and what is on the disk when it answers.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output};

use lockkeeper_core::run::Status;
use lockkeeper_engine::runs::Runs;

/// Calls that change something, or stand between two that do.
const STEPS: [&str; 8] = [
    "pwrite64",
    "write",
    "ftruncate",
    "fcntl",
    "flock",
    "mkdir,mkdirat",
    "unlink,unlinkat",
    "fsync,fdatasync",
];

fn submit(store: &Path, id: &str, strace: &[&str]) -> Output {
    let mut command = Command::new("strace");
    command.args(strace).arg(env!("CARGO_BIN_EXE_lockkeeper")).arg("--dir").arg(store);
    command.args(["submit", "--id", id, "--", "true"]).current_dir("/");
    command.output().expect("these tests need strace(1)")
}

/// The request is there with its run and its event, or nothing of it is.
fn check(store: &Path, id: &str, answered: bool, about: &str) {
    let runs = match Runs::open_existing(store).unwrap_or_else(|error| panic!("{about}: {error}")) {
        Some(runs) => runs,
        None => {
            assert!(!answered, "{about}");
            return;
        }
    };
    match runs.find(id) {
        Ok(run) => {
            let view = runs.show(&run.id).unwrap();
            assert_eq!((run.status(), view.events.len()), (Status::Queued, 1), "{about}");
            assert_eq!(view.request.latest, Some(run.id), "{about}");
        }
        Err(_) => assert!(!answered, "{about}: it was answered, and is not there"),
    }
    let other = format!("{id}-next");
    let next = super::world::request(&other);
    runs.submit(&next, None).unwrap_or_else(|error| panic!("{about}: {error}"));
}

fn kill_at_every_step(new_store: bool) -> usize {
    let folder = tempfile::tempdir().unwrap();
    let mut killed = 0;
    for calls in STEPS {
        for step in 1.. {
            let store = if new_store {
                folder.path().join(format!("{}-{step}", &calls[..4]))
            } else {
                folder.path().join("store")
            };
            let id = format!("{}-{step}", &calls[..4]);
            let about = format!("killed at call {step} of {calls}");
            let (trace, inject) =
                (format!("trace={calls}"), format!("inject={calls}:signal=KILL:when={step}"));
            let output = submit(&store, &id, &["-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject]);
            let survived = output.status.signal().is_none();
            assert!(!survived || output.status.success(), "{about}: {output:?}");
            let answered = String::from_utf8(output.stdout).unwrap().starts_with(&format!("{id}\t"));
            assert!(!survived || answered, "{about}");
            check(&store, &id, answered, &about);
            if survived {
                break;
            }
            killed += 1;
        }
    }
    assert!(killed > STEPS.len(), "strace did not kill: {killed}");
    killed
}

/// Requirements 91, 92. Invariants 6, 12.
#[test]
fn a_submit_killed_at_any_step_is_there_whole_or_not_at_all() {
    eprintln!("killed at {} steps", kill_at_every_step(false));
}

/// Invariant 12. The store is made anew for each kill.
#[test]
fn a_store_of_runs_whose_making_was_killed_can_be_used() {
    eprintln!("killed at {} steps", kill_at_every_step(true));
}

/// Requirement 92. What survives a power cut is what was forced to the disk before the answer.
#[test]
fn a_submit_answers_only_when_the_disk_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let (store, trace) = (folder.path().join("store"), folder.path().join("trace"));
    Runs::open(&store).unwrap();
    let keep_open = Runs::open(&store).unwrap();
    let calls = "trace=pwrite64,fdatasync,fsync,write";
    let output = submit(&store, "a", &["-qq", "-y", "-o", trace.to_str().unwrap(), "-e", calls]);
    assert!(output.status.success(), "{output:?}");
    drop(keep_open);
    let text = std::fs::read_to_string(&trace).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let last =
        |what: &str| lines.iter().rposition(|line| line.contains(what) && line.contains("runs.db-wal"));
    let written = last("pwrite64(").unwrap();
    let forced = last("fdatasync(").unwrap();
    let answered = lines.iter().position(|line| line.starts_with("write(1")).unwrap();
    assert!(written < forced && forced < answered, "{text}");
}
