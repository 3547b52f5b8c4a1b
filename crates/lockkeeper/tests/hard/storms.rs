//! Storms of 64 processes.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::site::{Site, Started, assert_store_is_clean};
use crate::storm::{Aftermath, Storm, Weather};
use crate::worker::{library_worker, wrapped_worker};

const CROWD: usize = 64;
/// Holders sleep for some milliseconds at most. If everybody sleeps for longer, a wake-up was lost, which a timer of
/// five seconds makes good.
const LOST_WAKE_UP: Duration = Duration::from_secs(1);
/// Nobody is overtaken by somebody who asked so much later; asking itself takes a while on a loaded machine.
const OVERTAKEN: Duration = Duration::from_secs(4);

fn assert_nobody_overslept(aftermath: &Aftermath) {
    let (asleep, about) = (aftermath.all_asleep, &aftermath.about);
    assert!(asleep < LOST_WAKE_UP, "all slept for {asleep:?}: {about}");
}

fn assert_clean(aftermath: &Aftermath, least: usize) {
    let Aftermath { findings, about, .. } = aftermath;
    findings.assert_clean(about);
    assert!(aftermath.kills >= 20, "too few were killed: {about}");
    assert!(findings.holds.len() >= least, "too little happened: {about}");
    assert_store_is_clean(&aftermath.store(), about);
}

/// Invariants 1, 2, 3, 4, 10. Killed wrappers leave commands behind that still hold.
#[test]
fn a_storm_of_wrapped_commands_has_one_holder_at_a_time() {
    let storm = Storm { crowd: CROWD, weather: Weather::KillsAndStops, wrapped: true };
    let aftermath = storm.run(|folder, worker, seed, _| wrapped_worker(folder, worker, seed, "alpha"));
    assert_clean(&aftermath, 60);
    assert!(aftermath.stops >= 10, "too few were stopped: {}", aftermath.about);
    // Commands are not looked at one by one, so here the history alone tells how long the lock was free in calm.
    let idle = aftermath.findings.longest_idle(aftermath.calm_since);
    assert!(idle < OVERTAKEN, "free for {idle:?} although somebody waited: {}", aftermath.about);
}

/// Invariants 1, 2, 4, 7. Every death passes the lock on at once, to the next in line.
#[test]
fn a_storm_on_one_name_loses_no_wake_up() {
    let storm = Storm { crowd: CROWD, weather: Weather::Kills, wrapped: false };
    let aftermath =
        storm.run(|folder, worker, seed, until| library_worker(folder, worker, seed, until, "alpha"));
    assert_clean(&aftermath, 60);
    assert_nobody_overslept(&aftermath);
    let idle = aftermath.findings.longest_idle(0);
    let overtaken = aftermath.findings.worst_overtaking(aftermath.calm_since);
    assert!(overtaken < OVERTAKEN, "overtaken by {overtaken:?}: {}", aftermath.about);
    eprintln!("longest free {idle:?}, all asleep {:?}, worst overtaking {overtaken:?}", aftermath.all_asleep);
}

/// Invariants 1, 2, 3, 6. Names, sharers, slots, patterns and several at once.
#[test]
fn a_storm_on_everything_at_once_keeps_every_rule() {
    let storm = Storm { crowd: CROWD, weather: Weather::KillsAndStops, wrapped: false };
    let aftermath =
        storm.run(|folder, worker, seed, until| library_worker(folder, worker, seed, until, "mixed"));
    assert_clean(&aftermath, 30);
    assert_nobody_overslept(&aftermath);
    assert!(aftermath.stops >= 10, "too few were stopped: {}", aftermath.about);
}

/// Everybody comes first: one makes the store, nobody is turned away, and no token is given twice.
#[test]
fn many_first_users_at_once_make_one_store() {
    for _ in 0..5 {
        let site = Site::new();
        let users = (0..32).map(|user| {
            let script = ["exec", &format!("db{user}"), "--", "sh", "-c", "echo $LOCKKEEPER_TOKEN"];
            site.start(&script)
        });
        let users: Vec<Started> = users.collect();
        let mut tokens = BTreeSet::new();
        for user in users {
            let answer = user.wait().code(0);
            assert!(tokens.insert(answer.stdout()), "{answer:?}");
        }
        site.assert_clean("after the first users");
    }
}
