//! Reader of the execution log beside a STAGES.yml: the executions, their groups and their downgrades.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use lockkeeper_platform::wall_clock::WallTime;
use lockkeeper_stages::picture::Bar;
use serde_json::Value;

use super::recent::downgrades_since;
use super::{ExecutionLog, StageError};

/// Longer lines belong to other programs and are skipped.
const MAX_LINE: u64 = 64 * 1024;

/// One group of one execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupBar {
    /// Its id.
    pub group: String,
    /// When it was started.
    pub began_at: WallTime,
    /// When it ended; none while it runs, or if its end was never logged.
    pub ended_at: Option<WallTime>,
    /// The status in the log.
    pub status: String,
    /// Why it did not succeed.
    pub reason: Option<String>,
    /// How long it waited for its leases, from its start on; none if that is not known.
    pub waited: Option<Duration>,
    /// A fingerprint of its commands.
    commands: Option<String>,
    /// How long its commands took one by one, if they were the only ones that ran.
    alone: Option<Duration>,
}

/// One execution of a phase.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Session {
    /// Its id.
    pub id: String,
    /// The phase.
    pub phase: String,
    /// The mode of the plan.
    pub mode: Option<String>,
    /// Its groups, in the order in which they started.
    pub groups: Vec<GroupBar>,
    /// The downgrades: time, rule, and what the executor did.
    pub downgrades: Vec<(WallTime, String, String)>,
    /// How long the execution took.
    pub wall: Option<Duration>,
    /// How long its groups took, added up. Groups that run at the same time slow each other down.
    pub serial: Option<Duration>,
    /// How long the same commands took one by one, when they were measured so. None if some of them never were, and for an
    /// execution that was resumed.
    pub one_by_one: Option<Duration>,
    /// How long groups waited for their leases, together.
    pub waited: Option<Duration>,
    /// Why all groups were stopped.
    pub stopped: Option<String>,
}

impl Session {
    /// The speed-up against the measured time of the same commands one by one. None for an execution that did not succeed, or
    /// that was resumed.
    pub fn speed_up(&self) -> Option<f64> {
        let (wall, one_by_one) = (self.wall?.as_secs_f64(), self.one_by_one?.as_secs_f64());
        (wall > 0.0 && self.is_success() && !self.is_resumed()).then_some(one_by_one / wall)
    }

    /// Whether it was interrupted and resumed: then `wall` is only the time of its last part.
    fn is_resumed(&self) -> bool {
        let began_at = self.groups.iter().map(|bar| bar.began_at).min();
        let ended_at = self.groups.iter().filter_map(|bar| bar.ended_at).max();
        let all = began_at.zip(ended_at).map(|(began_at, ended_at)| ended_at.since(began_at));
        // Times in the log are cut to milliseconds.
        self.wall.zip(all).is_some_and(|(wall, all)| wall + Duration::from_millis(10) < all)
    }

    /// Whether every group succeeded, at last.
    fn is_success(&self) -> bool {
        let last = |group: &str| self.groups.iter().rfind(|bar| bar.group == group);
        let succeeded = |bar: &GroupBar| last(&bar.group).is_some_and(|bar| bar.status == "SUCCESS");
        self.stopped.is_none() && !self.groups.is_empty() && self.groups.iter().all(succeeded)
    }

    /// The groups as bars of a Gantt chart. A bar without an end reaches to `now`, or to the latest time in the session.
    pub fn bars<'s>(&'s self, now: Option<WallTime>, word: impl Fn(&'s str) -> &'s str) -> Vec<Bar<'s>> {
        let begin = self.groups.iter().map(|bar| bar.began_at).min().unwrap_or(WallTime::UNIX_EPOCH);
        let last = self.groups.iter().flat_map(|bar| bar.ended_at.into_iter().chain([bar.began_at])).max();
        let last = now.or(last).unwrap_or(begin);
        self.groups
            .iter()
            .map(|bar| Bar {
                label: &bar.group,
                status: &bar.status,
                word: word(&bar.status),
                begins: bar.began_at.since(begin),
                waited: bar.waited.unwrap_or_default(),
                ends: bar.ended_at.unwrap_or(last).since(begin),
            })
            .collect()
    }
}

/// The content of an execution log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Executions, the oldest first.
    pub sessions: Vec<Session>,
    /// The number of lines that could not be parsed.
    pub skipped: u64,
}

impl Report {
    /// Reads a log; none if it does not exist.
    pub fn read(path: &Path) -> Result<Option<Self>, StageError> {
        Self::read_end(path, u64::MAX)
    }

