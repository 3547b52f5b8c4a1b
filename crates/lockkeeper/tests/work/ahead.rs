//! Commands that begin before the disk knows of their claim, and logs that are used again: what a worker does ahead
//! costs nobody anything, not even when the power fails.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use lockkeeper_core::id::RunId;
use lockkeeper_core::request::Request;
use lockkeeper_core::retry::RetryPolicy;
use lockkeeper_core::run::{Reason, Status};
use lockkeeper_engine::runs::output::Output;
use rusqlite::Connection;

use super::site::{Site, until};

/// Says that it ran.
fn noted(site: &Site, id: &str) -> Request {
    site.script(id, "echo $LOCKKEEPER_REQUEST_ID $LOCKKEEPER_ATTEMPT >> record")
}

/// The files in which workers name runs.
fn files(site: &Site) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(site.store().join("ahead")).into_iter().flatten();
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// Invariant 10. Its worker was killed: nothing of it has begun, and it is not lost. Nor will it be after a later cut.
#[test]
fn what_a_worker_that_is_gone_has_named_is_executed_by_the_next() {
    let site = Site::new();
    let run = site.submit(&noted(&site, "a"));
    let mut file = site.runs.store().ahead_file(&"W-gone".parse().unwrap()).unwrap();
    file.name(std::slice::from_ref(&run)).unwrap();
    site.drain("1");
    assert_eq!((site.run(&run).status, site.record()), (Status::Succeeded, vec!["a 1".to_owned()]));
    assert_eq!(files(&site), Vec::<PathBuf>::new());
}

/// Requirement 92. Invariants 9, 10. Nobody can know whether it had begun: it is not executed a second time without
/// being allowed to.
#[test]
fn what_was_named_before_a_power_cut_is_lost_unless_it_may_be_tried_again() {
    let site = Site::new();
    let retry = RetryPolicy { limit: 1, base: Duration::from_millis(5), ..RetryPolicy::default() };
    let once = site.submit(&noted(&site, "once"));
    let twice = site.submit(&Request { retry, ..noted(&site, "twice") });
    let other = site.submit(&noted(&site, "other"));
    let unfinished = other.as_str().split_at(other.as_str().len() - 2).0;
    std::fs::create_dir(site.store().join("ahead")).unwrap();
    let text = format!("\n{once}\n\n{twice}\n\n{unfinished}");
    std::fs::write(site.store().join("ahead/another boot.W-1"), text).unwrap();
    let database = Connection::open(site.runs.store().path()).unwrap();
    database.execute_batch("UPDATE clock SET boot = 'another boot'").unwrap();
    site.drain("1");
    let once = site.run(&once);
    assert_eq!((once.status, once.reason), (Status::Failed, Some(Reason::Lost)));
    assert_eq!((site.run(&twice).status, site.run(&twice).attempt), (Status::Succeeded, 2));
    assert_eq!(site.run(&other).status, Status::Succeeded);
    let mut record = site.record();
    record.sort();
    assert_eq!(record, ["other 1", "twice 2"]);
    assert_eq!(files(&site), Vec::<PathBuf>::new());
}

/// What is named and does not begin would be lost in a power cut for nothing.
#[test]
fn nobody_is_named_behind_a_long_command() {
    let site = Site::new();
    for number in 0..20 {
        site.submit(&site.command(&format!("short{number}"), &["true"]));
    }
    let long = site.submit(&site.script("long", "until [ -e go ]; do sleep 0.01; done"));
    for number in 0..20 {
        site.submit(&site.command(&format!("after{number}"), &["true"]));
    }
    let _worker = site.worker(&["--jobs", "1"]);
    until("the long command runs", || {
        site.run(&long).process.is_some_and(|process| process.command.is_some())
    });
    let lengths = || files(&site).iter().map(|file| file.metadata().unwrap().len()).collect::<Vec<_>>();
    until("the names are forgotten", || lengths() == [0]);
    std::fs::write(site.dir().join("go"), "").unwrap();
    assert_eq!(site.end_of(&long).status, Status::Succeeded);
}

