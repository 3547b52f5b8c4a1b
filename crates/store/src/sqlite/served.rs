//! Served folder: answers the calls of other machines from the state folder of this one.
//!
//! The moments of records are on the boot clock of this machine. Other machines get them with a distance added, which is chosen
//! when the database is made, so that their clock goes on after a reboot.

use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::thread;
use std::time::Duration;

use lockkeeper_core::id::WakerId;
use lockkeeper_core::records::{Records, Scan};
use lockkeeper_core::resource::{Key, KeyRange};
use lockkeeper_core::time::{Moment, Ttl};
use lockkeeper_platform::wall_clock::WallTime;
use lockkeeper_platform::{clock, random};
use serde::Serialize;

use super::records::SqliteRecords;
use super::silence::Served;
use super::{SqliteStore, change_log, execute, failed, moved, rows};
use crate::http::BLOCK;
use crate::http::messages::{
    self, Answer, Call, Read, ReadAnswer, Request, Wanted, effects_of, record_to_text,
};
use crate::optimistic::parts::Found;
use crate::runs::{ChangeSignal, ServedRuns};
use crate::{Granted, LeaseStore, SqliteRunStore, StoreError, Transaction, Waker};

/// A client whose clock is ahead by more than this is refused.
const AHEAD: Duration = Duration::from_secs(1);

/// A state folder that other machines use.
pub struct ServedFolder {
    store: SqliteStore,
    project: String,
    /// What tells this database from the one before a reboot.
    incarnation: String,
    /// What is added to moments for other machines, in microseconds.
    distance: i64,
    /// Since when the database remembers everything, on the clock of this machine.
    since: i64,
    runs: ServedRuns,
}

impl ServedFolder {
    /// Opens the folder for the clients of a project. `session` is theirs. The first time, `translate` converts requests that wait:
    /// their folders may be written differently.
    pub fn open(
        folder: &Path,
        boot: &str,
        project: &str,
        session: Ttl,
        translate: &dyn Fn(lockkeeper_core::request::Request) -> lockkeeper_core::request::Request,
    ) -> Result<Self, StoreError> {
        let store = SqliteStore::open(folder, boot)?;
        // Before the file that says that the folder is served.
        let runs = SqliteRunStore::open(folder, boot)?;
        runs.serve(translate)?;
        let (incarnation, distance, since) = prepare(&store, folder, boot, session)?;
        let runs = ServedRuns::new(runs, distance);
        Ok(Self { store, project: project.to_owned(), incarnation, distance, since, runs })
    }

    /// Answers one call. Fails only if the folder was removed or replaced.
    pub fn answer(&self, request: &[u8]) -> Result<Vec<u8>, StoreError> {
        let answer = match serde_json::from_slice::<Request<Call>>(request) {
            Err(error) => Answer::Refused(format!("the request cannot be read: {error}")),
            Ok(request) if request.format != messages::FORMAT => {
                Answer::Refused("client and server are of different versions".to_owned())
            }
            Ok(request) if request.project != self.project => {
                Answer::Refused(format!("it serves the project `{}`", self.project))
            }
            Ok(Request { call: Call::Runs(call), .. }) => {
                self.store.check_place()?;
                return to_bytes(&self.runs.answer(call));
            }
            Ok(request) => match self.called(request.call) {
                Ok(answer) => answer,
                Err(StoreError::Mismatch(what)) => Answer::Misfit(what),
                Err(error @ StoreError::Removed { .. }) => return Err(error),
                Err(error) => Answer::Failed(error.to_string()),
            },
        };
        to_bytes(&answer)
    }

    /// Subscribes to the changes of requests and runs, of all processes.
    pub fn changes(&self) -> Result<Box<dyn ChangeSignal>, StoreError> {
        self.runs.changes()
    }

    /// The waker of a process on another machine. A FIFO that a killed server left is replaced.
    pub fn waker(&self, id: WakerId) -> Result<ServedWaker, StoreError> {
        let waker = match self.store.waker_with_id(id) {
            Err(StoreError::Io { source, .. }) if source.kind() == io::ErrorKind::AlreadyExists => {
                let _ = self.store.wake_sender.remove(id);
                self.store.waker_with_id(id)
            }
            made => made,
        };
        Ok(ServedWaker { waker: waker?, distance: self.distance })
    }

