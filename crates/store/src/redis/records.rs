//! How decisions read and commit on a Redis server, and snapshots.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::Ordering;

use lockkeeper_core::id::LeaseId;
use lockkeeper_core::in_memory::InMemoryRecords;
use lockkeeper_core::time::Moment;

use super::resp::Reply;
use super::server::Script;
use super::values::{ChangeArgs, record_from};
use super::{BLOCK, RedisStore};
use crate::optimistic::clock::StoreClock;
use crate::optimistic::listener::wake_ups;
use crate::optimistic::parts::{Found, parts_written};
use crate::optimistic::snapshot::OneMoment;
use crate::optimistic::{Answer, Decided, OptimisticStore, Wanted, collected, in_doubt, random_number};
use crate::{Commit, StoreError};

/// How often a read runs again because the store has just begun a new incarnation.
const NOTICES: usize = 5;

impl OptimisticStore for RedisStore {
    fn clock(&self) -> &StoreClock {
        &self.clock
    }

    fn read(&self, wanted: Wanted<'_>, _is_first: bool) -> Result<Answer, StoreError> {
        let read = self.read_at(None, Some(wanted))?;
        let versions = match wanted {
            Wanted::In(..) | Wanted::All => read.versions,
            Wanted::One(_) => vec![read.records.first().map_or(0, |(version, _)| *version)],
        };
        let records = read.records.into_iter().map(|(_, found)| found).collect();
        let numbers = Some(block_after(read.number));
        let remembers_since = Some(read.since);
        Ok(Answer { numbers, good_from: u64::MAX, remembers_since, version: None, versions, records })
    }

    fn numbers(&self) -> Result<Range<u64>, StoreError> {
        Ok(block_after(self.read_at(None, None)?.number))
    }

    fn commit(&self, decided: Decided<'_>) -> Result<Commit, StoreError> {
        let messages = wake_ups(&decided.changes, decided.effects);
        let messages: Vec<_> =
            messages.into_iter().map(|(waker, text)| (self.wakers.channel(waker), text)).collect();
        if decided.changes.is_empty() {
            // They may have been sent before the connection broke. A wake-up without a reason is allowed.
            let publish = messages.into_iter().map(|(to, message)| vec!["PUBLISH".to_owned(), to, message]);
            let publish: Vec<_> = publish.collect();
            if !publish.is_empty() {
                self.server.commands(&publish)?;
            }
            return Ok(Commit::Committed);
        }
        let call = random_number("draw a number for", self.server.address())?.to_string();
        let args = commit_args(&decided, &call, &messages);
        let called = self.server.call_once(Script::Commit, &args);
        let called = called.map_err(|failure| self.server.explain(failure))?;
        match called.reply {
            Ok(reply) => self.outcome(&reply),
            Err(failure) if failure.is_restarted() => Ok(Commit::Changed),
            Err(failure) if failure.is_broken() => {
                let settled =
                    self.server.call_as(Script::Settle, &called.incarnation, &settle_args(&decided, &call));
                match settled.as_ref().map(Reply::list) {
                    Ok(Some([answer, _])) if answer.text() == Some("made") => Ok(Commit::Committed),
                    Ok(Some([answer, _])) if answer.text() == Some("not made") => Ok(Commit::Changed),
                    _ => Err(in_doubt(self.server.explain(failure))),
                }
            }
            Err(failure) => Err(self.server.explain(failure)),
        }
    }
}

/// What the server returned for a read.
struct Read {
    moment: i64,
    /// Since when the store has lost nothing.
    since: Moment,
    /// The version of the store.
    version: i64,
    /// The last number before those that were drawn.
    number: i64,
    versions: Vec<i64>,
    records: Vec<(i64, Found)>,
    /// Earlier contents of records that have changed since the snapshot; none for records that were added since.
    before: BTreeMap<LeaseId, Option<Found>>,
}

impl RedisStore {
    /// Reads records, or the moment alone. A snapshot names its number, and draws none.
    fn read_at(&self, snapshot: Option<&str>, wanted: Option<Wanted<'_>>) -> Result<Read, StoreError> {
        let drawn = if snapshot.is_some() { 0 } else { BLOCK };
        // The first read of a snapshot returns its number.
        let mut args = vec![drawn.to_string(), snapshot.unwrap_or_default().to_owned()];
        match wanted {
            None => args.push("moment".to_owned()),
            Some(Wanted::All) => args.push("all".to_owned()),
            Some(Wanted::One(id)) => args.extend(["one".to_owned(), id.0.to_string()]),
            Some(Wanted::In(range, parts)) => {
                args.extend(["in".to_owned(), parts.len().to_string()]);
                args.extend_from_slice(parts);
                let (from, to) = range.range_below().unwrap_or_default();
                args.extend([from, to]);
                args.extend(range.exact.iter().map(|key| key.as_str().to_owned()));
            }
        }
        let args: Vec<Vec<u8>> = args.into_iter().map(String::into_bytes).collect();
        for _ in 0..NOTICES {
            let newest = self.newest.load(Ordering::Relaxed);
            let read = read_from(&self.server.call(Script::Read, &args)?)?;
            if read.version >= newest {
                self.newest.fetch_max(read.version, Ordering::Relaxed);
                self.clock.move_to(read.moment);
                return Ok(read);
            }
            self.newest.store(0, Ordering::Relaxed);
            self.server.begin_anew()?;
        }
        Err(no_sense())
    }