/// Requirement 86.
#[test]
fn short_runs_that_fail_are_tried_again() {
    let site = Site::new();
    let retry = RetryPolicy { limit: 1, base: Duration::from_millis(5), ..RetryPolicy::default() };
    let request = |number: usize| Request {
        retry: retry.clone(),
        ..site.script(&format!("r{number}"), "[ $LOCKKEEPER_ATTEMPT = 2 ]")
    };
    let runs: Vec<RunId> = (0..30).map(|number| site.submit(&request(number))).collect();
    site.drain("2");
    for run in runs.iter().map(|run| site.run(run)) {
        assert_eq!((run.status, run.attempt), (Status::Succeeded, 2), "{run:?}");
    }
    site.assert_settled("after the retries");
}

/// A long command does not keep back what was named while it was thought to be short.
#[test]
fn nobody_waits_behind_a_long_command_while_another_worker_is_free() {
    let site = Site::new();
    for number in 0..20 {
        site.submit(&site.command(&format!("short{number}"), &["true"]));
    }
    let wait = "until [ $(ls after* 2>/dev/null | wc -l) = 20 ]; do sleep 0.01; done";
    let long = site.submit(&site.script("long", wait));
    for number in 0..20 {
        site.submit(&site.script(&format!("after{number}"), "> $LOCKKEEPER_REQUEST_ID"));
    }
    let _one = site.worker(&["--jobs", "1"]);
    let _other = site.worker(&["--jobs", "1"]);
    assert_eq!(site.end_of(&long).status, Status::Succeeded);
}

/// Commands that begin have a copy of the kernel lock of every other command for a moment. None is ended for that.
#[test]
fn no_command_is_ended_because_another_one_has_ended() {
    let site = Site::new();
    let script = |number: usize| if number.is_multiple_of(5) { "exec sleep 0.03" } else { "exit 0" };
    let runs: Vec<RunId> =
        (0..240).map(|number| site.submit(&site.script(&format!("r{number}"), script(number)))).collect();
    site.drain("12");
    for run in runs.iter().map(|run| site.run(run)) {
        assert_eq!((run.status, run.attempt), (Status::Succeeded, 1), "{run:?}");
    }
    site.assert_settled("after many at once");
}

/// What a command writes is its run's whatever happens to the worker within the first moments.
#[test]
fn what_was_written_before_a_worker_was_killed_is_kept() {
    let site = Site::new();
    for number in 0..3 {
        site.submit(&site.command(&format!("short{number}"), &["true"]));
    }
    // It ends its worker as soon as it has begun, and goes on.
    let script = "echo before; kill -9 $PPID; echo after; until [ -e go ]; do sleep 0.01; done; echo last";
    let run = site.submit(&site.script("a", script));
    let mut worker = site.worker(&["--jobs", "1"]);
    worker.wait();
    let _next = site.worker(&["--jobs", "1"]);
    until("it is looked after", || site.run(&run).claim == 2);
    std::fs::write(site.dir().join("go"), "").unwrap();
    assert!(site.end_of(&run).status.is_terminal());
    until("all is there", || site.output_of(&run) == b"before\nafter\nlast\n");
}

