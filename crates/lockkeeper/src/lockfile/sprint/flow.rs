//! Acquire, release and check: look, judge, decide, ask, act, and verify what was done.
//!
//! Nobody is kept waiting while a person thinks: the question is asked without the guard, and what is overwritten
//! afterwards is exactly what the question was about. If anything else is there by then, the lock is blocked: an
//! answer about one lock is never used on another.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use super::decide::{Found, Step, decide};
use super::input::{Action, Call};
use super::judge::Judged;
use super::problem::Problem;
use super::record::Record;
use super::status::{Answer, LockInfo, Mode, Status};
use super::texts::{Lang, Text};
use super::wording;
use crate::clock::WallTime;
use crate::lockfile::guard::{Folder, GuardError, Held, LockFile, Removal, Take};
use crate::lockfile::hostile::{HostileError, SETTLING, Sighting};
use crate::lockfile::{HeldReason, StaleReason, Verdict};

/// Records are no secret: whoever may enter the project may see who runs a sprint.
const ACCESS: u32 = 0o644;

/// What the lock needs to know of the machine.
pub struct Machine<'a> {
    /// Reads the wall clock.
    pub now: &'a dyn Fn() -> WallTime,
    /// Tells whether a process lives, without disturbing it.
    pub is_alive: &'a dyn Fn(i64) -> io::Result<bool>,
    /// Lets some time pass.
    pub pause: &'a dyn Fn(Duration),
}

/// The person, or program, that called.
pub struct Caller<'a> {
    /// The language to speak.
    pub lang: Lang,
    /// Asks a question: true only for a yes.
    pub confirm: &'a mut dyn FnMut(&str) -> bool,
    /// Tells what was done beside what the answer says.
    pub tell: &'a mut dyn FnMut(&str),
    /// The process that stands for the sprint.
    pub pid: u32,
}

/// What lay at the path, and what is to be made of it.
struct Seen {
    sighting: Sighting,
    judged: Judged,
}

/// Does what was asked for.
pub fn run(call: &Call, machine: &Machine<'_>, caller: &mut Caller<'_>) -> Answer {
    let lock = match open(call) {
        Ok(lock) => lock,
        Err(error) => return Answer::failure(on_open(error), LockInfo::Absent),
    };
    let seen = match look_settled(&lock, machine) {
        Ok(seen) => seen,
        Err(error) => return Answer::failure(on_look(error, call.mode()), LockInfo::Unread),
    };
    match &call.action {
        Action::Acquire { session_id, epic_spec, force } => {
            let record = Record::new(caller.pid, session_id, epic_spec, (machine.now)());
            Acquire { machine, caller, record, force: *force }.run(lock, seen)
        }
        Action::Release { session_id } => release(call, &lock, machine, session_id.as_deref(), seen),
        Action::Check => check(seen, caller.lang),
    }
}

struct Acquire<'c, 'm, 'p> {
    machine: &'c Machine<'m>,
    caller: &'c mut Caller<'p>,
    record: Record,
    force: bool,
}