    fn called(&self, call: Call) -> Result<Answer, StoreError> {
        match call {
            Call::Read(read) => self.read(&read).map(Answer::Read),
            Call::Commit(commit) => self.commit(&commit),
            Call::Raise(above) => self.store.raise_numbers(above).map(|_| Answer::Raised),
            Call::Settle { incarnation, number } => self.settle(&incarnation, number),
            Call::Runs(_) => Err(StoreError::Mismatch("a call about runs".to_owned())),
        }
    }

    fn read(&self, read: &Read) -> Result<ReadAnswer, StoreError> {
        let mut records = self.begin(read.draws)?;
        let (_, version) = records.versions()?;
        let found = match &read.wanted {
            Wanted::Nothing => Vec::new(),
            Wanted::One(id) => {
                let id = lockkeeper_core::id::LeaseId(*id);
                let lease = records.lease(id)?.map(Found::Lease);
                lease.or(records.ticket(id)?.map(Found::Ticket)).into_iter().collect()
            }
            Wanted::All => {
                let (leases, tickets) = records.all()?;
                leases.into_iter().map(Found::Lease).chain(tickets.into_iter().map(Found::Ticket)).collect()
            }
            Wanted::In { exact, below } => {
                let exact = exact.iter().cloned().map(Key::from_text).collect();
                let range = KeyRange { exact, below: below.clone().map(Key::from_text) };
                let leases = records.leases(&range)?.into_iter().map(Found::Lease);
                let tickets = records.tickets(&range, Scan::Forward(None), usize::MAX)?;
                leases.chain(tickets.into_iter().map(Found::Ticket)).collect()
            }
        };
        let text = |found: Found| record_to_text(&shifted(found, self.distance));
        let mut before = Vec::new();
        if let Some(as_of) = read.as_of {
            let Some(changes) = records.changes_after(as_of)? else {
                let source = io::Error::other("the snapshot is too old");
                return Err(StoreError::io("read", &self.store.path, source));
            };
            before.extend(changes.into_iter().map(|(id, history)| {
                let (_, first) = history.into_iter().next().unwrap_or_default();
                (id.0, first.map(text))
            }));
        }
        let mut number = None;
        for _ in 0..if read.draws { BLOCK } else { 0 } {
            let next = records.next_number()?;
            number = number.or(Some(next));
        }
        Ok(ReadAnswer {
            incarnation: self.incarnation.clone(),
            now: records.now().as_micros() + self.distance,
            since: self.since + self.distance,
            version,
            number,
            records: found.into_iter().map(text).collect(),
            before,
        })
    }

    fn commit(&self, commit: &messages::Commit) -> Result<Answer, StoreError> {
        moved::refuse(&self.store.folder)?;
        let decided_at = Moment::from_micros(commit.now - self.distance);
        let ahead = decided_at.since(clock::now());
        if ahead > AHEAD {
            return Ok(Answer::Failed("the clock of this client is ahead".to_owned()));
        }
        // No moment in a record is later than the clock.
        thread::sleep(ahead);
        let mut records = self.begin(true)?;
        let now = records.now().as_micros() + self.distance;
        let is_over = commit.incarnation != self.incarnation || made(&records, commit.number)?.is_some();
        if is_over || records.has_changed(commit)? {
            return Ok(Answer::Commit { made: false, now });
        }
        let changes =
            commit.changes.iter().map(|change| change.change(|found| shifted(found, -self.distance)));
        let changes = changes.collect::<Result<Vec<_>, _>>()?;
        if !changes.is_empty() {
            note(&records, commit.number, true)?;
        }
        let effects = effects_of(&commit.wakes, &commit.removes);
        let _ = Box::new(records).commit(changes, &effects)?;
        Ok(Answer::Commit { made: true, now })
    }

    fn settle(&self, incarnation: &str, number: i64) -> Result<Answer, StoreError> {
        if incarnation != self.incarnation {
            return Ok(Answer::Failed("the database was made anew since".to_owned()));
        }
        let records = self.begin(true)?;
        if let Some(made) = made(&records, number)? {
            return Ok(Answer::Settled { made });
        }
        note(&records, number, false)?;
        self.store.database(execute(&records.connection, "COMMIT"))?;
        Ok(Answer::Settled { made: false })
    }

    fn begin(&self, writes: bool) -> Result<SqliteRecords<'_>, StoreError> {
        let gate = self.store.folder.join("gate");
        let lock = || self.store.write_lock.lock().map_err(|error| StoreError::lock(&gate, error));
        let lock = writes.then(lock).transpose()?;
        self.store.check_place()?;
        SqliteRecords::begin(&self.store, self.store.connection()?, lock)
    }
}

