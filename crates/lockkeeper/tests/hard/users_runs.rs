//! Runs of several users in one state folder: nobody writes the end of a run whose command it may not end.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::time::{Duration, Instant};

use lockkeeper_testing::{Finished, Started, is_root, processes, skip, until};
use serde_json::Value;

use super::users::{GROUP, Place, below};

const ONE: u32 = 65_531;
const TWO: u32 = 65_532;
const LONG: &str = "trap '' TERM; echo $$ > started; while :; do sleep 0.05; done";

/// A repository that its group shares.
fn shared() -> Place {
    let place = Place::new(ONE);
    fs::set_permissions(place.work(), fs::Permissions::from_mode(0o2775)).unwrap();
    let mut git = place.program(ONE, Path::new("git"));
    assert!(git.args(["init", "--quiet", "--shared=group"]).output().unwrap().status.success());
    place
}

fn run(place: &Place, user: u32, args: &[&str]) -> Finished {
    Finished::of(place.lockkeeper(user, args).env("LOCKKEEPER_GRACE", "100ms"))
}

fn start(place: &Place, user: u32, args: &[&str]) -> Started {
    Started::of(place.lockkeeper(user, args).env("LOCKKEEPER_GRACE", "100ms"))
}

/// Submits a command and returns the id of its run.
fn submit(place: &Place, user: u32, options: &[&str], script: &str) -> String {
    let args = [&["--json", "submit"], options, &["--", "sh", "-c", script]].concat();
    run(place, user, &args).code(0).json()["run_id"].as_str().unwrap().to_owned()
}

fn shown(place: &Place, user: u32, id: &str) -> Value {
    run(place, user, &["--json", "run", "show", id]).code(0).json()["run"].take()
}

/// Whether the name `db` is held.
fn is_held(place: &Place) -> bool {
    run(place, 0, &["exec", "db", "--no-wait", "--", "true"]).exit_code() != Some(0)
}

/// The first user's worker was killed and its command lives.
fn abandoned(place: &Place, first: u32, options: &[&str]) -> (String, u32) {
    let id = submit(place, first, &[&["--lock", "db"], options].concat(), LONG);
    let mut worker = start(place, first, &["work"]);
    let pid = processes::pid_in(&place.work().join("started"));
    until("its process is recorded", || shown(place, first, &id)["pid"].is_u64());
    worker.kill();
    (id, pid)
}

#[test]
fn what_executors_make_is_for_the_group_that_shares_a_repository() {
    if !is_root() {
        return skip("root, to become other users");
    }
    let place = shared();
    for user in [ONE, TWO, 0, TWO] {
        submit(&place, user, &[], "echo $PPID");
        run(&place, user, &["work", "--drain"]).code(0);
        submit(&place, user, &[], "echo $PPID");
        run(&place, user, &["queue", "run-next"]).code(0);
    }
    let state = place.work().join(".git/lockkeeper");
    for path in below(&state) {
        let facts = path.symlink_metadata().unwrap();
        let wanted = if facts.is_dir() { 0o2770 } else { 0o660 };
        assert_eq!((facts.gid(), facts.mode() & 0o7777), (GROUP, wanted), "{}", path.display());
    }
    // What an older version has left is named.
    chown(state.join("executors.native"), Some(ONE), None).unwrap();
    fs::set_permissions(state.join("executors.native"), fs::Permissions::from_mode(0o600)).unwrap();
    run(&place, TWO, &["work", "--drain"]).code(69).says("executors.native");
}

#[test]
fn the_run_of_another_user_is_neither_canceled_nor_timed_out_while_its_command_lives() {
    if !is_root() {
        return skip("root, to become other users");
    }
    for (first, second) in [(ONE, TWO), (0, ONE)] {
        let place = shared();
        let begun = Instant::now();
        let (id, pid) = abandoned(&place, first, &["--timeout", "2s"]);
        until("its time is up", || begun.elapsed() > Duration::from_secs(3));
        let short = id.rsplit('-').next().unwrap();
        let drained = run(&place, second, &["work", "--drain"]).code(1);
        drained.says(&format!("{short} (of user {first})")).says("as that user or as root");
        let told = format!("belongs to user {first}");
        run(&place, second, &["run", "cancel", &id]).code(0).says(&told).says("as that user or root ends it");
        run(&place, second, &["work", "--drain"]);
        run(&place, second, &["runs"]).code(0).prints(&told);
        run(&place, second, &["doctor", "--full"]).prints("belong to another user");
        let found = shown(&place, second, &id);
        assert_eq!(found["status"], "cancelling", "{found}");
        assert_eq!(found["blocked"]["because"], "out_of_reach", "{found}");
        assert_eq!(found["blocked"]["user"], first, "{found}");
        assert!(processes::is_alive(pid) && is_held(&place));
        // Who may end it does.
        run(&place, first, &["run", "cancel", &id]);
        run(&place, first, &["run", "wait", &id]);
        assert!(!processes::is_alive(pid) && !is_held(&place));
        assert_eq!(shown(&place, second, &id)["status"], "canceled");
    }
}

