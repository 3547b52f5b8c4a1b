//! What the logs beside a STAGES.yml tell about the last executions.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use super::recent::downgrades_since;
use super::{ExecutionLog, StageError};
use lockkeeper_platform::wall_clock::WallTime;
use lockkeeper_stages::picture::Bar;

/// Longer lines are none of ours.
const MAX_LINE: u64 = 64 * 1024;

/// One group of one execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupBar {
    /// Its id.
    pub group: String,
    /// When it was told to begin.
    pub began_at: WallTime,
    /// When it ended; none while it runs, or when its end was never written.
    pub ended_at: Option<WallTime>,
    /// How it ended, as the log says.
    pub status: String,
    /// Why it did not end well.
    pub reason: Option<String>,
}

/// One execution of a phase.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Session {
    /// Its id.
    pub id: String,
    /// The phase.
    pub phase: String,
    /// How its groups ran.
    pub mode: Option<String>,
    /// Its groups, as they began.
    pub groups: Vec<GroupBar>,
    /// Rules that answered, and what was done.
    pub downgrades: Vec<(WallTime, String, String)>,
    /// How long it took.
    pub wall: Option<Duration>,
    /// How long the groups took together.
    pub serial: Option<Duration>,
    /// How long groups waited for what others held.
    pub waited: Option<Duration>,
    /// Why it was ended before its time.
    pub stopped: Option<String>,
}

impl Session {
    /// How many times as long it would have taken one by one.
    pub fn speed_up(&self) -> Option<f64> {
        let (wall, serial) = (self.wall?.as_secs_f64(), self.serial?.as_secs_f64());
        (wall > 0.0).then_some(serial / wall)
    }

    /// Its groups as bars over time; those that have not ended go on until `now`, or else as long as the last other.
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
                ends: bar.ended_at.unwrap_or(last).since(begin),
            })
            .collect()
    }
}

/// What a log of executions tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Executions, the oldest first.
    pub sessions: Vec<Session>,
    /// Lines that are none.
    pub skipped: u64,
}

impl Report {
    /// Reads a log; nothing when there is none.
    pub fn read(path: &Path) -> Result<Option<Self>, StageError> {
        Self::read_end(path, u64::MAX)
    }

    /// Reads the last so many bytes of a log, from the next line on; nothing when there is none.
    pub fn read_end(path: &Path, most: u64) -> Result<Option<Self>, StageError> {
        Self::read_some(path, most, |_| true)
    }

    /// What the last so many bytes of a log tell about one execution.
    pub fn read_one(path: &Path, most: u64, id: &str) -> Result<Option<Session>, StageError> {
        // Most lines are about others, and need not be understood.
        let is_named = |line: &[u8]| std::str::from_utf8(line).is_ok_and(|line| line.contains(id));
        let report = Self::read_some(path, most, is_named)?.unwrap_or_default();
        Ok(report.sessions.into_iter().find(|session| session.id == id))
    }

    fn read_some(path: &Path, most: u64, counts: impl Fn(&[u8]) -> bool) -> Result<Option<Self>, StageError> {
        let failed = |source| StageError::Io { action: "read", path: PathBuf::from(path), source };
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let skipped = file.metadata().map_err(failed)?.len().saturating_sub(most);
        let mut reader = BufReader::new(file);
        if skipped > 0 {
            // From the byte before, so that a line that begins right here is whole.
            reader.seek(SeekFrom::Start(skipped - 1)).map_err(failed)?;
            reader.skip_until(b'\n').map_err(failed)?;
        }
        let mut report = Self::default();
        let mut places: BTreeMap<String, usize> = BTreeMap::new();
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = reader.by_ref().take(MAX_LINE).read_until(b'\n', &mut line).map_err(failed)?;
            if read == 0 {
                return Ok(Some(report));
            }
            if !counts(&line) {
                continue;
            }
            let understood = serde_json::from_slice::<Value>(&line)
                .ok()
                .and_then(|value| report.take(&value, &mut places));
            report.skipped += u64::from(understood.is_none());
        }
    }

    /// How many downgrades there were since then.
    pub fn downgrades_since(&self, since: WallTime) -> usize {
        let all = self.sessions.iter().flat_map(|session| &session.downgrades);
        all.filter(|(at, _, _)| *at >= since).count()
    }

    /// How many downgrades there were since then in all executions of a state folder. Logs that cannot be read count for
    /// nothing: they are the affair of whoever reads them.
    pub fn all_downgrades_since(state: &Path, since: WallTime) -> usize {
        let files = super::files(state).unwrap_or_default();
        let logs: BTreeSet<PathBuf> = files.iter().map(|file| ExecutionLog::path_beside(file)).collect();
        logs.iter().filter_map(|log| downgrades_since(log, since).ok()).sum()
    }

    fn take(&mut self, line: &Value, places: &mut BTreeMap<String, usize>) -> Option<()> {
        let text = |key: &str| line.get(key)?.as_str().map(ToOwned::to_owned);
        let at: WallTime = text("timestamp")?.parse().ok()?;
        let status = text("status")?;
        // Lines of other programs have no session: each of their groups is one of its own.
        let id = text("session").or_else(|| text("execution_id"))?;
        let place = *places.entry(id.clone()).or_insert_with(|| {
            self.sessions.push(Session { id, ..Session::default() });
            self.sessions.len() - 1
        });
        let session = &mut self.sessions[place];
        if let Some(phase) = text("phase") {
            session.phase = phase;
        }
        let millis = |key: &str| line.get(key)?.as_u64().map(Duration::from_millis);
        match status.as_str() {
            "STARTED" => {
                let group = text("group_id")?;
                // One that began twice was interrupted before, and gone on with.
                let open =
                    session.groups.iter_mut().filter(|bar| bar.group == group && bar.ended_at.is_none());
                open.for_each(|bar| (bar.ended_at, bar.status) = (Some(at), "INTERRUPTED".to_owned()));
                let (began_at, ended_at, reason) = (at, None, None);
                session.groups.push(GroupBar { group, began_at, ended_at, status, reason });
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
            }),
            "ROLLBACK" | "METRICS" | "TUNED" | "NOTICED" => {}
            _ => {
                let group = text("group_id");
                let bar = session.groups.iter_mut().rev().find(|bar| {
                    bar.ended_at.is_none() && group.as_ref().is_none_or(|group| *group == bar.group)
                })?;
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