/// Logs of silent runs are used again; none has a byte of another, also when something goes on writing that nobody
/// could find to end it.
#[test]
fn every_run_has_its_own_output_and_no_others() {
    let site = Site::new();
    // It has neither the lock nor the mark of its run, only its output.
    let stays = "> up; while ! [ -e go ]; do sleep 0.01; done; echo late; > gone";
    let hidden = format!(
        "bash -c \"exec 100>&-; env -i PATH=$PATH setsid sh -c '{stays}' &\"; while ! [ -e up ]; do :; done"
    );
    let mut runs = Vec::new();
    for number in 0..60 {
        let script = match number % 4 {
            0 => "echo $LOCKKEEPER_REQUEST_ID".to_owned(),
            2 if number == 10 => hidden.clone(),
            _ => "exit 0".to_owned(),
        };
        runs.push((number, site.submit(&site.script(&format!("r{number}"), &script))));
    }
    site.drain("2");
    std::fs::write(site.dir().join("go"), "").unwrap();
    until("the hidden process has written", || site.dir().join("gone").exists());
    let more = site.submit(&site.script("more", "echo more"));
    site.drain("1");
    for (number, run) in runs {
        let output = Output::open(&site.runs.folder_of(&run), None).unwrap();
        let text = output.map_or_else(Vec::new, |output| output.read(0, 100).unwrap().bytes);
        let expected = match number {
            10 => "late\n".to_owned(),
            _ if number % 4 == 0 => format!("r{number}\n"),
            _ => String::new(),
        };
        assert_eq!(String::from_utf8(text).unwrap(), expected, "run {number}");
    }
    assert_eq!(site.output_of(&more), b"more\n");
}

/// What strace(1) saw of a worker, in the order in which it happened.
enum Call {
    /// The log of the store has so many bytes.
    Wrote(u64),
    /// So many bytes of it are on the disk.
    Forced(u64),
    /// These runs are named on the disk.
    Named(BTreeSet<String>),
    /// The command of a run begins.
    Begins(String),
    /// The worker tells that a run has ended.
    Told(String),
}