#[test]
fn a_silent_worker_of_another_user_is_not_replaced_while_its_command_lives() {
    if !is_root() {
        return skip("root, to become other users");
    }
    for (first, second) in [(ONE, TWO), (0, ONE)] {
        let place = shared();
        let id = submit(&place, first, &["--lock", "db", "--retries", "1"], LONG);
        let frozen = start(&place, first, &["work", "--heartbeat", "50ms"]);
        let pid = processes::pid_in(&place.work().join("started"));
        until("its process is recorded", || shown(&place, first, &id)["pid"].is_u64());
        place.freeze(&frozen);
        let mut worker = start(&place, second, &["work", "--heartbeat", "50ms"]);
        // It looks at the heartbeat of the other all the time.
        for _ in 0..10 {
            let short = submit(&place, second, &[], "sleep 0.1");
            run(&place, second, &["run", "wait", &short]).code(0);
        }
        let found = shown(&place, second, &id);
        assert_eq!((&found["status"], &found["attempt"]), (&"running".into(), &1.into()), "{found}");
        assert!(processes::is_alive(pid) && is_held(&place));
        worker.kill();
        drop(frozen);
        processes::kill(pid);
    }
}

/// The command becomes another user, as with `sudo`: its own worker cannot end it either.
#[test]
fn a_command_that_became_another_user_keeps_its_run_until_it_is_gone() {
    if !is_root() {
        return skip("root, to make a program that changes its user");
    }
    let place = shared();
    let become_root = place.work().join("become");
    fs::copy(which("setpriv"), &become_root).unwrap();
    fs::set_permissions(&become_root, fs::Permissions::from_mode(0o4755)).unwrap();
    let probe = place.program(ONE, &become_root).args(["--reuid", "0", "id", "-ru"]).output().unwrap();
    if probe.stdout != b"0\n" {
        return skip("a folder for temporary files that is not mounted with nosuid");
    }
    let script = "exec ./become --reuid 0 sh -c 'echo $$ > started; exec sleep 300'";
    let id = submit(&place, ONE, &["--lock", "db", "--timeout", "1s"], script);
    let mut worker = start(&place, ONE, &["--json", "work"]);
    let pid = processes::pid_in(&place.work().join("started"));
    worker.until_stdout(&format!("{id}: cannot end process {pid}"));
    assert_eq!(shown(&place, ONE, &id)["status"], "running");
    assert!(processes::is_alive(pid) && is_held(&place));
    processes::kill(pid);
    run(&place, ONE, &["run", "wait", &id]);
    assert_eq!(shown(&place, ONE, &id)["status"], "timedOut");
    until("it is free", || !is_held(&place));
}

/// Another user's holder that is stopped can only be waited for, as long as the waiter wants to.
#[test]
fn a_wait_for_the_stopped_holder_of_another_user_ends_when_it_should() {
    if !is_root() {
        return skip("root, to become other users");
    }
    let place = shared();
    let held =
        ["exec", "db", "--ttl", "300ms", "--contract", "kill", "--", "sh", "-c", "echo $$; exec sleep 300"];
    let mut holder = start(&place, ONE, &held);
    let command = holder.number();
    place.freeze(&holder);
    until("its TTL has ended", || run(&place, TWO, &["why", "db"]).stdout().contains("nobody here can stop"));
    let mut waiter = place.lockkeeper(TWO, &["exec", "db", "--wait=1s", "--", "true"]);
    Finished::of(waiter.env("LOCKKEEPER_GRACE", "1h")).code(75);
    assert!(processes::is_alive(command));
    drop(holder);
    processes::kill(command);
}

fn which(program: &str) -> std::path::PathBuf {
    let folders = std::env::var_os("PATH").unwrap();
    std::env::split_paths(&folders).map(|folder| folder.join(program)).find(|path| path.is_file()).unwrap()
}
