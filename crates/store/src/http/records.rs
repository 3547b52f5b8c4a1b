//! How decisions read and commit in a folder that another machine serves, and snapshots.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lockkeeper_core::id::LeaseId;
use lockkeeper_core::in_memory::InMemoryRecords;
use lockkeeper_core::resource::Key;
use lockkeeper_core::time::Moment;
use serde::de::DeserializeOwned;

use super::connection::{Connection, Failure};
use super::messages::{self, Call, ChangeMessage, Read, ReadAnswer, Request, record_from_text};
use super::{BLOCK, HttpStore, lock};
use crate::optimistic::clock::StoreClock;
use crate::optimistic::parts::Found;
use crate::optimistic::snapshot::OneMoment;
use crate::optimistic::{
    Answer, Decided, OptimisticStore, TRIES, Wanted, collected, in_doubt, random_number,
};
use crate::{Commit, StoreError};

/// A store that begins anew may be behind the clock of a client by this much.
const BEHIND: Duration = Duration::from_secs(1);

impl OptimisticStore for HttpStore {
    fn clock(&self) -> &StoreClock {
        &self.clock
    }

    fn read(&self, wanted: Wanted<'_>, _is_first: bool) -> Result<Answer, StoreError> {
        let draws = matches!(wanted, Wanted::In(..));
        let read = self.read_at(Read { wanted: message_of(wanted), draws, as_of: None })?;
        let versions = match wanted {
            Wanted::In(_, parts) => vec![read.version; parts.len()],
            Wanted::One(_) | Wanted::All => vec![read.version],
        };
        let records = read.records.iter().map(|text| record_from_text(text));
        let records = records.collect::<Result<Vec<_>, _>>()?;
        let numbers = read.number.map(|first| first..first + BLOCK);
        let remembers_since = Some(Moment::from_micros(read.since));
        // Numbers that were drawn before are good for what was read now, if nothing of it has a larger one.
        let good_from = records.iter().map(number_of).max().map_or(0, |largest| largest + 1);
        Ok(Answer { numbers, good_from, remembers_since, version: None, versions, records })
    }

    fn numbers(&self) -> Result<Range<u64>, StoreError> {
        let read = self.read_at(Read { wanted: messages::Wanted::Nothing, draws: true, as_of: None })?;
        let first = read.number.ok_or_else(no_sense)?;
        Ok(first..first + BLOCK)
    }

    fn commit(&self, decided: Decided<'_>) -> Result<Commit, StoreError> {
        let (wakes, removes) = messages::wakers_of(decided.effects);
        if decided.changes.is_empty() && wakes.is_empty() && removes.is_empty() {
            return Ok(Commit::Committed);
        }
        let (incarnation, since) = lock(&self.seen).clone();
        if decided.remembers_since.is_some_and(|read| read.as_micros() != since) {
            return Ok(Commit::Changed);
        }
        // As an integer of SQLite.
        let number = (random_number("draw a number for", &self.address)? >> 1).cast_signed();
        let Decided { now, footprint, changes, .. } = decided;
        let call = Call::Commit(messages::Commit {
            incarnation: incarnation.clone(),
            number,
            now: now.as_micros(),
            parts: footprint.parts.into_iter().collect(),
            ids: footprint.ids.into_iter().map(|(id, version)| (id.0, version)).collect(),
            all: footprint.all,
            changes: changes.iter().map(ChangeMessage::of).collect(),
            wakes,
            removes,
        });
        let failure = match self.call_once(&call) {
            Ok(messages::Answer::Commit { made, now }) => {
                self.clock.move_to(now);
                return Ok(if made { Commit::Committed } else { Commit::Changed });
            }
            Ok(other) => return Err(self.failure_of(other)),
            Err(failure) if failure.is_broken() => failure,
            Err(failure) => return Err(failure.explain(&self.address)),
        };
        match self.call(&Call::Settle { incarnation, number }) {
            Ok(messages::Answer::Settled { made: true }) => Ok(Commit::Committed),
            Ok(messages::Answer::Settled { made: false }) => Ok(Commit::Changed),
            Ok(_) | Err(_) => Err(in_doubt(failure.explain(&self.address))),
        }
    }
}

impl HttpStore {
    /// Reads the moment alone.
    pub(super) fn look(&self) -> Result<ReadAnswer, StoreError> {
        self.read_at(Read { wanted: messages::Wanted::Nothing, draws: false, as_of: None })
    }

    /// Lets the numbers go on above this one.
    pub(super) fn raise(&self, above: u64) -> Result<bool, StoreError> {
        match self.call(&Call::Raise(above))? {
            messages::Answer::Raised => Ok(true),
            other => Err(self.failure_of(other)),
        }
    }

