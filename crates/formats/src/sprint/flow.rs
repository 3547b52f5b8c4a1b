//! Control flow of acquire, release and check: read, judge, decide, ask, act, and verify.
//!
//! The user is asked without the guard, so that nobody else has to wait. Afterwards only the lock that the question was
//! about may be overwritten. If another lock is there by then, the result is "blocked": an answer about one lock is
//! never used for another.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use lockkeeper_platform::wall_clock::WallTime;
use lockkeeper_platform::{poll, process};

use super::decide::{Found, Question, Step, decide};
use super::error_map;
use super::input::Call;
use super::judgement::Judged;
use super::messages;
use super::problem::Problem;
use super::record::Record;
use super::status::{Answer, LockInfo, Mode, Status};
use super::translations::{Lang, Text};
use crate::guard::{Folder, GuardError, Held, LockFile, Removal, Take};
use crate::safe_open::{SETTLING, Snapshot, UnsafeFile};
use crate::{HeldReason, StaleReason, Verdict};

/// The mode of the file. Records are not secret: everybody in the project may see who runs a sprint.
const FILE_MODE: u32 = 0o644;

/// How long another program may take to write a record. After that its temporary file is left over.
const WRITE_LIMIT: Duration = Duration::from_secs(10);

/// How many times, [`LINK_PAUSE`] apart, a file with a second name is looked at again.
const LINK_LOOKS: u32 = 10;
const LINK_PAUSE: Duration = Duration::from_millis(20);

/// Functions of the machine, which tests replace.
pub struct Machine<'a> {
    /// Reads the wall clock.
    pub now: &'a dyn Fn() -> WallTime,
    /// Says whether a process is alive. Sends no signal.
    pub is_alive: &'a dyn Fn(i64) -> io::Result<bool>,
    /// Sleeps.
    pub pause: &'a dyn Fn(Duration),
}

impl Machine<'static> {
    /// Returns the functions of the real machine.
    pub fn real() -> Self {
        Self { now: &WallTime::now, is_alive: &is_alive, pause: &|span| drop(poll::wait(&[], Some(span))) }
    }
}

/// Says whether a process is alive, as `kill -0` does. Fails for a number that does not mean a single process.
fn is_alive(pid: i64) -> io::Result<bool> {
    match u32::try_from(pid) {
        Ok(number) if (1..=i32::MAX as u32).contains(&number) => process::is_running(number),
        Ok(_) | Err(_) => {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not the number of a process"))
        }
    }
}

/// The user or program that called.
pub struct Caller<'a> {
    /// The language of questions and notices.
    pub lang: Lang,
    /// The language of the message in the answer.
    pub answer_lang: Lang,
    /// Asks the user to confirm. Returns true only for a yes.
    pub confirm: &'a mut dyn FnMut(&str) -> bool,
    /// Prints a notice that is not part of the answer.
    pub tell: &'a mut dyn FnMut(Notice<'_>),
    /// The process that holds the lock.
    pub pid: u32,
}

/// What is printed beside the answer.
#[derive(Clone, Copy, Debug)]
pub enum Notice<'n> {
    /// A sentence in the language of the caller.
    Sentence(&'n str),
    /// A warning that a question has to follow. The answer has it, too.
    Warning(&'n Problem),
}

/// A lock file that was read and judged.
struct Seen {
    snapshot: Snapshot,
    judged: Judged,
}

/// Executes a call.
pub fn run(call: &Call, machine: &Machine<'_>, caller: &mut Caller<'_>) -> Answer {
    let lock = match open(call) {
        Ok(lock) => lock,
        Err(error) => return Answer::failure(error_map::on_open(error), LockInfo::Absent),
    };
    let seen = match read_settled(&lock, call.mode, machine) {
        Ok(seen) => seen,
        Err(error) => return Answer::failure(error_map::on_look(error, call.mode), unread(call)),
    };
    let step = decide(call.mode, found(seen.as_ref()), call.force);
    let mut flow = Flow { call, machine, caller };
    match (step, seen) {
        // Only its user and root may take over or remove a lock.
        (Step::Override | Step::Ask(_), Some(seen)) if !may_change(&seen.snapshot) => {
            let message = messages::not_ours(&seen.judged, flow.caller.answer_lang);
            blocked(seen.judged, message)
        }
        (Step::Create | Step::Override | Step::Ask(_), None) => flow.take(lock, None),
        (Step::Create, Some(_)) => flow.take(lock, None),
        (Step::Override, Some(seen)) => flow.override_zombie(lock, seen),
        (Step::Ask(question), Some(seen)) => flow.ask(question, lock, seen),
        (Step::Remove | Step::Answer(Status::Released), seen) => flow.release(&lock, seen),
        (Step::Answer(status), Some(seen)) => flow.report(status, seen.judged),
        (Step::Answer(status), None) => {
            Answer::new(status, LockInfo::Absent, Text::Clean.fill(flow.caller.answer_lang, &[]))
        }
    }
}

struct Flow<'c, 'm, 'p> {
    call: &'c Call,
    machine: &'c Machine<'m>,
    caller: &'c mut Caller<'p>,
}