    /// Reads the last `max_bytes` of a log, from the first whole line; none if it does not exist.
    pub fn read_end(path: &Path, max_bytes: u64) -> Result<Option<Self>, StageError> {
        Self::read_matching(path, max_bytes, |_| true)
    }

    /// Reads one execution from the last `max_bytes` of a log.
    pub fn read_one(path: &Path, max_bytes: u64, id: &str) -> Result<Option<Session>, StageError> {
        // Most lines belong to other executions and need not be parsed.
        let has_id = |line: &[u8]| {
            std::str::from_utf8(line).is_ok_and(|line| line.contains(id) || line.contains("\"alone\":true"))
        };
        let report = Self::read_matching(path, max_bytes, has_id)?.unwrap_or_default();
        Ok(report.sessions.into_iter().find(|session| session.id == id))
    }

    fn read_matching(
        path: &Path,
        max_bytes: u64,
        matches: impl Fn(&[u8]) -> bool,
    ) -> Result<Option<Self>, StageError> {
        let failed = |source| StageError::Io { action: "read", path: PathBuf::from(path), source };
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let skipped = file.metadata().map_err(failed)?.len().saturating_sub(max_bytes);
        let mut reader = BufReader::new(file);
        if skipped > 0 {
            // From the byte before, so that a line that begins exactly here is not skipped.
            reader.seek(SeekFrom::Start(skipped - 1)).map_err(failed)?;
            reader.skip_until(b'\n').map_err(failed)?;
        }
        let mut report = Self::default();
        let mut indexes: BTreeMap<String, usize> = BTreeMap::new();
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = reader.by_ref().take(MAX_LINE).read_until(b'\n', &mut line).map_err(failed)?;
            if read == 0 {
                report.compare();
                return Ok(Some(report));
            }
            if !matches(&line) {
                continue;
            }
            let parsed = serde_json::from_slice::<Value>(&line)
                .ok()
                .and_then(|value| report.add(&value, &mut indexes));
            report.skipped += u64::from(parsed.is_none());
        }
    }

    /// Sets how long the commands of each execution take one by one: by the latest measurement of each group's commands.
    fn compare(&mut self) {
        let bars = self.sessions.iter().flat_map(|session| &session.groups);
        let measured: HashMap<(String, String), Duration> =
            bars.filter_map(|bar| Some(((bar.group.clone(), bar.commands.clone()?), bar.alone?))).collect();
        for session in &mut self.sessions {
            let time = |bar: &GroupBar| measured.get(&(bar.group.clone(), bar.commands.clone()?)).copied();
            if !session.is_resumed() {
                session.one_by_one = session.groups.iter().map(time).sum();
            }
        }
    }

    /// The number of downgrades since a time.
    pub fn downgrades_since(&self, since: WallTime) -> usize {
        let all = self.sessions.iter().flat_map(|session| &session.downgrades);
        all.filter(|(at, _, _)| *at >= since).count()
    }

    /// The number of downgrades since a time, in all executions of a state folder. Logs that cannot be read are left out:
    /// the commands that show them report the error.
    pub fn all_downgrades_since(state: &Path, since: WallTime) -> usize {
        let files = super::files(state).unwrap_or_default();
        let logs: BTreeSet<PathBuf> = files.iter().map(|file| ExecutionLog::path_beside(file)).collect();
        logs.iter().filter_map(|log| downgrades_since(log, since).ok()).sum()
    }

    /// Adds one line. Returns none if it is not a line of this log.
    fn add(&mut self, line: &Value, indexes: &mut BTreeMap<String, usize>) -> Option<()> {
        let text = |key: &str| line.get(key)?.as_str().map(ToOwned::to_owned);
        let at: WallTime = text("timestamp")?.parse().ok()?;
        let status = text("status")?;
        // Lines of other programs have no session id. Each of their groups counts as one session.
        let id = text("session").or_else(|| text("execution_id"))?;
        let index = *indexes.entry(id.clone()).or_insert_with(|| {
            self.sessions.push(Session { id, ..Session::default() });
            self.sessions.len() - 1
        });
        let session = &mut self.sessions[index];
        if let Some(phase) = text("phase") {
            session.phase = phase;
        }
        let millis = |key: &str| line.get(key)?.as_u64().map(Duration::from_millis);
        match status.as_str() {
            "STARTED" => {
                let group = text("group_id")?;
                // A group that starts again was interrupted, and its execution was resumed.
                let open =
                    session.groups.iter_mut().filter(|bar| bar.group == group && bar.ended_at.is_none());
                open.for_each(|bar| (bar.ended_at, bar.status) = (Some(at), "INTERRUPTED".to_owned()));
                let (began_at, ended_at, reason) = (at, None, None);
                session.groups.push(GroupBar {
                    group,
                    began_at,
                    ended_at,
                    status,
                    reason,
                    waited: None,
                    commands: None,
                    alone: None,
                });
            }
            "DOWNGRADED" => session.downgrades.push((at, text("rule")?, text("to")?)),
            "COMPLETED" => {
                session.mode = text("mode");
                (session.wall, session.serial, session.waited) =
                    (millis("wall_ms"), millis("serial_ms"), millis("waited_ms"));
                session.stopped = text("stopped");
            }
            "SKIPPED" => session.groups.push(GroupBar {
                group: text("group_id")?,
                began_at: at,
                ended_at: Some(at),
                status,
                reason: text("reason"),
                waited: None,
                commands: None,
                alone: None,
            }),
            "ROLLBACK" | "METRICS" | "TUNED" | "NOTICED" => {}
            _ => {
                let group = text("group_id");
                let bar = session.groups.iter_mut().rev().find(|bar| {
                    bar.ended_at.is_none() && group.as_ref().is_none_or(|group| *group == bar.group)
                })?;
                let is_measured = status == "SUCCESS" && line.get("alone") == Some(&Value::Bool(true));
                bar.alone = millis("ran_ms").filter(|_| is_measured);
                bar.waited = millis("ran_ms").map(|ran| at.since(bar.began_at).saturating_sub(ran));
                bar.commands = text("commands");
                (bar.ended_at, bar.status, bar.reason) = (Some(at), status, text("reason"));
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(session: &str) -> String {
        format!(
            "{{\"timestamp\":\"2026-01-31T12:00:00.000Z\",\"session\":\"{session}\",\"status\":\"STARTED\",\"group_id\":\"api\"}}\n"
        )
    }

    #[test]
    fn a_resumed_execution_claims_no_speed_up() {
        let event = |second: u32, session: &str, status: &str, rest: &str| {
            format!(
                "{{\"timestamp\":\"2026-01-31T12:00:{second:02}.000Z\",\"session\":\"{session}\",\"status\":\"{status}\"{rest}}}\n"
            )
        };
        let group = |name: &str| {
            format!(",\"group_id\":\"{name}\",\"commands\":\"c\",\"ran_ms\":2000,\"alone\":true")
        };
        let completed = |wall: u32| format!(",\"wall_ms\":{wall}");
        let log = [
            event(0, "whole", "STARTED", &group("a")),
            event(0, "whole", "STARTED", &group("b")),
            event(2, "whole", "SUCCESS", &group("a")),
            event(2, "whole", "SUCCESS", &group("b")),
            event(2, "whole", "COMPLETED", &completed(2000)),
            event(10, "resumed", "STARTED", &group("a")),
            event(10, "resumed", "STARTED", &group("b")),
            event(12, "resumed", "SUCCESS", &group("a")),
            event(12, "resumed", "FAILED", &group("b")),
            event(12, "resumed", "COMPLETED", &completed(2000)),
            event(20, "resumed", "STARTED", &group("b")),
            event(22, "resumed", "SUCCESS", &group("b")),
            event(22, "resumed", "COMPLETED", &completed(2000)),
        ];
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        std::fs::write(&path, log.concat()).unwrap();
        let sessions = Report::read(&path).unwrap().unwrap().sessions;
        let compared: Vec<_> = sessions.iter().map(|one| (one.speed_up(), one.one_by_one)).collect();
        assert_eq!(compared, [(Some(2.0), Some(Duration::from_secs(4))), (None, None)]);
    }

    #[test]
    fn the_end_of_a_log_begins_with_a_whole_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        std::fs::write(&path, [line("EX-1"), line("EX-2"), line("EX-3")].concat()).unwrap();
        let one = line("EX-3").len() as u64;
        for (most, expected) in [(0, 0), (one - 1, 0), (one, 1), (one + 1, 1), (2 * one, 2), (u64::MAX, 3)] {
            let report = Report::read_end(&path, most).unwrap().unwrap();
            assert_eq!((report.sessions.len(), report.skipped), (expected, 0), "{most}");
        }
        assert_eq!(Report::read_one(&path, u64::MAX, "EX-2").unwrap().unwrap().groups.len(), 1);
        assert_eq!(Report::read_one(&path, one, "EX-2").unwrap(), None);
        assert_eq!(Report::read_end(&folder.path().join("none"), 1).unwrap(), None);
    }
}
