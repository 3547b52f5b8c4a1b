//! Power loss at any moment: what is on the disk when a command begins, and when an end is published.

use std::collections::BTreeMap;
use std::path::Path;

use rusqlite::Connection;

use super::site::Site;

/// What strace(1) saw of a worker, in the order in which it happened.
enum Call {
    /// This many bytes of the store's log are on the disk.
    Synced(u64),
    /// The command of a run begins.
    Begins(String),
    /// The worker publishes that a run has ended.
    Published(String),
}

/// Reads lines such as `12 1794.5 pwrite64(7</store/runs.db-wal>, ""..., 1024, 56) = 1024`.
fn read_trace(text: &str) -> Vec<Call> {
    let mut calls = Vec::new();
    let mut written = 0;
    // A call that takes long has two lines; what it puts on the disk was written before the first one.
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
            // Zeros that make room are no frames.
            if length < 4096 {
                written = written.max(from + length);
            }
        } else if rest.starts_with("fdatasync(") && rest.contains("runs.db-wal>") {
            if rest.ends_with("<unfinished ...>") {
                under_way.insert(thread, written);
            } else {
                calls.push(Call::Synced(written));
            }
        } else if rest.starts_with("<... fdatasync resumed>") {
            calls.extend(under_way.remove(thread).map(Call::Synced));
        } else if rest.starts_with("execve(") {
            calls.extend(id_after(rest, "LOCKKEEPER_RUN_ID=").map(Call::Begins));
        } else if rest.starts_with("write(1<") && rest.contains(r#"\"event\":\"ended\""#) {
            calls.extend(id_after(rest, r#"\"run_id\":\""#).map(Call::Published));
        }
    }
    calls
}

/// The status of each run after a power loss, when this many bytes of the store's log were on the disk.
fn after_a_loss(store: &Path, bytes: u64) -> BTreeMap<String, String> {
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
/// and an end that was published is known.
#[test]
fn a_power_loss_makes_nothing_run_twice_and_takes_back_no_end() {
    for jobs in ["1", "2", "4"] {
        let site = Site::new();
        // So few that their log is never begun anew, and has all of it.
        let submitted = 40;
        for number in 0..submitted {
            site.submit(&site.command(&format!("r{number}"), &["true"]));
        }
        let trace = site.path("trace");
        let strace = ["strace", "-f", "-y", "-v", "-s", "4000", "-o", trace.to_str().unwrap()];
        // The guardian is traced as well: it starts the commands.
        let calls = ["-e", "trace=pwrite64,fdatasync,execve,write", "-qq"];
        let mut worker = site.worker_under(&[&strace[..], &calls[..]].concat(), &["--jobs", jobs, "--drain"]);
        // Each end is one line on its output, when it is read.
        while worker.try_told().is_some() {}
        assert_eq!(worker.wait(), Some(0));
        let (mut synced, mut begun, mut published) = (0, 0, 0);
        let mut left = BTreeMap::new();
        for call in read_trace(&std::fs::read_to_string(&trace).unwrap()) {
            match call {
                Call::Synced(bytes) if bytes > synced => {
                    synced = bytes;
                    left = after_a_loss(&site.store(), bytes);
                }
                Call::Synced(_) => {}
                Call::Begins(run) => {
                    assert_ne!(left[&run], "queued", "{run} would begin again");
                    begun += 1;
                }
                Call::Published(run) => {
                    assert_eq!(left[&run], "succeeded", "{run}");
                    published += 1;
                }
            }
        }
        assert_eq!((begun, published), (submitted, submitted), "{jobs} jobs");
    }
}
