//! A run's end is the end of everything that it started.

use std::time::Duration;

use lockkeeper_core::request::Request;
use lockkeeper_core::run::{Reason, Status};

use super::guardians::WORKER;
use super::site::{Site, lives, number_in, until};

/// What commands leave behind: in a session of their own, forked twice, with nothing in their environment, with all
/// descriptors closed, deaf to being asked.
const LEAVINGS: [(&str, &str); 5] = [
    ("session", "setsid sh -c 'echo $$ > NAME; exec sleep 300' &"),
    ("twice", "(setsid sh -c '(echo $$ > NAME; exec sleep 300) &') &"),
    ("bare", "setsid env -i sh -c 'echo $$ > NAME; exec sleep 300' &"),
    (
        "closed",
        "setsid bash -c 'echo $$ > NAME; for n in $(ls /proc/$$/fd); do eval \"exec $n>&-\"; done; while :; do sleep 0.05; done' &",
    ),
    ("deaf", "setsid sh -c 'trap \"\" TERM INT HUP; echo $$ > NAME; while :; do sleep 0.05; done' &"),
];

fn with_leavings(end: &str) -> String {
    let all: Vec<String> = LEAVINGS.iter().map(|(name, script)| script.replace("NAME", name)).collect();
    // All have to be there before the command itself goes on.
    let there: Vec<String> =
        LEAVINGS.iter().map(|(name, _)| format!("until [ -s {name} ]; do sleep 0.01; done;")).collect();
    format!("{} {} echo $$ > command; {end}", all.join(" "), there.join(" "))
}

fn numbers(site: &Site) -> Vec<(&'static str, u32)> {
    LEAVINGS.iter().map(|(name, _)| (*name, number_in(&site.dir().join(name)))).collect()
}

fn assert_gone(site: &Site, left: &[(&str, u32)]) {
    for (name, pid) in left {
        assert!(!lives(*pid), "{name} lives on");
    }
    site.assert_settled("after the end");
}

#[test]
fn what_a_command_leaves_behind_ends_with_it() {
    let site = Site::new();
    let run = site.submit(&Request {
        locks: vec!["db".parse().unwrap()],
        ..site.script("a", &with_leavings("exit 0"))
    });
    let _worker = site.worker(&[]);
    assert_eq!(site.end_of(&run).status(), Status::Succeeded);
    assert_gone(&site, &numbers(&site));
}

/// Requirement 80.
#[test]
fn a_cancel_ends_the_whole_tree() {
    let site = Site::new();
    let run = site.submit(&Request {
        locks: vec!["db".parse().unwrap()],
        ..site.script("a", &with_leavings("exec sleep 300"))
    });
    let _worker = site.worker(&["--jobs", "2"]);
    number_in(&site.dir().join("command"));
    site.runs.cancel(&run, None).unwrap();
    assert_eq!(site.end_of(&run).status(), Status::Canceled);
    assert_gone(&site, &numbers(&site));
}

/// Requirement 79.
#[test]
fn a_timeout_ends_the_whole_tree() {
    let site = Site::new();
    let script = with_leavings("exec sleep 300");
    let run = site.submit(&Request { timeout: Some(Duration::from_secs(3)), ..site.script("a", &script) });
    let _worker = site.worker(&[]);
    let left = numbers(&site);
    assert_eq!(site.end_of(&run).reason(), Some(Reason::ExecutionTimeout));
    until("it is settled", || site.run(&run).process().is_none());
    assert_gone(&site, &left);
}

/// A command that leaves its output open does not keep its run from ending; nobody reads a pipe until then.
#[test]
fn an_open_output_does_not_keep_a_run_from_ending() {
    let site = Site::new();
    let run = site.submit(&site.script("a", "sleep 300 & echo done"));
    site.drain("1");
    assert_eq!(site.run(&run).status(), Status::Succeeded);
    assert_eq!(site.output_of(&run), b"done\n");
    site.assert_settled("after the end");
}

/// The next run does not begin before the last process of the one before is gone, and nobody becomes a zombie.
#[test]
fn a_lock_is_not_handed_on_while_anything_of_the_run_lives() {
    let site = Site::new();
    let with_lock =
        |id: &str, script: &str| Request { locks: vec!["db".parse().unwrap()], ..site.script(id, script) };
    let slow = "trap '' TERM; echo $$ > left; sleep 1; echo first is over >> record";
    site.submit(&with_lock(
        "first",
        &format!("setsid sh -c \"{slow}\" & until [ -s left ]; do sleep 0.01; done"),
    ));
    let second = site.submit(&with_lock("second", "echo second >> record"));
    let worker = site.worker(&["--jobs", "2"]);
    site.end_of(&second);
    // It had two seconds to end by itself, and only needed one.
    assert_eq!(site.record(), ["first is over", "second"]);
    let children = format!("/proc/{0}/task/{0}/children", worker.pid());
    until("no zombie is left", || std::fs::read_to_string(&children).unwrap().is_empty());
}

/// Requirement 92. The worker dies before it knows which process the command is, and the command leaves somebody
/// behind that looks like one.
#[test]
fn what_a_command_left_behind_is_not_taken_for_the_command() {
    let site = Site::new();
    let script = format!("(setsid sleep 300 &); kill -9 {WORKER}; exit 0");
    let run = site.submit(&Request { locks: vec!["db".parse().unwrap()], ..site.script("a", &script) });
    let mut first = site.worker(&[]);
    assert_eq!(first.wait(), Some(128 + 9));
    let _second = site.worker(&[]);
    let ended = site.end_of(&run);
    assert_eq!((ended.status(), ended.reason()), (Status::Succeeded, None), "{ended:?}");
    until("it is settled", || site.run(&run).process().is_none());
    site.assert_settled("after the command that left something behind");
}
