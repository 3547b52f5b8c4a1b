//! The task queue of a swarm, `tasks.json`: tells the other workers who has a task, and how it ended.
//!
//! The original program reads the whole file, changes one task, writes `tasks.json.tmp` under `flock`, and renames it. We
//! take the same lock, and rename a file of our own over the queue, so that a writer of theirs that waits for the lock still
//! finds its file. Their reading is not under the lock: a change of ours in between is lost, and [`TaskQueue::keep`] makes
//! it again.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use lockkeeper_platform::folder;
use lockkeeper_platform::wall_clock::WallTime;
use rustix::fs::OFlags;
use thiserror::Error;

use crate::json::Json;

/// The variable with the name of the file, relative to the folder of the swarm.
pub const VARIABLE: &str = "AI_SWARM_TASKS_FILE";
/// How long another program may have the file locked.
const LOCK_LIMIT: Duration = Duration::from_secs(10);
/// How many times to look for a file that the original program is renaming, and the pause between.
const LOOKS: (u32, Duration) = (20, Duration::from_millis(10));
/// How many times to write an end that another program overwrites, and the pause before another look.
const ENDS: (u32, Duration) = (40, Duration::from_millis(50));
/// The largest file that is read.
const MAX_BYTES: u64 = 64 * 1024 * 1024;

/// The key under which newer programs write the worker of a task.
const NEWER_HOLDER: &str = "assigned_worker_id";
/// The key under which we remember our own assignment. Other programs keep keys that they do not know.
const OWN: &str = "lockkeeper";

/// Why the queue of a swarm cannot be changed.
#[derive(Debug, Error)]
pub enum QueueError {
    /// The file cannot be read, written or locked.
    #[error("cannot {what} the task queue {}", path.display())]
    Io {
        /// What failed.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The file is not a list of tasks.
    #[error("{} is not a task queue: {what}", path.display())]
    NotUnderstood {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
}

/// The worker and the run that execute a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Executor<'e> {
    /// The worker.
    pub worker: &'e str,
    /// Its run.
    pub run: &'e str,
}

/// How a task ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskEnd {
    /// It is done. The path is that of its output.
    Completed(String),
    /// It failed, for this reason.
    Failed(String),
    /// It was given up before its end: others may take it.
    Returned,
}

/// The outcome of an assignment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Assignment {
    /// It is assigned to the worker now, or can be.
    Assigned,
    /// Another worker has it. This is its status, with the worker.
    Taken(String),
    /// Another program has completed it. This is its status, with the worker.
    Completed(String),
    /// Another program has decided that nobody does it. This is its status, with the worker.
    Skipped(String),
    /// The file has no such task, or is gone.
    Absent,
}

/// The queue of one swarm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskQueue {
    path: PathBuf,
}

impl TaskQueue {
    /// Remembers the file. Does not touch it yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Assigns a task to a worker for a run, unless another program has it or has completed it. The caller holds the lock of the
    /// task. `is_abandoned` says that this lock replaced an expired one: then the worker that the task was assigned to is gone.
    pub fn assign(
        &self,
        task: &str,
        by: Executor<'_>,
        is_abandoned: bool,
        now: WallTime,
    ) -> Result<Assignment, QueueError> {
        let mut found = Assignment::Absent;
        self.change(task, &mut |entry| {
            found = found_in(entry);
            if is_abandoned && status(entry).eq_ignore_ascii_case("assigned") {
                found = Assignment::Assigned;
            }
            found == Assignment::Assigned && assign(entry, by, now)
        })?;
        Ok(found)
    }

    /// Returns what [`assign`](Self::assign) would find. Changes nothing, and does not lock the file.
    pub fn look(&self, task: &str) -> Result<Assignment, QueueError> {
        if self.is_gone() {
            return Ok(Assignment::Absent);
        }
        let Some(mut file) = self.parse()? else { return Ok(Assignment::Absent) };
        Ok(self.entry(&mut file, task)?.map_or(Assignment::Absent, |entry| found_in(entry)))
    }

    /// Assigns the task of a run again: another program has overwritten the assignment, or another worker goes on with the run.
    pub fn keep(&self, task: &str, by: Executor<'_>, now: WallTime) -> Result<(), QueueError> {
        self.change(task, &mut |entry| {
            // The caller has the lock of the task, so nobody else works on it.
            let is_kept = status(entry) == "assigned" && holder(entry) == Some(by.worker);
            let is_lost = status(entry) == "pending" || run(entry) == Some(by.run);
            !is_kept && is_lost && assign(entry, by, now)
        })
    }

