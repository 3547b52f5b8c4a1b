//! Runs that are set aside, and logs that are used again: what a worker does ahead costs nobody anything, not even when
//! the power fails.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use lockkeeper::core::id::{HolderId, RunId};
use lockkeeper::core::request::Request;
use lockkeeper::core::retry::RetryPolicy;
use lockkeeper::core::run::{Reason, Status};
use lockkeeper::engine::runs::output::Output;
use lockkeeper::platform::random;
use rusqlite::Connection;

use super::site::Site;

/// Says that it ran.
fn noted(site: &Site, id: &str) -> Request {
    site.script(id, "echo $LOCKKEEPER_REQUEST_ID $LOCKKEEPER_ATTEMPT >> record")
}

fn set_aside(site: &Site, run: &RunId, holder: HolderId) {
    assert!(site.runs.store().write(|tables| tables.set_aside(run, holder)).unwrap());
}

/// Invariant 10. Its worker was killed: nothing of it has begun, and it is not lost.
#[test]
fn what_was_set_aside_for_a_worker_that_is_gone_is_executed_by_the_next() {
    let site = Site::new();
    let run = site.submit(&noted(&site, "a"));
    set_aside(&site, &run, random::holder_id().unwrap());
    site.drain("1");
    assert_eq!((site.run(&run).status, site.record()), (Status::Succeeded, vec!["a 1".to_owned()]));
}

/// Its worker lives and does nothing, as one that was stopped does.
#[test]
fn what_is_set_aside_for_somebody_who_does_not_come_goes_to_others() {
    let site = Site::new();
    let run = site.submit(&noted(&site, "a"));
    let leases = lockkeeper::open_engine(&site.store()).unwrap();
    let life = leases.senses().life().hold(random::holder_id().unwrap()).unwrap();
    set_aside(&site, &run, life.holder());
    site.drain("1");
    assert_eq!((site.run(&run).status, site.record()), (Status::Succeeded, vec!["a 1".to_owned()]));
    // Whoever comes late finds that it is not theirs any more.
    let late = site.runs.store().read(|tables| tables.set_aside_for(&run, life.holder()));
    assert_eq!(late.unwrap(), None);
}

/// Requirement 92. Invariants 9, 10. Nobody can know whether it had begun: it is not executed a second time without
/// being allowed to.
#[test]
fn what_was_set_aside_before_a_power_cut_is_lost_unless_it_may_be_tried_again() {
    let site = Site::new();
    let retry = RetryPolicy { limit: 1, base: Duration::from_millis(5), ..RetryPolicy::default() };
    let once = site.submit(&noted(&site, "once"));
    let twice = site.submit(&Request { retry, ..noted(&site, "twice") });
    let other = site.submit(&noted(&site, "other"));
    for run in [&once, &twice] {
        set_aside(&site, run, random::holder_id().unwrap());
    }
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

/// A long command does not keep back what was set aside while it was thought to be short.
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
    super::site::until("the hidden process has written", || site.dir().join("gone").exists());
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
            written = written.max(from + length);
            calls.push(Call::Wrote(written));
        } else if rest.starts_with("fdatasync(") && rest.contains("runs.db-wal>") {
            if rest.ends_with("<unfinished ...>") {
                under_way.insert(thread, written);
            } else {
                calls.push(Call::Forced(written));
            }
        } else if rest.starts_with("<... fdatasync resumed>") {
            calls.extend(under_way.remove(thread).map(Call::Forced));
        } else if rest.starts_with("execve(") {
            calls.extend(id_after(rest, "LOCKKEEPER_RUN_ID=").map(Call::Begins));
        } else if rest.starts_with("write(1<") && rest.contains(r#"\"event\":\"ended\""#) {
            calls.extend(id_after(rest, r#"\"run_id\":\""#).map(Call::Told));
        }
    }
    calls
}

/// What a power cut leaves of a store whose log had so many bytes on the disk: where each run is, and whether anybody
/// may begin with it.
fn after_a_cut(store: &Path, bytes: u64) -> BTreeMap<String, (String, bool)> {
    let folder = tempfile::tempdir().unwrap();
    let log = std::fs::read(store.join("runs.db-wal")).unwrap();
    std::fs::copy(store.join("runs.db"), folder.path().join("runs.db")).unwrap();
    std::fs::write(folder.path().join("runs.db-wal"), &log[..usize::try_from(bytes).unwrap()]).unwrap();
    let database = Connection::open(folder.path().join("runs.db")).unwrap();
    let mut statement = database.prepare("SELECT id, status, ready = 1 FROM run").unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?)))).unwrap();
    rows.map(Result::unwrap).collect()
}

/// Requirement 92. Invariants 9, 10. Whenever the power fails: a run that has begun is not taken for one that has not,
/// and an end that was told is known.
#[test]
fn a_power_cut_makes_nothing_run_twice_and_takes_back_no_end() {
    let site = Site::new();
    let submitted = 40;
    for number in 0..submitted {
        site.submit(&site.command(&format!("r{number}"), &["true"]));
    }
    let trace = site.path("trace");
    let strace = ["strace", "-f", "-y", "-v", "-s", "600", "-o", trace.to_str().unwrap()];
    let calls = ["-e", "trace=pwrite64,fdatasync,execve,write", "-b", "execve", "-qq"];
    // Whatever is read is written to the output as JSON: one line for every end.
    let mut worker = site.worker_under(&[&strace[..], &calls[..]].concat(), &["--jobs", "2", "--drain"]);
    while worker.try_told().is_some() {}
    assert_eq!(worker.wait(), Some(0));
    let (mut forced, mut begun, mut told, mut ahead) = (0, 0, 0, 0);
    let (mut written, mut left) = (0, BTreeMap::new());
    for call in read_trace(&std::fs::read_to_string(&trace).unwrap()) {
        match call {
            Call::Wrote(bytes) => written = bytes,
            Call::Forced(bytes) if bytes > forced => {
                forced = bytes;
                left = after_a_cut(&site.store(), bytes);
            }
            Call::Forced(_) => {}
            Call::Begins(run) => {
                let (status, ready) = &left[&run];
                assert!(status != "queued" || !ready, "{run} would begin again");
                begun += 1;
                ahead += usize::from(status == "queued" && written > forced);
            }
            Call::Told(run) => {
                assert!(["succeeded", "failed"].contains(&left[&run].0.as_str()), "{run}: {:?}", left[&run]);
                told += 1;
            }
        }
    }
    assert_eq!((begun, told), (submitted, submitted));
    assert!(ahead > 0, "no run began before its claim was on the disk: nothing was shown");
}