impl Acquire<'_, '_, '_> {
    fn run(mut self, lock: LockFile, seen: Option<Seen>) -> Answer {
        let lang = self.caller.lang;
        let step = decide(Mode::Acquire, found(seen.as_ref()), self.force);
        let Some(seen) = seen else { return self.take(lock, None) };
        match step {
            Step::Create => self.take(lock, Some(seen)),
            Step::Override => {
                let told = wording::tell(Text::Override, &seen.judged, lang);
                let answer = self.take(lock, Some(seen));
                if answer.status == Status::Acquired {
                    (self.caller.tell)(&told);
                }
                answer
            }
            Step::Ask(question) => {
                if (self.caller.confirm)(&wording::question(question, &seen.judged, lang)) {
                    return self.take(lock, Some(seen));
                }
                let message = wording::tell(Text::NotConfirmed, &seen.judged, lang);
                blocked(seen.judged, message)
            }
            Step::Answer(_) | Step::Remove => {
                let message = wording::running(&seen.judged, lang);
                blocked(seen.judged, message)
            }
        }
    }

    /// Puts the record in place of what was seen, or where nothing was. Anything else that is there stays.
    fn take(&mut self, lock: LockFile, seen: Option<Seen>) -> Answer {
        let mut judge = |sighting: &Sighting| match &seen {
            Some(seen) if seen.sighting.is_same(sighting) => Verdict::Stale(StaleReason::Forced),
            Some(_) | None => Verdict::Held(HeldReason::Changed),
        };
        match lock.take(self.record.to_yaml().as_bytes(), &mut judge) {
            Ok(Take::Taken { held, .. }) => {
                let warnings = seen.map(|seen| seen.judged.warnings).unwrap_or_default();
                self.verify(held).with_warnings(warnings)
            }
            Ok(Take::Busy { sighting, .. }) => self.overtaken(sighting.as_ref()),
            Err(error) => {
                let info = seen.map_or(LockInfo::Absent, |seen| LockInfo::judged(&seen.judged));
                Answer::failure(on_write(error), info)
            }
        }
    }

    /// Reads the lock back. What is not ours is left alone.
    fn verify(&self, held: Held) -> Answer {
        let read_back = match held.lock().look() {
            Ok(Some(sighting)) => Record::parse(sighting.bytes()).ok(),
            Ok(None) => None,
            Err(error) => {
                let _ = held.release();
                return Answer::failure(Problem::VerifyFailed(Some(cause(error))), LockInfo::Unread);
            }
        };
        let is_ours = read_back
            .as_ref()
            .is_some_and(|read| read.pid == self.record.pid && read.session_id == self.record.session_id);
        if !is_ours {
            // Removes it only if it is the file that we wrote.
            let _ = held.release();
            let info = read_back.map_or(LockInfo::Absent, |record| {
                LockInfo::judged(&Judged::new(Ok(record), self.machine.is_alive, (self.machine.now)(), false))
            });
            return Answer::failure(Problem::VerifyFailed(None), info);
        }
        let session = self.record.session_id.as_deref().unwrap_or_default();
        let message = format!("Lock acquired successfully for session {session}");
        Answer::new(Status::Acquired, LockInfo::taken(&self.record), message)
    }

    /// Another one was faster. Whatever it left is not what was decided about, so `force` does not count.
    fn overtaken(&self, sighting: Option<&Sighting>) -> Answer {
        let lang = self.caller.lang;
        match sighting.map(|sighting| judge(sighting, self.machine)) {
            Some(judged) if !judged.is_zombie() => {
                let message = wording::running(&judged, lang);
                blocked(judged, message)
            }
            Some(judged) => blocked(judged, Text::Overtaken.fill(lang, &[])),
            None => Answer::new(Status::Blocked, LockInfo::Absent, Text::Overtaken.fill(lang, &[])),
        }
    }
}

fn check(seen: Option<Seen>, lang: Lang) -> Answer {
    let Some(Seen { judged, .. }) = seen else {
        return Answer::new(Status::Clean, LockInfo::Absent, Text::Clean.fill(lang, &[]));
    };
    let (status, message) = if judged.is_zombie() {
        (Status::ZombieDetected, wording::tell(Text::Zombie, &judged, lang))
    } else {
        (Status::Blocked, wording::running(&judged, lang))
    };
    Answer::new(status, LockInfo::judged(&judged), message).with_warnings(judged.warnings)
}

fn release(
    call: &Call,
    lock: &LockFile,
    machine: &Machine<'_>,
    expected: Option<&str>,
    seen: Option<Seen>,
) -> Answer {
    let mut warnings = seen.map(|seen| seen.judged.warnings).unwrap_or_default();
    let removal = match lock.remove(&mut |_| true) {
        Ok(removal) => removal,
        Err(error) => return Answer::failure(on_delete(error), LockInfo::Unread).with_warnings(warnings),
    };
    let removed = match removal {
        Removal::Removed(sighting) => Some(sighting),
        Removal::Absent => None,
        Removal::Lost(_) => {
            let problem = Problem::DeleteFailed(io::ErrorKind::ResourceBusy.into());
            return Answer::failure(problem, LockInfo::Unread).with_warnings(warnings);
        }
    };
    if let (Some(expected), Some(removed)) = (expected, &removed) {
        warnings.extend(mismatch(expected, removed));
    }
    // While nobody had the lock, a young temporary file may belong to somebody who is just about to take it.
    let older_than = if removed.is_some() { Duration::ZERO } else { WRITE_LIMIT };
    if let Err(error) = remove_leftover(call, machine, older_than) {
        warnings.push(Problem::LeftoverStays(error));
    }
    Answer::new(Status::Released, LockInfo::Absent, "Lock released successfully").with_warnings(warnings)
}

/// A program that takes longer to write a record has given up.
const WRITE_LIMIT: Duration = Duration::from_secs(10);