    /// Writes the end of the task of a run. Looks again after a moment, and writes it again if another program has overwritten it
    /// with what that had read before: there is no later renewal that would do it.
    pub fn end(&self, task: &str, by: Executor<'_>, end: &TaskEnd, now: WallTime) -> Result<(), QueueError> {
        self.end_and_look_after(task, by, end, now, &mut || thread::sleep(ENDS.1))
    }

    fn end_and_look_after(
        &self,
        task: &str,
        by: Executor<'_>,
        end: &TaskEnd,
        now: WallTime,
        pause: &mut dyn FnMut(),
    ) -> Result<(), QueueError> {
        for _ in 0..ENDS.0 {
            let mut is_written = false;
            self.change(task, &mut |entry| {
                // Another program may have overwritten the assignment, too. The caller has the lock of the task.
                let is_lost = status(entry) == "pending";
                let is_own = is_lost || (is_ours(entry) && run(entry) == Some(by.run));
                is_written = is_own && write_end(entry, end, now);
                is_written
            })?;
            if !is_written {
                return Ok(());
            }
            pause();
        }
        let source = io::Error::other("another program overwrites it again and again");
        Err(QueueError::Io { what: "write", path: self.path.clone(), source })
    }

    /// Changes the entry of a task under the lock of the file. Nothing is written if `change` returns false.
    fn change(&self, task: &str, change: &mut dyn FnMut(&mut Json) -> bool) -> Result<(), QueueError> {
        if self.is_gone() {
            return Ok(());
        }
        let _lock = self.lock()?;
        let Some(mut file) = self.parse()? else { return Ok(()) };
        let is_changed = self.entry(&mut file, task)?.is_some_and(change);
        if is_changed { self.write(&file.to_pretty()) } else { Ok(()) }
    }

    /// Whether the file is gone. The original program moves it to `.bak` for a moment.
    fn is_gone(&self) -> bool {
        !self.path.exists() && !self.beside(".bak").exists()
    }

    fn parse(&self) -> Result<Option<Json>, QueueError> {
        let Some(text) = self.read()? else { return Ok(None) };
        Json::parse(&text).map(Some).map_err(|error| self.not_understood(&error.to_string()))
    }

