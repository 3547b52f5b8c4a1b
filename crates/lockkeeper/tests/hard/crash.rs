//! Kill -9 at every step, of wrappers, commands and whole trees.

use std::time::Instant;

use lockkeeper_testing::Finished;

use crate::site::{Site, assert_mostly_at_once, end, lives};

/// Calls that change something, or stand between two that do.
const STEPS: [&str; 14] = [
    "pwrite64",
    "write",
    "ftruncate",
    "flock",
    "fcntl",
    "open,openat",
    "mkdir,mkdirat",
    "mknod,mknodat",
    "unlink,unlinkat",
    "rename,renameat,renameat2",
    "fsync,fdatasync",
    "clone,clone3,vfork",
    "poll,ppoll",
    "close",
];

/// Runs commands that strace kills at the first, second, ... call of each kind until one survives, and has
/// `check` look at the store after each. `prepare` comes before each. Returns how many were killed.
fn kill_at_every_step(
    site: &Site,
    steps: &[&str],
    prepare: impl Fn() -> Vec<String>,
    check: impl Fn(&str, Finished),
) -> usize {
    let mut killed = 0;
    for calls in steps {
        for step in 1.. {
            let args = prepare();
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            let about = format!("{} killed at call {step} of {calls}", args.join(" "));
            let trace = format!("trace={calls}");
            let inject = format!("inject={calls}:signal=KILL:when={step}");
            let strace = ["strace", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject];
            let answer = Finished::of(&mut site.command_under(&strace, &args));
            let survived = answer.exit_code().is_some();
            if survived {
                assert_eq!(answer.exit_code(), Some(0), "{about}: {answer:?}");
            }
            check(&about, answer);
            if survived {
                break;
            }
            killed += 1;
        }
    }
    assert!(killed > steps.len(), "strace did not kill: {killed}");
    killed
}

/// The next asker gets it, with a token above all that anybody saw.
fn next_gets_it(site: &Site, about: &str, seen: &mut u64, answer: &Finished) {
    let printed = answer.stdout().trim().parse::<u64>().ok();
    if let Some(token) = printed {
        assert!(token > *seen, "{about}: token {token} after {seen}");
        *seen = token;
    }
    let pid = std::process::id().to_string();
    let reply = site.json(&["acquire", "db", "--wait=60s", "--quiet", "--pid", &pid]);
    let token = reply["lease"]["token"].as_u64().unwrap();
    assert!(token > *seen, "{about}: token {token} after {seen}");
    *seen = token;
    assert_eq!(
        site.run(&["release", reply["lease"]["id"].as_str().unwrap()]).exit_code(),
        Some(0),
        "{about}"
    );
}

fn strings(args: &[&str]) -> Vec<String> {
    args.iter().map(|arg| (*arg).to_owned()).collect()
}

const EXEC: [&str; 6] = ["exec", "db", "--", "sh", "-c", "echo $LOCKKEEPER_TOKEN"];

/// Invariants 2, 4, 6.
#[test]
fn an_exec_killed_at_any_step_leaves_the_lock_to_the_next() {
    let site = Site::new();
    let seen = std::cell::Cell::new(site.pass_through("db"));
    let killed = kill_at_every_step(
        &site,
        &STEPS,
        || strings(&EXEC),
        |about, answer| {
            let mut token = seen.get();
            next_gets_it(&site, about, &mut token, &answer);
            seen.set(token);
        },
    );
    eprintln!("killed at {killed} steps");
    site.assert_clean("after all kills");
}

/// Invariants 2, 12. The store is made anew for each kill, so that its making is cut short everywhere.
#[test]
fn a_store_whose_making_was_killed_at_any_step_can_be_used() {
    let site = Site::new();
    let killed = kill_at_every_step(
        &site,
        &["pwrite64", "ftruncate", "mkdir,mkdirat", "unlink,unlinkat", "fsync,fdatasync", "flock"],
        || {
            let _ = std::fs::remove_dir_all(site.store());
            strings(&EXEC)
        },
        |about, answer| {
            next_gets_it(&site, about, &mut 0, &answer);
            site.assert_clean(about);
        },
    );
    eprintln!("killed at {killed} steps");
}