impl Flow<'_, '_, '_> {
    fn report(&self, status: Status, judged: Judged) -> Answer {
        let lang = self.caller.answer_lang;
        let message = match status {
            Status::ZombieDetected => messages::fill(Text::Zombie, &judged, lang),
            Status::Blocked | Status::Acquired | Status::Released | Status::Clean | Status::Failure => {
                messages::running(&judged, lang)
            }
        };
        Answer::new(status, LockInfo::judged(&judged), message).with_warnings(judged.warnings)
    }

    fn override_zombie(&mut self, lock: LockFile, seen: Seen) -> Answer {
        let told = messages::fill(Text::Override, &seen.judged, self.caller.lang);
        let answer = self.take(lock, Some(seen));
        if answer.status == Status::Acquired {
            (self.caller.tell)(Notice::Sentence(&told));
        }
        answer
    }

    fn ask(&mut self, question: Question, lock: LockFile, seen: Seen) -> Answer {
        for warning in &seen.judged.warnings {
            (self.caller.tell)(Notice::Warning(warning));
        }
        if (self.caller.confirm)(&messages::question(question, &seen.judged, self.caller.lang)) {
            return self.take(lock, Some(seen));
        }
        let message = messages::fill(Text::NotConfirmed, &seen.judged, self.caller.answer_lang);
        blocked(seen.judged, message)
    }

    /// Writes a new record over the one that was seen, or where there was none. Leaves any other record alone.
    fn take(&mut self, lock: LockFile, seen: Option<Seen>) -> Answer {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let (session, epic) = (text(&self.call.session_id), text(&self.call.epic_spec));
        let record = Record::new(self.caller.pid, &session, &epic, (self.machine.now)());
        let mut judge = |snapshot: &Snapshot| match &seen {
            Some(seen) if seen.snapshot.is_same(snapshot) => Verdict::Stale(StaleReason::Forced),
            Some(_) | None => Verdict::Held(HeldReason::Changed),
        };
        match lock.take(record.to_yaml().as_bytes(), &mut judge) {
            Ok(Take::Taken { held, .. }) => {
                let warnings = seen.map(|seen| seen.judged.warnings).unwrap_or_default();
                self.verify(&record, held).with_warnings(warnings)
            }
            Ok(Take::Busy { snapshot, .. }) => self.overtaken(snapshot.as_ref()),
            Err(error) => {
                let info = seen.map_or(LockInfo::Absent, |seen| LockInfo::judged(&seen.judged));
                Answer::failure(error_map::on_write(error), info)
            }
        }
    }

    /// Reads the lock back. Leaves a lock of another program alone.
    fn verify(&self, record: &Record, held: Held) -> Answer {
        let read_back = match held.lock().read() {
            Ok(Some(snapshot)) => Record::parse(snapshot.bytes()).ok(),
            Ok(None) => None,
            Err(error) => {
                let _ = held.release();
                let problem = Problem::VerifyFailed(Some(error_map::cause(error)));
                return Answer::failure(problem, unread(self.call));
            }
        };
        let is_ours = |read: &Record| (read.pid, &read.session_id) == (record.pid, &record.session_id);
        if !read_back.as_ref().is_some_and(is_ours) {
            // Removes the file only if we wrote it.
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

    /// Answers that another process was faster. The decision was not about its lock, so `force` does not count.
    fn overtaken(&self, snapshot: Option<&Snapshot>) -> Answer {
        let lang = self.caller.answer_lang;
        match snapshot.map(|snapshot| judge(snapshot, self.machine)) {
            Some(judged) if !judged.is_zombie() => {
                let message = messages::running(&judged, lang);
                blocked(judged, message)
            }
            Some(judged) => blocked(judged, Text::Overtaken.fill(lang, &[])),
            None => Answer::new(Status::Blocked, LockInfo::Absent, Text::Overtaken.fill(lang, &[])),
        }
    }

    fn release(&self, lock: &LockFile, seen: Option<Seen>) -> Answer {
        let mut warnings = seen.map(|seen| seen.judged.warnings).unwrap_or_default();
        // The warning about another user is not needed: the lock is removed, or an error says why it is not.
        warnings.retain(|warning| !matches!(warning, Problem::OtherUser(_)));
        let removed = match lock.remove(&mut may_change) {
            Ok(Removal::Removed(snapshot)) => Some(snapshot),
            Ok(Removal::Absent) => None,
            Ok(Removal::Lost(snapshot)) => {
                let problem = match may_change(&snapshot) {
                    true => Problem::DeleteFailed(io::ErrorKind::ResourceBusy.into()),
                    false => Problem::DeleteDenied(io::ErrorKind::PermissionDenied.into()),
                };
                let info = LockInfo::judged(&judge(&snapshot, self.machine));
                return Answer::failure(problem, info).with_warnings(warnings);
            }
            Err(error) => {
                let problem = error_map::on_delete(error);
                return Answer::failure(problem, unread(self.call)).with_warnings(warnings);
            }
        };
        if let (Some(expected), Some(removed)) = (&self.call.session_id, &removed) {
            warnings.extend(mismatch(expected, removed));
        }
        // Without a lock, a new temporary file may belong to a program that is about to take the lock.
        let older_than = if removed.is_some() { Duration::ZERO } else { WRITE_LIMIT };
        if let Err(error) = remove_leftover(self.call, self.machine, older_than) {
            warnings.push(Problem::LeftoverStays(error));
        }
        Answer::new(Status::Released, LockInfo::Absent, "Lock released successfully").with_warnings(warnings)
    }
}

fn mismatch(expected: &str, removed: &Snapshot) -> Option<Problem> {
    let actual = Record::parse(removed.bytes()).ok().and_then(|record| record.session_id).unwrap_or_default();
    let differs = actual != expected;
    differs.then(|| Problem::SessionMismatch { expected: expected.to_owned(), actual })
}

/// Removes the temporary file that an unfinished write of another program left behind.
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

pub(super) fn open(call: &Call) -> Result<LockFile, GuardError> {
    let is_record = |bytes: &[u8]| Record::parse(bytes).is_ok();
    Ok(LockFile::new(Folder::open(&call.root)?, call.name.clone(), FILE_MODE, is_record).of_anybody())
}

/// Says whether we may take over or remove this lock.
fn may_change(snapshot: &Snapshot) -> bool {
    snapshot.is_ours() || rustix::process::geteuid().is_root()
}

/// Describes a lock that could not be read: whether a file is there.
fn unread(call: &Call) -> LockInfo {
    let path = call.root.join(call.name.as_str());
    if path.symlink_metadata().is_ok() { LockInfo::Unread } else { LockInfo::Absent }
}

/// Reads the lock, without waiting for anybody who has the folder locked. If another program may still write the file,
/// waits until it should be done.
fn read_settled(lock: &LockFile, mode: Mode, machine: &Machine<'_>) -> Result<Option<Seen>, GuardError> {
    let Some(mut snapshot) = read_once(lock, mode, machine)? else { return Ok(None) };
    let mut judged = judge(&snapshot, machine);
    if judged.verdict == Verdict::Held(HeldReason::BeingWritten) {
        (machine.pause)(SETTLING.saturating_sub((machine.now)().since(snapshot.modified_at())));
        let Some(again) = read_once(lock, mode, machine)? else { return Ok(None) };
        judged = judge(&again, machine);
        snapshot = again;
    }
    Ok(Some(Seen { snapshot, judged }))
}

/// Reads the file. A program that creates it with `link` has a second name for it for a moment. A process of ours that was
/// killed at this moment leaves the second name; only a mode that may change something removes it.
fn read_once(lock: &LockFile, mode: Mode, machine: &Machine<'_>) -> Result<Option<Snapshot>, GuardError> {
    for _ in 0..LINK_LOOKS {
        match lock.peek() {
            Err(GuardError::UnsafeFile { source: UnsafeFile::Linked(_), .. }) => (machine.pause)(LINK_PAUSE),
            read => return read,
        }
    }
    match mode {
        Mode::Check => lock.peek(),
        Mode::Acquire | Mode::Release => lock.read(),
    }
}

fn judge(snapshot: &Snapshot, machine: &Machine<'_>) -> Judged {
    let now = (machine.now)();
    let mut judged =
        Judged::new(Record::parse(snapshot.bytes()), machine.is_alive, now, snapshot.is_settling(now));
    if !snapshot.is_ours() {
        judged.warnings.push(Problem::OtherUser(snapshot.owner()));
    }
    judged
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
