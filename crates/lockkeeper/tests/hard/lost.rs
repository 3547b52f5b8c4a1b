//! Leases that are taken away while work goes on under them.

use std::sync::mpsc;
use std::time::Duration;

use lockkeeper::Keeper;

use crate::site::{PATIENCE, Site, Started, lives, until};

/// Invariant 10.
#[test]
fn a_broken_lease_stops_the_whole_tree_and_says_so() {
    let site = Site::new();
    let script = "(setsid sh -c 'trap \"\" TERM; echo $$; while :; do sleep 600 & wait; done' &)
        sh -c 'echo $$; exec sleep 600' & echo $$; wait";
    let mut command = site.command(&["exec", "db", "--", "sh", "-c", script]);
    let mut holder = Started::of(command.env("LOCKKEEPER_GRACE", "200ms"));
    let tree: Vec<u32> = (0..3).map(|_| holder.number()).collect();
    let lease = site.leases()[0]["id"].as_str().unwrap().to_owned();
    let broken = site.run(&["locks", "break", &lease, "--yes"]);
    assert_eq!(broken.exit_code(), Some(0), "{broken:?}");
    assert!(!broken.stdout().contains("by force"), "{broken:?}");
    holder.wait().code(76).says("was lost").says("hint: ");
    for pid in tree {
        assert!(!lives(pid), "{pid} still runs");
    }
    site.assert_clean("after the break");
}

/// Invariant 10. The next holder does not begin before the work of the last one has been stopped.
#[test]
fn a_waiter_gets_a_broken_lease_only_after_the_work_was_stopped() {
    let site = Site::new();
    let done = site.folder().join("stopped");
    let script =
        format!("trap 'sleep 0.3; echo > {}; exit 0' TERM; echo $$; sleep 600 & wait", done.display());
    let mut holder = site.start(&["exec", "db", "--", "sh", "-c", &script]);
    holder.number();
    let test = format!("test -e {} && echo after || echo before", done.display());
    let mut waiter = site.start(&["exec", "db", "--quiet", "--", "sh", "-c", &test]);
    site.until_waiting(1);
    let lease = site.leases()[0]["id"].as_str().unwrap().to_owned();
    assert_eq!(site.run(&["locks", "break", &lease, "--yes"]).exit_code(), Some(0));
    assert_eq!(waiter.line(), "after");
    assert_eq!(holder.end().code(), Some(76));
}

/// Invariant 10. The grace of the holder counts, not that of the process that takes the lease away.
#[test]
fn a_lease_passes_on_only_when_the_command_that_ignores_term_was_killed() {
    let site = Site::new();
    for how in ["break", "break while another one breaks it", "release"] {
        let held = [
            "exec",
            "db",
            "--owner",
            "worker:1",
            "--",
            "sh",
            "-c",
            "trap '' TERM; echo $$; sleep 600 & wait; wait",
        ];
        let mut holder = Started::of(site.command(&held).env("LOCKKEEPER_GRACE", "1s"));
        let command = holder.number();
        let test = format!("kill -0 {command} 2>/dev/null && echo beside it || echo after");
        let mut waiter = site.start(&["exec", "db", "--quiet", "--", "sh", "-c", &test]);
        site.until_waiting(1);
        let lease = site.leases()[0]["id"].as_str().unwrap().to_owned();
        let hasty = |args: &[&str]| Started::of(site.command(args).env("LOCKKEEPER_GRACE", "1ms"));
        let mut breakers = match how {
            "release" => vec![hasty(&["release", &lease, "--owner", "worker:1"])],
            "break" => vec![hasty(&["locks", "break", &lease, "--yes"])],
            _ => (0..2).map(|_| hasty(&["locks", "break", &lease, "--yes"])).collect(),
        };
        assert_eq!(waiter.line(), "after", "{how}");
        assert_eq!(holder.end().code(), Some(76), "{how}");
        for breaker in &mut breakers {
            // The second one may find that nobody holds it any more.
            assert!(matches!(breaker.end().code(), Some(0 | 75)), "{how}");
        }
        assert_eq!(waiter.end().code(), Some(0));
    }
}