    fn read_at(&self, read: Read) -> Result<ReadAnswer, StoreError> {
        let newest = self.newest.load(Ordering::Relaxed);
        let answer = self.call(&Call::Read(read))?;
        let messages::Answer::Read(answer) = answer else { return Err(self.failure_of(answer)) };
        let mut seen = lock(&self.seen);
        if seen.0 == answer.incarnation {
            if answer.version < newest {
                return Err(self.unusable("its folder is that of an earlier moment"));
            }
            self.newest.fetch_max(answer.version, Ordering::Relaxed);
        } else {
            // The clock of this process does not go back, so its decisions would be too late for those of others.
            if Moment::from_micros(answer.now).after(BEHIND) < self.clock.now() && !seen.0.is_empty() {
                return Err(self.unusable("its clock was set back"));
            }
            *seen = (answer.incarnation.clone(), answer.since);
            self.newest.store(answer.version, Ordering::Relaxed);
        }
        drop(seen);
        self.clock.move_to(answer.now);
        Ok(answer)
    }

    /// Calls the server. The call may be made twice.
    fn call(&self, call: &Call) -> Result<messages::Answer, StoreError> {
        let mut called = self.call_once(call);
        for _ in 1..TRIES {
            if !called.as_ref().is_err_and(Failure::is_lost) {
                break;
            }
            called = self.call_once(call);
        }
        called.map_err(|failure| failure.explain(&self.address))
    }

    pub(crate) fn call_once<A: DeserializeOwned>(&self, call: &Call) -> Result<A, Failure> {
        let request = Request { format: messages::FORMAT, project: self.project.clone(), call };
        let broken = |error: serde_json::Error| Failure::Broken(error.into());
        let body = serde_json::to_vec(&request).map_err(broken)?;
        let mut connection = self.connection()?;
        let (answer, stays) = connection.call(&body, self.limit)?;
        if stays {
            lock(&self.idle).push(connection);
        }
        serde_json::from_slice(&answer).map_err(broken)
    }

    fn connection(&self) -> Result<Connection, Failure> {
        let idle = || lock(&self.idle).pop();
        while let Some(connection) = idle() {
            if !connection.is_closed() {
                return Ok(connection);
            }
        }
        Connection::open(&self.to, self.limit)
    }

    /// The failure that an answer tells of. Nothing was changed.
    fn failure_of(&self, answer: messages::Answer) -> StoreError {
        match answer {
            messages::Answer::Misfit(what) => StoreError::Mismatch(what),
            messages::Answer::Failed(what) | messages::Answer::Refused(what) => self.unusable(&what),
            messages::Answer::Read(_)
            | messages::Answer::Commit { .. }
            | messages::Answer::Settled { .. }
            | messages::Answer::Raised => no_sense(),
        }
    }

    fn unusable(&self, what: &str) -> StoreError {
        StoreError::Unreachable { address: self.address.clone(), source: what.into() }
    }
}

/// The largest number in a record.
fn number_of(found: &Found) -> u64 {
    match found {
        Found::Lease(lease) => lease.token.0.max(lease.id.0),
        Found::Ticket(ticket) => ticket.id.0,
    }
}

fn message_of(wanted: Wanted<'_>) -> messages::Wanted {
    let text = |key: &Key| key.as_str().to_owned();
    match wanted {
        Wanted::In(range, _) => messages::Wanted::In {
            exact: range.exact.iter().map(text).collect(),
            below: range.below.as_ref().map(text),
        },
        Wanted::One(id) => messages::Wanted::One(id.0),
        Wanted::All => messages::Wanted::All,
    }
}

fn no_sense() -> StoreError {
    StoreError::Mismatch("the server returned something else".to_owned())
}

/// One moment. What has changed since is taken from the log of the folder.
pub(super) struct HttpMoment<'s> {
    store: &'s HttpStore,
    now: Moment,
    since: Moment,
    version: i64,
}

impl<'s> HttpMoment<'s> {
    pub(super) fn begin(store: &'s HttpStore) -> Result<Self, StoreError> {
        let ReadAnswer { now, since, version, .. } = store.look()?;
        Ok(Self { store, now: Moment::from_micros(now), since: Moment::from_micros(since), version })
    }
}

impl OneMoment for HttpMoment<'_> {
    fn now(&self) -> Moment {
        self.now
    }

    fn remembers_since(&self) -> Option<Moment> {
        Some(self.since)
    }

    fn read(&self, wanted: Wanted<'_>) -> Result<InMemoryRecords, StoreError> {
        let read = Read { wanted: message_of(wanted), draws: false, as_of: Some(self.version) };
        let ReadAnswer { since, records, before, .. } = self.store.read_at(read)?;
        if since != self.since.as_micros() {
            return Err(self.store.unusable("it began anew meanwhile"));
        }
        let before: BTreeMap<LeaseId, Option<String>> =
            before.into_iter().map(|(id, text)| (LeaseId(id), text)).collect();
        let mut found = Vec::new();
        for text in &records {
            let record = record_from_text(text)?;
            if !before.contains_key(&record.id()) {
                found.push(record);
            }
        }
        for text in before.values().flatten() {
            found.push(record_from_text(text)?);
        }
        collected(found)
    }
}