/// Invariants 1, 2, 4. Release hands on to a waiter in the same transaction, or not at all.
#[test]
fn a_release_killed_at_any_step_loses_neither_lease_nor_waiter() {
    let site = Site::new();
    let seen = std::cell::Cell::new(site.pass_through("db"));
    let waiter = std::cell::RefCell::new(None);
    let held = std::cell::RefCell::new(String::new());
    kill_at_every_step(
        &site,
        &["pwrite64", "flock", "write"],
        || {
            let (lease, token) = site.acquire("db");
            assert!(token > seen.get());
            let started = site.start(&EXEC);
            site.until_waiting(1);
            *waiter.borrow_mut() = Some(started);
            held.replace(lease.clone());
            strings(&["release", &lease])
        },
        |about, _| {
            let lease = held.borrow().clone();
            if site.leases().iter().any(|one| one["id"] == lease.as_str()) {
                // Nothing happened yet: it is still held, and can be released again.
                assert_eq!(site.run(&["release", &lease]).exit_code(), Some(0), "{about}");
            }
            let mut waiter = waiter.borrow_mut().take().unwrap();
            let token: u64 = waiter.line().parse().unwrap();
            assert!(token > seen.get(), "{about}");
            seen.set(token);
            assert!(waiter.end().success(), "{about}");
        },
    );
    site.assert_clean("after all kills");
}

/// Invariant 10. The wrapper's death frees nothing while anything of its command runs.
#[test]
fn a_killed_wrapper_leaves_the_lock_to_its_command_until_the_last_process_is_gone() {
    let site = Site::new();
    let script = "(setsid sh -c 'echo $$; exec sleep 600' >&1 &); sh -c 'echo $$; exec sleep 600' & echo $$; exec sleep 600";
    let mut wrapper = site.start(&["exec", "db", "--", "sh", "-c", script]);
    let tree: Vec<u32> = (0..3).map(|_| wrapper.number()).collect();
    let mut waiter = site.start(&["exec", "db", "--quiet", "--", "echo", "entered"]);
    site.until_waiting(1);
    wrapper.kill();
    for pid in tree {
        assert!(lives(pid));
        let refusal = site.run(&["acquire", "db", "--owner", "test:1"]);
        assert_eq!(refusal.exit_code(), Some(75), "{refusal:?}");
        assert_eq!(site.leases().len(), 1);
        assert!(!waiter.has_ended());
        end(pid);
    }
    assert_eq!(waiter.line(), "entered");
    assert!(waiter.end().success());
    site.assert_clean("after the wrapper's death");
}

/// Invariant 4.
#[test]
fn the_next_in_line_enters_at_once_when_a_holder_is_killed_with_everything() {
    let site = Site::new();
    let rounds = (0..10).map(|_| {
        let mut holder = site.start(&["exec", "db", "--", "sh", "-c", "echo $$; exec sleep 600"]);
        let command = holder.number();
        let mut waiter = site.start(&["exec", "db", "--quiet", "--", "echo", "entered"]);
        site.until_waiting(1);
        holder.kill();
        end(command);
        let since = Instant::now();
        assert_eq!(waiter.line(), "entered");
        let waited = since.elapsed();
        assert!(waiter.end().success());
        waited
    });
    assert_mostly_at_once(rounds.collect());
    site.assert_clean("after the kills");
}

/// Invariant 3. A stopped process lives.
#[test]
fn a_stopped_holder_is_never_succeeded() {
    let site = Site::new();
    let script = "echo $$; exec sleep 600";
    let mut holder = site.start(&["exec", "db", "--ttl", "1s", "--", "sh", "-c", script]);
    let command = holder.number();
    holder.signal(rustix::process::Signal::STOP);
    // Longer than its TTL, which it cannot renew now.
    let refusal = site.run(&["acquire", "db", "--wait=2s", "--quiet", "--owner", "test:1"]);
    assert_eq!(refusal.exit_code(), Some(75), "{refusal:?}");
    assert_eq!(site.leases()[0]["state"], "alive");
    holder.signal(rustix::process::Signal::CONT);
    end(command);
    assert_eq!(holder.end().code(), Some(137));
}