fn mismatch(expected: &str, removed: &Sighting) -> Option<Problem> {
    let actual = Record::parse(removed.bytes()).ok().and_then(|record| record.session_id).unwrap_or_default();
    let differs = actual != expected;
    differs.then(|| Problem::SessionMismatch { expected: expected.to_owned(), actual })
}

/// Removes what an unfinished write of another program left behind.
fn remove_leftover(call: &Call, machine: &Machine<'_>, older_than: Duration) -> io::Result<()> {
    let path = call.root.join(call.temporary.as_str());
    let gone = |error: io::Error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) };
    let modified_at = match path.symlink_metadata() {
        Ok(metadata) => WallTime::from_micros(metadata.mtime().saturating_mul(1_000_000)),
        Err(error) => return gone(error),
    };
    if (machine.now)().since(modified_at) < older_than {
        return Ok(());
    }
    std::fs::remove_file(path).or_else(gone)
}

fn open(call: &Call) -> Result<LockFile, GuardError> {
    let is_record = |bytes: &[u8]| Record::parse(bytes).is_ok();
    Ok(LockFile::new(Folder::open(&call.root)?, call.name.clone(), ACCESS, is_record))
}

/// Looks at the lock. A file without a record that somebody may just be writing gets the time to become one.
fn look_settled(lock: &LockFile, machine: &Machine<'_>) -> Result<Option<Seen>, GuardError> {
    let Some(mut sighting) = lock.look()? else { return Ok(None) };
    let mut judged = judge(&sighting, machine);
    if judged.verdict == Verdict::Held(HeldReason::BeingWritten) {
        (machine.pause)(SETTLING.saturating_sub((machine.now)().since(sighting.modified_at())));
        let Some(again) = lock.look()? else { return Ok(None) };
        judged = judge(&again, machine);
        sighting = again;
    }
    Ok(Some(Seen { sighting, judged }))
}

fn judge(sighting: &Sighting, machine: &Machine<'_>) -> Judged {
    let now = (machine.now)();
    Judged::new(Record::parse(sighting.bytes()), machine.is_alive, now, sighting.is_settling(now))
}

fn found(seen: Option<&Seen>) -> Found {
    match seen.map(|seen| seen.judged.is_zombie()) {
        None => Found::Nothing,
        Some(false) => Found::Active,
        Some(true) => Found::Zombie,
    }
}

fn blocked(judged: Judged, message: String) -> Answer {
    Answer::new(Status::Blocked, LockInfo::judged(&judged), message).with_warnings(judged.warnings)
}

fn on_open(error: GuardError) -> Problem {
    Problem::RootNotAccessible(Some(cause(error)))
}

/// Another user's lock can be seen, but not be removed.
fn on_look(error: GuardError, mode: Mode) -> Problem {
    match (&error, mode) {
        (GuardError::Hostile { source: HostileError::Owner(_), .. }, Mode::Release) => {
            Problem::DeleteDenied(cause(error))
        }
        (_, Mode::Acquire | Mode::Release | Mode::Check) => Problem::CannotRead(cause(error)),
    }
}

fn on_write(error: GuardError) -> Problem {
    match error {
        GuardError::Hostile { .. } => Problem::CannotRead(cause(error)),
        GuardError::Rename { source, .. } => Problem::RenameFailed(source),
        GuardError::Write { source, .. } => Problem::WriteFailed(source),
        GuardError::Folder { .. }
        | GuardError::Network { .. }
        | GuardError::Unlockable { .. }
        | GuardError::Stuck { .. }
        | GuardError::ReadBack { .. } => Problem::WriteFailed(cause(error)),
    }
}

fn on_delete(error: GuardError) -> Problem {
    match error {
        GuardError::Hostile { .. } => on_look(error, Mode::Release),
        GuardError::Rename { source, .. } | GuardError::Write { source, .. }
            if source.kind() == io::ErrorKind::PermissionDenied =>
        {
            Problem::DeleteDenied(source)
        }
        GuardError::Rename { source, .. } | GuardError::Write { source, .. } => Problem::DeleteFailed(source),
        GuardError::Folder { .. }
        | GuardError::Network { .. }
        | GuardError::Unlockable { .. }
        | GuardError::Stuck { .. }
        | GuardError::ReadBack { .. } => Problem::DeleteFailed(cause(error)),
    }
}

/// An error with its own causes, as the cause of another.
fn cause(error: GuardError) -> io::Error {
    io::Error::other(error)
}

#[cfg(test)]
mod tests;