/// Reads lines such as `12 1794.5 pwrite64(7</store/runs.db-wal>, ""..., 1024, 56) = 1024`.
fn read_trace(text: &str) -> Vec<Call> {
    let mut calls = Vec::new();
    let mut written = 0;
    // A call that takes long is told in two lines; what is forced is what was written before the first.
    let mut under_way: BTreeMap<&str, u64> = BTreeMap::new();
    let mut names_under_way = None;
    let (mut naming, mut named) = (BTreeSet::new(), BTreeSet::new());
    let id_after = |line: &str, before: &str| {
        let rest = &line[line.find(before)? + before.len()..];
        Some(rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').next()?.to_owned())
    };
    for line in text.lines() {
        let Some((thread, rest)) = line.split_once(' ') else { continue };
        let rest = rest.trim_start();
        if rest.starts_with("pwrite64(") && rest.contains("runs.db-wal>") {
            let numbers = match rest.strip_suffix(" <unfinished ...>") {
                Some(inside) => inside,
                None => rest.rsplit_once(')').unwrap().0,
            };
            let mut last = numbers.rsplit(", ").map(|number| number.trim().parse::<u64>());
            let (from, length) = (last.next().unwrap().unwrap(), last.next().unwrap().unwrap());
            // Zeros that make room are no frames.
            if length < 4096 {
                written = written.max(from + length);
                calls.push(Call::Wrote(written));
            }
        } else if rest.starts_with("fdatasync(") && rest.contains("runs.db-wal>") {
            if rest.ends_with("<unfinished ...>") {
                under_way.insert(thread, written);
            } else {
                calls.push(Call::Forced(written));
            }
        } else if rest.starts_with("pwrite64(") && rest.contains("/ahead/") {
            let text = rest.split('"').nth(1).unwrap();
            naming.extend(text.split("\\n").filter(|name| !name.is_empty()).map(ToOwned::to_owned));
        } else if rest.starts_with("ftruncate(") && rest.contains("/ahead/") {
            // From here on the disk may have forgotten them.
            (naming, named) = (BTreeSet::new(), BTreeSet::new());
            calls.push(Call::Named(BTreeSet::new()));
        } else if rest.starts_with("fdatasync(") && rest.contains("/ahead/") {
            named.extend(std::mem::take(&mut naming));
            if rest.ends_with("<unfinished ...>") {
                names_under_way = Some(thread);
            } else {
                calls.push(Call::Named(named.clone()));
            }
        } else if rest.starts_with("<... fdatasync resumed>") {
            if names_under_way == Some(thread) {
                names_under_way = None;
                calls.push(Call::Named(named.clone()));
            }
            calls.extend(under_way.remove(thread).map(Call::Forced));
        } else if rest.starts_with("execve(") {
            calls.extend(id_after(rest, "LOCKKEEPER_RUN_ID=").map(Call::Begins));
        } else if rest.starts_with("write(1<") && rest.contains(r#"\"event\":\"ended\""#) {
            calls.extend(id_after(rest, r#"\"run_id\":\""#).map(Call::Told));
        }
    }
    calls
}

/// Where a power cut leaves each run of a store whose log had so many bytes on the disk.
fn after_a_cut(store: &Path, bytes: u64) -> BTreeMap<String, String> {
    let folder = tempfile::tempdir().unwrap();
    let log = std::fs::read(store.join("runs.db-wal")).unwrap();
    std::fs::copy(store.join("runs.db"), folder.path().join("runs.db")).unwrap();
    std::fs::write(folder.path().join("runs.db-wal"), &log[..usize::try_from(bytes).unwrap()]).unwrap();
    let database = Connection::open(folder.path().join("runs.db")).unwrap();
    let mut statement = database.prepare("SELECT id, status FROM run").unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    rows.map(Result::unwrap).collect()
}

/// Requirement 92. Invariants 9, 10. Whenever the power fails: a run that has begun is not taken for one that has not,
/// and an end that was told is known.
#[test]
fn a_power_cut_makes_nothing_run_twice_and_takes_back_no_end() {
    // Whether a command begins before its claim is on the disk is a matter of microseconds, also for who follows it.
    let mut rounds = (0..30).map(|_| cut_the_power_at_every_moment());
    let shown = rounds.any(|(ahead, together)| ahead > 0 && together > 0);
    assert!(
        shown,
        "no run began before its claim was on the disk, or none were claimed together: nothing was shown"
    );
}

/// Looks at what a power cut would have left at any time; returns how many runs began before their claim was on the disk,
/// and how many were claimed together with the one before.
fn cut_the_power_at_every_moment() -> (usize, usize) {
    let site = Site::new();
    // So few that their log is never begun anew, and tells all of it.
    let submitted = 40;
    for number in 0..submitted {
        site.submit(&site.command(&format!("r{number}"), &["true"]));
    }
    let trace = site.path("trace");
    let strace = ["strace", "-f", "-y", "-v", "-s", "4000", "-o", trace.to_str().unwrap()];
    let calls = ["-e", "trace=pwrite64,ftruncate,fdatasync,execve,write", "-b", "execve", "-qq"];
    // Whatever is read is written to the output as JSON: one line for every end.
    let mut worker = site.worker_under(&[&strace[..], &calls[..]].concat(), &["--jobs", "2", "--drain"]);
    while worker.try_told().is_some() {}
    assert_eq!(worker.wait(), Some(0));
    let (mut forced, mut begun, mut told, mut ahead) = (0, 0, 0, 0);
    let (mut written, mut left, mut named) = (0, BTreeMap::new(), BTreeSet::new());
    for call in read_trace(&std::fs::read_to_string(&trace).unwrap()) {
        match call {
            Call::Wrote(bytes) => written = bytes,
            Call::Forced(bytes) if bytes > forced => {
                forced = bytes;
                left = after_a_cut(&site.store(), bytes);
            }
            Call::Forced(_) => {}
            Call::Named(names) => named = names,
            Call::Begins(run) => {
                let queued = left[&run] == "queued";
                assert!(!queued || named.contains(&run), "{run} would begin again");
                begun += 1;
                ahead += usize::from(queued && written > forced);
            }
            Call::Told(run) => {
                assert_eq!(left[&run], "succeeded", "{run}");
                told += 1;
            }
        }
    }
    assert_eq!((begun, told), (submitted, submitted));
    let events = site.runs.store().read(|tables| tables.events_after(0, usize::MAX)).unwrap();
    let claims: Vec<i64> =
        events.iter().filter(|event| event.kind == "claimed").map(|event| event.at).collect();
    (ahead, claims.windows(2).filter(|pair| pair[0] == pair[1]).count())
}