    /// Finds the entry of a task.
    fn entry<'j>(&self, file: &'j mut Json, task: &str) -> Result<Option<&'j mut Json>, QueueError> {
        let is_task = |entry: &Json| match entry.get("id") {
            Some(Json::Text(id) | Json::Number(id)) => id == task,
            Some(_) | None => false,
        };
        let entries = match file {
            Json::List(entries) => Some(entries),
            Json::Object(fields) => fields.iter_mut().find_map(|(key, value)| match value {
                Json::List(entries) if key == "tasks" => Some(entries),
                _ => None,
            }),
            Json::Null | Json::Bool(_) | Json::Number(_) | Json::Text(_) => None,
        };
        let entries = entries.ok_or_else(|| self.not_understood("it has no list of tasks"))?;
        Ok(entries.iter_mut().find(|entry| is_task(entry)))
    }

    fn not_understood(&self, what: &str) -> QueueError {
        QueueError::NotUnderstood { path: self.path.clone(), what: what.to_owned() }
    }

    /// Locks the file as the original program does: by `flock` on `tasks.json.tmp`.
    fn lock(&self) -> Result<File, QueueError> {
        let path = self.beside(".tmp");
        let failed = |source| QueueError::Io { what: "lock", path: path.clone(), source };
        loop {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false).mode(0o600);
            let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            options.custom_flags(i32::try_from(flags.bits()).unwrap_or_default());
            let file = options.open(&path).map_err(failed)?;
            if !file.metadata().map_err(failed)?.is_file() {
                return Err(failed(io::Error::other("it is not a regular file")));
            }
            let held = folder::lock_within(file.into(), LOCK_LIMIT).map_err(failed)?;
            let file: File = held.ok_or_else(|| failed(io::ErrorKind::TimedOut.into()))?.into();
            let own = file.metadata().map_err(failed)?;
            // The original program has renamed the file that was locked.
            if fs::metadata(&path).is_ok_and(|found| (found.dev(), found.ino()) == (own.dev(), own.ino())) {
                return Ok(file);
            }
        }
    }

    fn read(&self) -> Result<Option<String>, QueueError> {
        let failed = |source| QueueError::Io { what: "read", path: self.path.clone(), source };
        for _ in 0..LOOKS.0 {
            match File::open(&self.path) {
                Ok(file) => {
                    let mut text = String::new();
                    file.take(MAX_BYTES).read_to_string(&mut text).map_err(failed)?;
                    return Ok(Some(text));
                }
                // The original program moves the file away before it renames the new one.
                Err(error) if error.kind() == io::ErrorKind::NotFound => thread::sleep(LOOKS.1),
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(None)
    }

    /// Replaces the file in one step. The old one stays as `tasks.json.bak`, as the original program leaves it.
    fn write(&self, text: &str) -> Result<(), QueueError> {
        let failed = |source| QueueError::Io { what: "write", path: self.path.clone(), source };
        let own = self.beside(&format!(".{}.new", std::process::id()));
        let kept = self.beside(&format!(".{}.old", std::process::id()));
        let written = || -> io::Result<()> {
            let mut file =
                OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&own)?;
            file.set_permissions(fs::metadata(&self.path)?.permissions())?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::hard_link(&self.path, &kept)?;
            fs::rename(&kept, self.beside(".bak"))?;
            fs::rename(&own, &self.path)
        };
        written().map_err(|error| {
            // A failed change leaves no files behind.
            let _ = fs::remove_file(&own);
            let _ = fs::remove_file(&kept);
            failed(error)
        })
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(suffix);
        PathBuf::from(name)
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Whether a task can be assigned, as far as its entry says.
fn found_in(entry: &Json) -> Assignment {
    let status = status(entry);
    if matches!(status, "pending" | "failed") || is_ours(entry) {
        return Assignment::Assigned;
    }
    let by = holder(entry).map_or_else(String::new, |holder| format!(" by {holder}"));
    let what = format!("{status}{by}");
    match status.to_ascii_lowercase().as_str() {
        "completed" | "done" => Assignment::Completed(what),
        "skipped" | "skip" | "cancelled" | "canceled" => Assignment::Skipped(what),
        _ => Assignment::Taken(what),
    }
}

fn assign(entry: &mut Json, by: Executor<'_>, now: WallTime) -> bool {
    entry.set("status", "assigned");
    entry.set("assigned_to", by.worker);
    if entry.get(NEWER_HOLDER).is_some() {
        entry.set(NEWER_HOLDER, by.worker);
    }
    entry.set("assigned_at", time(now).as_str());
    let own = [("worker", by.worker), ("run_id", by.run)];
    entry.set(OWN, Json::Object(own.map(|(key, value)| (key.to_owned(), value.into())).into()));
    true
}

/// Writes how a task ended. False if that is written already.
fn write_end(entry: &mut Json, end: &TaskEnd, now: WallTime) -> bool {
    let (ended, details) = match end {
        TaskEnd::Completed(output) => ("completed", Some(("result_file", output, "completed_at"))),
        TaskEnd::Failed(reason) => ("failed", Some(("error", reason, "failed_at"))),
        TaskEnd::Returned => ("pending", None),
    };
    if status(entry) == ended {
        return false;
    }
    entry.set("status", ended);
    // An attempt before may have failed.
    ["error", "failed_at"].into_iter().for_each(|key| entry.remove(key));
    match details {
        Some((key, value, at)) => {
            entry.set(key, value.as_str());
            entry.set(at, time(now).as_str());
        }
        None => entry.set("assigned_to", Json::Null),
    }
    true
}

fn status(entry: &Json) -> &str {
    entry.get("status").and_then(Json::as_text).unwrap_or("pending")
}

/// The worker of a task.
fn holder(entry: &Json) -> Option<&str> {
    [NEWER_HOLDER, "assigned_to"].into_iter().find_map(|key| entry.get(key)).and_then(Json::as_text)
}

/// The run that we assigned the task for.
fn run(entry: &Json) -> Option<&str> {
    entry.get(OWN)?.get("run_id")?.as_text()
}

/// Whether nobody has assigned the task since we did.
fn is_ours(entry: &Json) -> bool {
    let ours = entry.get(OWN).and_then(|own| own.get("worker")).and_then(Json::as_text);
    ours.is_some() && ours == holder(entry)
}

/// Local time as the original program writes it: `2026-01-31 12:00:00`.
fn time(now: WallTime) -> String {
    now.local().chars().take(19).map(|c| if c == 'T' { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests;
