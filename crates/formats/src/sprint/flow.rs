//! Acquire, release and check: look, judge, decide, ask, act, and verify what was done.
//!
//! Nobody is kept waiting while a person thinks: the question is asked without the guard, and what is overwritten
//! afterwards is exactly what the question was about. If anything else is there by then, the lock is blocked: an
//! answer about one lock is never used on another.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use super::decide::{Found, Question, Step, decide};
use super::faults;
use super::input::Call;
use super::judge::Judged;
use super::problem::Problem;
use super::record::Record;
use super::status::{Answer, LockInfo, Status};
use super::texts::{Lang, Text};
use super::wording;
use crate::guard::{Folder, GuardError, Held, LockFile, Removal, Take};
use crate::hostile::{SETTLING, Sighting};
use crate::{HeldReason, StaleReason, Verdict};
use lockkeeper_platform::wall_clock::WallTime;
use lockkeeper_platform::{poll, process};

/// Records are no secret: whoever may enter the project may see who runs a sprint.
const ACCESS: u32 = 0o644;

/// A program that takes longer to write a record has given up.
const WRITE_LIMIT: Duration = Duration::from_secs(10);

/// What the lock needs to know of the machine.
pub struct Machine<'a> {
    /// Reads the wall clock.
    pub now: &'a dyn Fn() -> WallTime,
    /// Tells whether a process lives, without disturbing it.
    pub is_alive: &'a dyn Fn(i64) -> io::Result<bool>,
    /// Lets some time pass.
    pub pause: &'a dyn Fn(Duration),
}

impl Machine<'static> {
    /// The machine that this runs on.
    pub fn real() -> Self {
        Self {
            now: &WallTime::now,
            is_alive: &|pid| u32::try_from(pid).map_or(Ok(false), process::is_running),
            pause: &|span| drop(poll::wait(&[], Some(span))),
        }
    }
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
        Err(error) => return Answer::failure(faults::on_open(error), LockInfo::Absent),
    };
    let seen = match look_settled(&lock, machine) {
        Ok(seen) => seen,
        Err(error) => return Answer::failure(faults::on_look(error, call.mode), LockInfo::Unread),
    };
    let step = decide(call.mode, found(seen.as_ref()), call.force);
    let mut flow = Flow { call, machine, caller };
    match (step, seen) {
        (Step::Create | Step::Override | Step::Ask(_), None) => flow.take(lock, None),
        (Step::Create, Some(_)) => flow.take(lock, None),
        (Step::Override, Some(seen)) => flow.override_zombie(lock, seen),
        (Step::Ask(question), Some(seen)) => flow.ask(question, lock, seen),
        (Step::Remove | Step::Answer(Status::Released), seen) => flow.release(&lock, seen),
        (Step::Answer(status), Some(seen)) => flow.tell_of(status, seen.judged),
        (Step::Answer(status), None) => {
            Answer::new(status, LockInfo::Absent, Text::Clean.fill(flow.caller.lang, &[]))
        }
    }
}

struct Flow<'c, 'm, 'p> {
    call: &'c Call,
    machine: &'c Machine<'m>,
    caller: &'c mut Caller<'p>,
}