    fn outcome(&self, reply: &Reply) -> Result<Commit, StoreError> {
        let list = reply.list().unwrap_or_default();
        let moment = list.get(1).and_then(Reply::number).ok_or_else(no_sense)?;
        self.clock.move_to(moment);
        match list.first().and_then(Reply::text) {
            Some("made") => {
                let version = list.get(2).and_then(Reply::number).ok_or_else(no_sense)?;
                self.newest.fetch_max(version, Ordering::Relaxed);
                Ok(Commit::Committed)
            }
            Some("changed") => Ok(Commit::Changed),
            Some(_) | None => Err(no_sense()),
        }
    }
}

fn block_after(number: i64) -> Range<u64> {
    let first = number.cast_unsigned() + 1;
    first..first + BLOCK
}

fn commit_args(decided: &Decided<'_>, call: &str, messages: &[(String, String)]) -> Vec<Vec<u8>> {
    let Decided { now, remembers_since, footprint, changes, .. } = decided;
    let mut args = Args::default();
    args.text(&now.as_micros());
    args.text(call);
    args.text(&remembers_since.map_or_else(String::new, |since| since.as_micros().to_string()));
    args.text(&footprint.all.map_or_else(String::new, |version| version.to_string()));
    args.list(footprint.parts.keys());
    args.list(footprint.parts.values());
    args.text(&footprint.ids.len());
    for (id, version) in &footprint.ids {
        args.text(&id.0);
        args.text(version);
    }
    args.list(parts_written(changes));
    args.text(&changes.len());
    for change in changes {
        let ChangeArgs { id, head, body, added, removed } = ChangeArgs::of(change);
        args.text(&id.0);
        args.0.extend([head, body]);
        args.text(&(2 * added.len()));
        args.0.extend(added.into_iter().flat_map(|member| [b"0".to_vec(), member]));
        args.text(&removed.len());
        args.0.extend(removed);
    }
    args.text(&messages.len());
    for (channel, message) in messages {
        args.text(channel);
        args.text(message);
    }
    args.0
}

fn settle_args(decided: &Decided<'_>, call: &str) -> Vec<Vec<u8>> {
    let mut args = Args::default();
    args.text(&decided.now.as_micros());
    args.text(call);
    args.0
}

/// Arguments of a script.
#[derive(Default)]
struct Args(Vec<Vec<u8>>);

impl Args {
    fn text(&mut self, text: &(impl ToString + ?Sized)) {
        self.0.push(text.to_string().into_bytes());
    }

    fn list<T: ToString>(&mut self, list: impl IntoIterator<Item = T, IntoIter: ExactSizeIterator>) {
        let list = list.into_iter();
        self.text(&list.len());
        list.for_each(|text| self.text(&text));
    }
}

fn read_from(reply: &Reply) -> Result<Read, StoreError> {
    let [moment, since, version, number, versions, records, log] = reply.list().unwrap_or_default() else {
        return Err(no_sense());
    };
    let lists = [versions, records, log].map(|reply| reply.list().ok_or_else(no_sense));
    let [versions, records, log] = lists;
    let versions = versions?.iter().map(|version| version.number().ok_or_else(no_sense));
    let records = records?.iter().filter_map(Reply::bytes).map(record_from);
    let mut before = BTreeMap::new();
    for entry in log? {
        let (id, found) = entry.bytes().and_then(entry_from).ok_or_else(no_sense)?;
        let found = if found.is_empty() { None } else { Some(record_from(found)?.1) };
        // The first entry of a record has its contents at the moment of the snapshot.
        before.entry(id).or_insert(found);
    }
    Ok(Read {
        moment: moment.number().ok_or_else(no_sense)?,
        since: since.number().map(Moment::from_micros).ok_or_else(no_sense)?,
        version: version.number().ok_or_else(no_sense)?,
        number: number.number().ok_or_else(no_sense)?,
        versions: versions.collect::<Result<_, _>>()?,
        records: records.collect::<Result<_, _>>()?,
        before,
    })
}

/// An entry of the log: `VERSION 0 ID 0 VALUE`.
fn entry_from(entry: &[u8]) -> Option<(LeaseId, &[u8])> {
    let mut fields = entry.splitn(3, |byte| *byte == 0);
    let id = std::str::from_utf8(fields.nth(1)?).ok()?.parse().ok()?;
    Some((LeaseId(id), fields.next()?))
}

fn no_sense() -> StoreError {
    StoreError::Mismatch("the server returned something else".to_owned())
}

/// Snapshot. The earlier contents of records that have changed since come from the log on the server, which has the last 30 s.
pub(super) struct RedisMoment<'s> {
    store: &'s RedisStore,
    now: Moment,
    number: String,
    since: Moment,
}

impl<'s> RedisMoment<'s> {
    pub(super) fn begin(store: &'s RedisStore) -> Result<Self, StoreError> {
        let read = store.read_at(Some(""), None)?;
        Ok(Self {
            store,
            now: Moment::from_micros(read.moment),
            number: read.number.to_string(),
            since: read.since,
        })
    }
}

impl OneMoment for RedisMoment<'_> {
    fn now(&self) -> Moment {
        self.now
    }

    fn remembers_since(&self) -> Option<Moment> {
        Some(self.since)
    }

    fn read(&self, wanted: Wanted<'_>) -> Result<InMemoryRecords, StoreError> {
        let Read { records, before, .. } = self.store.read_at(Some(&self.number), Some(wanted))?;
        let records = records.into_iter().map(|(_, found)| found);
        let unchanged = records.filter(|found| !before.contains_key(&found.id()));
        collected(unchanged.chain(before.values().flatten().cloned()))
    }
}
