//! Calls that fail: no space, bad disk, no descriptors. What fails says so, leaves nothing half done and is forgotten
//! by the next command.

use lockkeeper_testing::Finished;

use crate::site::{Site, assert_failed};

/// What is read from the log grows with every command, so that the steps of reading have no end of their own.
const MOST_STEPS: usize = 60;

/// Runs a command whose first, second, ... call of a kind fails until one run had none that failed.
fn fail_at_every_step(site: &Site, calls: &str, error: &str, args: &[&str], check: impl Fn(&str, &Finished)) {
    let log = site.folder().join("strace.log");
    let first = site.calls_of_the_loader(calls) + 1;
    for step in first..first + MOST_STEPS {
        let about = format!("{} with {error} at call {step} of {calls}", args.join(" "));
        let trace = format!("trace={calls}");
        let inject = format!("inject={calls}:error={error}:when={step}");
        let strace = ["strace", "-qq", "-o", log.to_str().unwrap(), "-e", &trace, "-e", &inject];
        let answer = Finished::of(&mut site.command_under(&strace, args));
        check(&about, &answer);
        if !std::fs::read_to_string(&log).unwrap().contains("(INJECTED)") {
            assert_eq!(answer.exit_code(), Some(0), "{about}: {answer:?}");
            assert!(step > first, "nothing ever failed: {about}");
            return;
        }
    }
}

const FAULTS: [(&str, &str); 5] = [
    ("pwrite64", "ENOSPC"),
    ("pwrite64", "EIO"),
    ("pread64", "EIO"),
    ("ftruncate", "ENOSPC"),
    ("flock", "ENOLCK"),
];

/// Invariants 6, 12. The lease is there exactly when the command said so.
#[test]
fn an_acquire_that_fails_has_taken_nothing() {
    let site = Site::new();
    site.pass_through("db");
    let pid = std::process::id().to_string();
    for (calls, error) in FAULTS {
        fail_at_every_step(&site, calls, error, &["acquire", "db", "--pid", &pid], |about, answer| {
            let leases = site.leases();
            if answer.exit_code() == Some(0) {
                assert_eq!(leases.len(), 1, "{about}: {answer:?}");
                let lease = leases[0]["id"].as_str().unwrap().to_owned();
                assert_eq!(site.run(&["release", &lease]).exit_code(), Some(0), "{about}");
            } else {
                assert_failed(answer, &[1, 69], about);
                assert!(leases.is_empty(), "{about}: {answer:?} {leases:?}");
            }
            site.pass_through("db");
        });
    }
    site.assert_clean("after all faults");
}

/// Invariants 2, 6, 12. A store that could not be made whole is made by the next command.
#[test]
fn a_first_use_that_fails_does_not_spoil_the_store() {
    let site = Site::new();
    let pid = std::process::id().to_string();
    for (calls, error) in
        [("pwrite64", "ENOSPC"), ("pwrite64", "EIO"), ("mkdir,mkdirat", "EACCES"), ("fsync,fdatasync", "EIO")]
    {
        let args = ["acquire", "db", "--pid", &pid];
        fail_at_every_step(&site, calls, error, &args, |about, answer| {
            if answer.exit_code() != Some(0) {
                assert_failed(answer, &[1, 69], about);
                site.pass_through("db");
            }
            site.pass_through("other");
            std::fs::remove_dir_all(site.store()).unwrap();
        });
    }
}

/// Invariants 4, 6. Whatever fails around it, the command ran at most once, and the lock is free afterwards.
#[test]
fn an_exec_with_faults_runs_its_command_at_most_once_and_frees_the_lock() {
    let site = Site::new();
    site.pass_through("db");
    // Only a command that stays for a moment gets a waker, which is made and unlinked.
    let short = ["exec", "db", "--", "echo", "ran"];
    let longer = ["exec", "db", "--", "sh", "-c", "sleep 0.1; echo ran"];
    for (calls, error, command) in [
        ("pwrite64", "ENOSPC", short.as_slice()),
        ("flock", "EIO", short.as_slice()),
        ("mknod,mknodat", "ENOSPC", longer.as_slice()),
        ("unlink", "EROFS", longer.as_slice()),
    ] {
        fail_at_every_step(&site, calls, error, command, |about, answer| {
            let ran = answer.stdout().lines().count();
            assert!(ran <= 1, "{about}: {answer:?}");
            match answer.exit_code() {
                Some(0) => assert_eq!(ran, 1, "{about}: {answer:?}"),
                _ => {
                    assert_failed(answer, &[1, 69], about);
                    assert_eq!(ran, 0, "{about}: {answer:?}");
                }
            }
            site.pass_through("db");
        });
    }
    site.assert_clean("after all faults");
}

/// Invariant 6.
#[test]
fn a_process_without_free_descriptors_fails_in_one_sentence() {
    let site = Site::new();
    site.pass_through("db");
    fail_at_every_step(&site, "open,openat", "EMFILE", &["acquire", "db", "--ttl", "1h"], |about, answer| {
        let leases = site.leases();
        match answer.exit_code() {
            Some(0) => {
                // A process that could not read who started it has to show its token.
                let (lease, token) = (leases[0]["id"].as_str().unwrap(), leases[0]["token"].to_string());
                assert!(site.run(&["release", lease, "--token", &token]).succeeded(), "{about}");
            }
            _ => {
                assert_failed(answer, &[1, 69], about);
                assert!(leases.is_empty(), "{about}: {answer:?} {leases:?}");
            }
        }
    });
    site.assert_clean("after all faults");
}

/// Invariants 6, 7. A waiter whose wait fails leaves the line.
#[test]
fn a_wait_that_fails_gives_its_place_back() {
    let site = Site::new();
    let (lease, _) = site.acquire("db");
    for (calls, error) in [("mknod,mknodat", "ENOSPC"), ("poll,ppoll", "ENOMEM")] {
        let inject = format!("inject={calls}:error={error}:when=1+");
        let trace = format!("trace={calls}");
        let strace = ["strace", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject];
        let answer = Finished::of(&mut site.command_under(&strace, &["exec", "db", "--quiet", "--", "true"]));
        assert_failed(&answer, &[1, 69], calls);
        assert!(site.tickets().is_empty());
    }
    assert_eq!(site.run(&["release", &lease]).exit_code(), Some(0));
    site.assert_clean("after the failed waits");
}
