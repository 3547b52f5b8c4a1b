//! Waiting in line: no polling, exact hand-off, priorities, tickets that outlive commands, refused deadlocks.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::site::{Site, Started, assert_mostly_at_once, end, until};

fn waiter(site: &Site, args: &[&str], word: &str) -> Started {
    let line = [&["exec", "db", "--quiet"], args, &["--", "echo", word]].concat();
    site.start(&line)
}

fn release(site: &Site, lease: &str) {
    assert_eq!(site.run(&["release", lease]).exit_code(), Some(0));
}

/// How often a process was off the processor by its own will: every call that sleeps counts.
fn switches(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
    line.trim().parse().unwrap()
}

/// Clock ticks of processor time, and the state.
fn work(pid: u32) -> (u64, String) {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    (fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap(), fields[0].to_owned())
}

/// Waits for half a second in which a process slept. One that polls never sleeps that long; one that waits does, however
/// loaded the machine is.
fn assert_sleeps(pid: u32, about: &str) {
    until(&format!("{about}: it sleeps"), || {
        let (before, (busy, state)) = (switches(pid), work(pid));
        // The claim is about a stretch of time, so one has to pass.
        std::thread::sleep(Duration::from_millis(500));
        state == "S" && switches(pid) == before && work(pid).0 == busy
    });
}

#[test]
fn a_waiter_sleeps_and_does_not_poll() {
    let site = Site::new();
    let (lease, _) = site.acquire("db");
    let mut first = waiter(&site, &[], "first");
    site.until_waiting(1);
    let mut second = waiter(&site, &[], "second");
    site.until_waiting(2);
    assert_sleeps(first.pid(), "first in line");
    assert_sleeps(second.pid(), "second in line");
    release(&site, &lease);
    assert_eq!((first.line(), second.line()), ("first".to_owned(), "second".to_owned()));
}

/// A wrapper that was killed and not yet waited for by its parent: its waiters watch the command's kernel lock.
#[test]
fn a_waiter_does_not_spin_on_a_zombie_whose_command_still_holds() {
    let site = Site::new();
    let rounds = (0..5).map(|_| {
        let mut holder = site.start(&["exec", "db", "--", "sh", "-c", "echo $$; exec sleep 600"]);
        let command = holder.number();
        let mut next = waiter(&site, &[], "entered");
        site.until_waiting(1);
        holder.signal(Signal::KILL);
        until("the wrapper is a zombie", || work(holder.pid()).1 == "Z");
        assert_sleeps(next.pid(), "behind a zombie");
        end(command);
        let since = Instant::now();
        assert_eq!(next.line(), "entered");
        since.elapsed()
    });
    assert_mostly_at_once(rounds.collect());
}

/// Invariant 7. Exactly in order, and only the next one is woken.
#[test]
fn a_release_hands_to_exactly_the_next() {
    let site = Site::new();
    let (lease, _) = site.acquire("db");
    let mut line: Vec<Started> = Vec::new();
    for place in 0..5 {
        let script = "echo in; exec sleep 600";
        let command = ["exec", "db", "--quiet", "--", "sh", "-c", script];
        line.push(site.start(&command));
        site.until_waiting(place + 1);
    }
    for waiting in &line {
        assert_sleeps(waiting.pid(), "in line");
    }
    let before: Vec<u64> = line.iter().map(|waiting| switches(waiting.pid())).collect();
    release(&site, &lease);
    assert_eq!(line[0].line(), "in");
    // The next in line may look at its new neighbour; those behind are left alone.
    for place in 2..5 {
        let woken = switches(line[place].pid()) - before[place];
        assert!(woken <= 1, "{place} was woken {woken} times");
    }
    for place in 0..5 {
        let leases = site.leases();
        assert_eq!(leases[0]["pid"], line[place].pid(), "{leases:?}");
        line[place].signal(Signal::TERM);
        line[place].end();
        if place < 4 {
            assert_eq!(line[place + 1].line(), "in");
        }
    }
    site.assert_clean("after the line");
}

/// Invariants 3, 7. A stopped waiter keeps its turn: it holds, although it does not know yet.
#[test]
fn a_stopped_waiter_at_the_head_keeps_its_turn() {
    let site = Site::new();
    let (lease, _) = site.acquire("db");
    let mut first = waiter(&site, &[], "first");
    site.until_waiting(1);
    let mut second = waiter(&site, &[], "second");
    site.until_waiting(2);
    first.signal(Signal::STOP);
    until("it is stopped", || work(first.pid()).1 == "T");
    release(&site, &lease);
    let leases = site.leases();
    assert_eq!(leases[0]["pid"], first.pid(), "{leases:?}");
    assert!(!second.has_ended());
    first.signal(Signal::CONT);
    assert_eq!(first.line(), "first");
    assert_eq!(second.line(), "second");
}