impl Flow<'_, '_, '_> {
    fn tell_of(&self, status: Status, judged: Judged) -> Answer {
        let lang = self.caller.lang;
        let message = match status {
            Status::ZombieDetected => wording::tell(Text::Zombie, &judged, lang),
            Status::Blocked | Status::Acquired | Status::Released | Status::Clean | Status::Failure => {
                wording::running(&judged, lang)
            }
        };
        Answer::new(status, LockInfo::judged(&judged), message).with_warnings(judged.warnings)
    }

    fn override_zombie(&mut self, lock: LockFile, seen: Seen) -> Answer {
        let told = wording::tell(Text::Override, &seen.judged, self.caller.lang);
        let answer = self.take(lock, Some(seen));
        if answer.status == Status::Acquired {
            (self.caller.tell)(&told);
        }
        answer
    }

    fn ask(&mut self, question: Question, lock: LockFile, seen: Seen) -> Answer {
        let lang = self.caller.lang;
        if (self.caller.confirm)(&wording::question(question, &seen.judged, lang)) {
            return self.take(lock, Some(seen));
        }
        let message = wording::tell(Text::NotConfirmed, &seen.judged, lang);
        blocked(seen.judged, message)
    }

    /// Puts a new record in place of what was seen, or where nothing was. Anything else that is there stays.
    fn take(&mut self, lock: LockFile, seen: Option<Seen>) -> Answer {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let (session, epic) = (text(&self.call.session_id), text(&self.call.epic_spec));
        let record = Record::new(self.caller.pid, &session, &epic, (self.machine.now)());
        let mut judge = |sighting: &Sighting| match &seen {
            Some(seen) if seen.sighting.is_same(sighting) => Verdict::Stale(StaleReason::Forced),
            Some(_) | None => Verdict::Held(HeldReason::Changed),
        };
        match lock.take(record.to_yaml().as_bytes(), &mut judge) {
            Ok(Take::Taken { held, .. }) => {
                let warnings = seen.map(|seen| seen.judged.warnings).unwrap_or_default();
                self.verify(&record, held).with_warnings(warnings)
            }
            Ok(Take::Busy { sighting, .. }) => self.overtaken(sighting.as_ref()),
            Err(error) => {
                let info = seen.map_or(LockInfo::Absent, |seen| LockInfo::judged(&seen.judged));
                Answer::failure(faults::on_write(error), info)
            }
        }
    }

    /// Reads the lock back. What is not ours is left alone.
    fn verify(&self, record: &Record, held: Held) -> Answer {
        let read_back = match held.lock().look() {
            Ok(Some(sighting)) => Record::parse(sighting.bytes()).ok(),
            Ok(None) => None,
            Err(error) => {
                let _ = held.release();
                return Answer::failure(Problem::VerifyFailed(Some(faults::cause(error))), LockInfo::Unread);
            }
        };
        let is_ours = |read: &Record| (read.pid, &read.session_id) == (record.pid, &record.session_id);
        if !read_back.as_ref().is_some_and(is_ours) {
            // Removes it only if it is the file that we wrote.
            let _ = held.release();
            let info = read_back.map_or(LockInfo::Absent, |record| {
                LockInfo::judged(&Judged::new(Ok(record), self.machine.is_alive, (self.machine.now)(), false))
            });
            return Answer::failure(Problem::VerifyFailed(None), info);
        }
        let session = record.session_id.as_deref().unwrap_or_default();
        let message = format!("Lock acquired successfully for session {session}");
        Answer::new(Status::Acquired, LockInfo::taken(record), message)
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

    fn release(&self, lock: &LockFile, seen: Option<Seen>) -> Answer {
        let mut warnings = seen.map(|seen| seen.judged.warnings).unwrap_or_default();
        let removed = match lock.remove(&mut |_| true) {
            Ok(Removal::Removed(sighting)) => Some(sighting),
            Ok(Removal::Absent) => None,
            Ok(Removal::Lost(_)) => {
                let problem = Problem::DeleteFailed(io::ErrorKind::ResourceBusy.into());
                return Answer::failure(problem, LockInfo::Unread).with_warnings(warnings);
            }
            Err(error) => {
                return Answer::failure(faults::on_delete(error), LockInfo::Unread).with_warnings(warnings);
            }
        };
        if let (Some(expected), Some(removed)) = (&self.call.session_id, &removed) {
            warnings.extend(mismatch(expected, removed));
        }
        // While nobody had the lock, a young temporary file may belong to somebody who is just about to take it.
        let older_than = if removed.is_some() { Duration::ZERO } else { WRITE_LIMIT };
        if let Err(error) = remove_leftover(self.call, self.machine, older_than) {
            warnings.push(Problem::LeftoverStays(error));
        }
        Answer::new(Status::Released, LockInfo::Absent, "Lock released successfully").with_warnings(warnings)
    }
}

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

#[cfg(test)]
mod tests;