fn to_bytes(answer: &impl Serialize) -> Result<Vec<u8>, StoreError> {
    serde_json::to_vec(answer).map_err(|error| StoreError::Mismatch(error.to_string()))
}

/// Whether a commit was made; none if nobody knows it.
fn made(records: &SqliteRecords<'_>, number: i64) -> Result<Option<bool>, StoreError> {
    let sql = "SELECT made FROM decision WHERE number = ?1";
    Ok(records.query(sql, [number], |row| rows::get(row, 0))?.pop())
}

/// Notes what became of a commit. The last 4,096 are kept.
fn note(records: &SqliteRecords<'_>, number: i64, made: bool) -> Result<(), StoreError> {
    records.execute("INSERT INTO decision (number, made) VALUES (?1, ?2)", (number, made))?;
    records.execute("DELETE FROM decision WHERE place <= last_insert_rowid() - 4096", [])?;
    Ok(())
}

/// Makes the tables of a served folder, unless they are there. Returns the incarnation, the distance of its clock, and since when it
/// remembers.
fn prepare(
    store: &SqliteStore,
    folder: &Path,
    boot: &str,
    session: Ttl,
) -> Result<(String, i64, i64), StoreError> {
    let lock = store.write_lock.lock();
    let _alone = lock.map_err(|error| StoreError::lock(&folder.join("gate"), error))?;
    let connection = store.connection()?;
    let about = "SELECT incarnation, distance, since FROM served";
    let read = || connection.query_row(about, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
    let tables = "SELECT count(*) FROM sqlite_schema WHERE name = 'served'";
    let is_made: i64 = store.database(connection.query_row(tables, [], |row| row.get(0)))?;
    let span = i64::try_from(session.get().as_micros()).unwrap_or(i64::MAX);
    if is_made == 0 {
        let now = clock::now().as_micros();
        let since = match Served::read(folder) {
            // It was never served, so nobody comes back, however long the sessions of clients are.
            None => now - i64::try_from(Ttl::MAX.as_micros()).unwrap_or(i64::MAX),
            Some(last) if last.boot != boot => 0,
            // The database was removed.
            Some(_) => now,
        };
        let number = random::number().map_err(|error| failed("draw a number for", folder, error))?;
        let distance = WallTime::now().as_micros() - now;
        let script = format!(
            "BEGIN IMMEDIATE;{}INSERT INTO served VALUES ('{number:016x}', {distance}, {since});COMMIT;",
            change_log::TABLES
        );
        store.database(connection.execute_batch(&script))?;
    }
    let (incarnation, distance, since) = store.database(read())?;
    let served = Served { boot: boot.to_owned(), until: since + span, session: span };
    if Served::read(folder).as_ref() != Some(&served) {
        served.write(folder).map_err(|error| failed("write to", &folder.join("served"), error))?;
    }
    Ok((incarnation, distance, since))
}

/// A record with all its moments moved.
fn shifted(found: Found, by: i64) -> Found {
    let moved = |moment: Moment| Moment::from_micros(moment.as_micros().saturating_add(by));
    match found {
        Found::Lease(mut lease) => {
            lease.acquired_at = moved(lease.acquired_at);
            lease.heartbeat_at = moved(lease.heartbeat_at);
            lease.pickup_by = lease.pickup_by.map(moved);
            Found::Lease(lease)
        }
        Found::Ticket(mut ticket) => {
            ticket.enqueued_at = moved(ticket.enqueued_at);
            ticket.seen_at = moved(ticket.seen_at);
            // An upgrade is before everybody, at no moment.
            if ticket.rank.at != i64::MIN {
                ticket.rank.at = ticket.rank.at.saturating_add(by);
            }
            Found::Ticket(ticket)
        }
    }
}

/// The waker of a process on another machine. Dropping it removes it.
pub struct ServedWaker {
    waker: Box<dyn Waker>,
    distance: i64,
}

impl ServedWaker {
    /// Readable after a wake-up.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.waker.as_fd()
    }

    /// Forgets all wake-ups so far. Returns what the last one says, as the client reads it.
    pub fn receive(&self) -> String {
        let granted = self.waker.receive().map(|Granted { id, token, at }| {
            format!(" {} {} {}", id.0, token.0, at.as_micros() + self.distance)
        });
        format!("wake{}\n", granted.unwrap_or_default())
    }
}