/// Invariant 4. A waiter that was killed is passed over, wherever it stands.
#[test]
fn killed_waiters_are_passed_over() {
    let site = Site::new();
    let (lease, _) = site.acquire("db");
    let mut line: Vec<Started> = Vec::new();
    for place in 0..4 {
        line.push(waiter(&site, &[], &format!("number {place}")));
        site.until_waiting(place + 1);
    }
    for place in [0, 2] {
        line[place].kill();
    }
    release(&site, &lease);
    assert_eq!(line[1].line(), "number 1");
    assert_eq!(line[3].line(), "number 3");
    assert!(line[3].end().success());
    site.assert_clean("after the killed waiters");
}

/// Invariant 7.
#[test]
fn a_higher_priority_goes_first() {
    let site = Site::new();
    let (lease, _) = site.acquire("db");
    let out = site.folder().join("order");
    let script = |word: &str| format!("echo {word} >> {}", out.display());
    let mut line = Vec::new();
    for (place, (priority, word)) in
        [("0", "plain"), ("-5", "patient"), ("7", "urgent")].into_iter().enumerate()
    {
        let flag = format!("--priority={priority}");
        let script = script(word);
        let command = ["exec", "db", "--quiet", &flag, "--", "sh", "-c", &script];
        line.push(site.start(&command));
        site.until_waiting(place + 1);
    }
    release(&site, &lease);
    for waiting in &mut line {
        assert!(waiting.end().success());
    }
    assert_eq!(std::fs::read_to_string(out).unwrap(), "urgent\nplain\npatient\n");
}

/// Invariant 7. The place in line belongs to the ticket, not to the command that waits with it.
#[test]
fn a_ticket_is_resumed_after_its_command_was_killed() {
    let site = Site::new();
    let (lease, _) = site.acquire("db");
    let pid = std::process::id().to_string();
    let args = ["acquire", "db", "--wait", "--quiet", "--ticket", "turn", "--owner", "test:1", "--pid", &pid];
    let mut waiting = site.start(&args);
    site.until_waiting(1);
    waiting.kill();
    let mut behind = waiter(&site, &[], "behind");
    site.until_waiting(2);
    assert_eq!(site.tickets()[0]["owner"], "test:1");
    release(&site, &lease);
    let resumed = site.run(&["acquire", "--ticket", "turn", "--wait=50s", "--quiet"]);
    assert_eq!(resumed.exit_code(), Some(0), "{resumed:?}");
    assert!(!behind.has_ended());
    release(&site, resumed.stdout().trim());
    assert_eq!(behind.line(), "behind");
    assert!(behind.end().success());
    site.assert_clean("after the ticket was used");
}

/// Invariant 8.
#[test]
fn a_deadlock_among_processes_is_refused_with_its_cycle() {
    let site = Site::new();
    let hold = |name: &str, owner: &str, script: &str| {
        let args = ["exec", name, "--owner", owner, "--", "sh", "-c", script];
        site.start(&args)
    };
    let lockkeeper = env!("CARGO_BIN_EXE_lockkeeper");
    let nested = |name: &str, owner: &str| {
        format!(
            "echo in; read go; {lockkeeper} --json exec {name} --quiet --owner {owner} -- echo got {name}"
        )
    };
    let mut one = hold("a", "test:1", &nested("b", "test:1"));
    let mut two = hold("b", "test:2", &nested("c", "test:2"));
    let mut three = hold("c", "test:3", &nested("a", "test:3"));
    for holder in [&mut one, &mut two, &mut three] {
        assert_eq!(holder.line(), "in");
    }
    let go = |holder: &mut Started| {
        holder.send("\n");
    };
    go(&mut one);
    site.until_waiting(1);
    go(&mut two);
    site.until_waiting(2);
    go(&mut three);
    let refusal: serde_json::Value = serde_json::from_str(&three.line()).unwrap();
    assert_eq!(refusal["error"]["reason_code"], "DEADLOCK", "{refusal}");
    let cycle = refusal["error"]["context"]["cycle"].as_array().unwrap();
    let mut waiters: Vec<&str> = cycle.iter().map(|link| link["waiter"].as_str().unwrap()).collect();
    waiters.sort_unstable();
    assert_eq!(waiters, ["test:1", "test:2", "test:3"], "{refusal}");
    assert_eq!(three.end().code(), Some(75));
    assert_eq!((two.line(), one.line()), ("got c".to_owned(), "got b".to_owned()));
    assert!(two.end().success() && one.end().success());
    site.assert_clean("after the refusal");
}