/// Invariants 3 and 10. Only a confirmed force takes a lease away from a command whose `exec` was killed.
#[test]
fn a_release_waits_for_the_command_of_a_killed_exec() {
    let site = Site::new();
    let mut holder =
        site.start(&["exec", "db", "--owner", "worker:1", "--", "sh", "-c", "echo $$; exec sleep 600"]);
    let command = holder.number();
    holder.signal(rustix::process::Signal::KILL);
    holder.end();
    let lease = site.leases()[0]["id"].as_str().unwrap().to_owned();
    let mut release = site.command(&["release", &lease, "--owner", "worker:1"]);
    let refused = lockkeeper_testing::Finished::of(release.env("LOCKKEEPER_GRACE", "1ms")).code(75);
    let refused = refused.says(&format!("process {command} (sleep 600) still works under it"));
    refused.says(&format!("kill {command}")).says(&format!("locks break {lease} --yes"));
    assert!(lives(command) && site.run(&["acquire", "db", "--ttl", "1m"]).exit_code() == Some(75));
    lockkeeper_testing::processes::signal(command, rustix::process::Signal::TERM);
    site.run(&["exec", "db", "--", "true"]).code(0);
}

/// Invariant 10. A holder that cannot hear is evicted after its time, and told when it can hear again.
#[test]
fn a_stopped_holder_hears_of_its_loss_when_it_goes_on() {
    let site = Site::new();
    let mut holder = site.start(&["exec", "db", "--", "sh", "-c", "echo $$; exec sleep 600"]);
    let command = holder.number();
    holder.signal(rustix::process::Signal::STOP);
    until("the holder is stopped", || {
        let status = std::fs::read_to_string(format!("/proc/{}/stat", holder.pid())).unwrap();
        status.contains(") T ")
    });
    let lease = site.leases()[0]["id"].as_str().unwrap().to_owned();
    let mut broken = site.command(&["locks", "break", &lease, "--yes"]);
    let broken = lockkeeper_testing::Finished::of(broken.env("LOCKKEEPER_GRACE", "100ms"));
    assert!(broken.exit_code() == Some(0) && broken.stdout().contains("by force"), "{broken:?}");
    assert!(lives(command));
    holder.signal(rustix::process::Signal::CONT);
    assert_eq!(holder.end().code(), Some(76));
    assert!(!lives(command));
}

/// Invariant 10.
#[test]
fn a_guard_is_told_that_its_lease_was_broken() {
    let site = Site::new();
    let keeper = Keeper::open(site.store()).unwrap();
    let guard = keeper.lock("db").try_acquire().unwrap();
    let (tell, told) = mpsc::channel();
    guard.on_lost(move |why| tell.send(why.to_string()).unwrap()).unwrap();
    assert!(!guard.is_lost().unwrap());
    let id = guard.id();
    let breaker = std::thread::spawn({
        let mut command = site.command(&["locks", "break", &id, "--yes"]);
        command.env("LOCKKEEPER_GRACE", "30s");
        move || command.output().unwrap().status
    });
    assert!(guard.wait_until_lost(PATIENCE).unwrap());
    assert!(told.recv_timeout(PATIENCE).unwrap().contains("revoked"));
    assert!(guard.is_lost().unwrap());
    // It holds until it lets go, so that nobody comes in while it clears up.
    assert!(keeper.lock("db").try_acquire().is_err());
    drop(guard);
    assert!(breaker.join().unwrap().success());
    assert!(keeper.lock("db").try_acquire().is_ok());
}

/// Invariant 10. Under a contract that lets go, a holder that was frozen too long finds out.
#[test]
fn a_guard_whose_time_ran_out_is_told() {
    let site = Site::new();
    let mut holder = site.start(&[
        "exec",
        "db",
        "--ttl",
        "600ms",
        "--contract",
        "lease",
        "--",
        "sh",
        "-c",
        "echo $$; exec sleep 600",
    ]);
    let command = holder.number();
    holder.signal(rustix::process::Signal::STOP);
    let next = site.run(&["acquire", "db", "--wait=50s", "--quiet", "--owner", "test:2"]);
    assert_eq!(next.exit_code(), Some(0), "{next:?}");
    assert!(lives(command));
    holder.signal(rustix::process::Signal::CONT);
    assert_eq!(holder.end().code(), Some(76));
    assert!(!lives(command));
    assert!(Duration::from_millis(600) < PATIENCE);
}
