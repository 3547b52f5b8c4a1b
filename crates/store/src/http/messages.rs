//! Messages between a client and the server of a folder: one call and one answer, as JSON. Records are bytes in hexadecimal.

use lockkeeper_core::id::WakerId;
use lockkeeper_core::records::{Change, Effect};
use serde::{Deserialize, Serialize};

use crate::StoreError;
use crate::encoding::{record_from_bytes, record_to_bytes};
use crate::optimistic::parts::Found;
use crate::runs::messages::RunCall;

/// The version of the messages. A server refuses those of another one.
pub(crate) const FORMAT: u32 = 1;

/// What a client sends.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Request<C> {
    pub(crate) format: u32,
    pub(crate) project: String,
    pub(crate) call: C,
}

/// What a client asks for.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Call {
    Read(Read),
    Commit(Commit),
    /// Whether the commit with this number was made. If not, it never will be.
    Settle {
        incarnation: String,
        number: i64,
    },
    /// Lets the numbers go on above this one.
    Raise(u64),
    /// A call about requests and runs. Its answer is a [`crate::runs::messages::Answer`].
    Runs(RunCall),
}

/// Reads records.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Read {
    pub(crate) wanted: Wanted,
    /// Whether numbers are drawn, after the records were read.
    pub(crate) draws: bool,
    /// The version of a snapshot: what has changed since is returned as it was then.
    pub(crate) as_of: Option<i64>,
}

/// Which records are read.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Wanted {
    Nothing,
    In { exact: Vec<String>, below: Option<String> },
    One(u64),
    All,
}

/// Makes changes, if what was read is unchanged.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Commit {
    pub(crate) incarnation: String,
    /// The number of the commit, by which it is looked up.
    pub(crate) number: i64,
    /// The moment of the decision.
    pub(crate) now: i64,
    /// What was read, each with the version of the store at that moment.
    pub(crate) parts: Vec<(String, i64)>,
    pub(crate) ids: Vec<(u64, i64)>,
    pub(crate) all: Option<i64>,
    pub(crate) changes: Vec<ChangeMessage>,
    pub(crate) wakes: Vec<u64>,
    pub(crate) removes: Vec<u64>,
}

/// One change.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ChangeMessage {
    Add(String),
    Update(String),
    Remove(String),
    /// The ticket and the lease.
    Grant(String, String),
}

/// What the server answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    Read(ReadAnswer),
    /// Whether a commit was made, and the moment. Otherwise something has changed.
    Commit {
        made: bool,
        now: i64,
    },
    Settled {
        made: bool,
    },
    Raised,
    /// A change does not fit the records. Nothing was changed.
    Misfit(String),
    /// Nothing was changed, because the store failed.
    Failed(String),
    /// Nothing was changed, because this server is not the store of that client.
    Refused(String),
}

/// What was read.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ReadAnswer {
    pub(crate) incarnation: String,
    /// The moment on the store's clock, and since when it remembers everything.
    pub(crate) now: i64,
    pub(crate) since: i64,
    /// The version of the store. Every change makes it larger.
    pub(crate) version: i64,
    /// The first number that was drawn.
    pub(crate) number: Option<u64>,
    pub(crate) records: Vec<String>,
    /// What records were at the version of the snapshot, if they have changed since; none if they were not there.
    pub(crate) before: Vec<(u64, Option<String>)>,
}

/// A record as text.
pub(crate) fn record_to_text(found: &Found) -> String {
    record_to_bytes(found).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads what [`record_to_text`] wrote.
pub(crate) fn record_from_text(text: &str) -> Result<Found, StoreError> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (pairs, rest) = text.as_bytes().as_chunks();
    let bytes: Option<Vec<u8>> =
        pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect();
    let found = bytes.filter(|_| rest.is_empty()).and_then(|bytes| record_from_bytes(&bytes));
    found.ok_or_else(|| StoreError::Mismatch("a record cannot be read".to_owned()))
}

impl ChangeMessage {
    pub(crate) fn of(change: &Change) -> Self {
        let lease = |lease: &lockkeeper_core::record::Lease| record_to_text(&Found::Lease(lease.clone()));
        let ticket =
            |ticket: &lockkeeper_core::record::Ticket| record_to_text(&Found::Ticket(ticket.clone()));
        match change {
            Change::AddLease(new) => Self::Add(lease(new)),
            Change::UpdateLease(new) => Self::Update(lease(new)),
            Change::RemoveLease(old) => Self::Remove(lease(old)),
            Change::AddTicket(new) => Self::Add(ticket(new)),
            Change::UpdateTicket(new) => Self::Update(ticket(new)),
            Change::RemoveTicket(old) => Self::Remove(ticket(old)),
            Change::Grant(old, new) => Self::Grant(ticket(old), lease(new)),
        }
    }

    /// The change, with each record changed by `shift`.
    pub(crate) fn change(&self, shift: impl Fn(Found) -> Found) -> Result<Change, StoreError> {
        let record = |text: &str| record_from_text(text).map(&shift);
        let misfit = || StoreError::Mismatch("only a ticket becomes a lease".to_owned());
        Ok(match self {
            Self::Add(text) => record(text)?.into(),
            Self::Update(text) => match record(text)? {
                Found::Lease(lease) => Change::UpdateLease(lease),
                Found::Ticket(ticket) => Change::UpdateTicket(ticket),
            },
            Self::Remove(text) => match record(text)? {
                Found::Lease(lease) => Change::RemoveLease(lease),
                Found::Ticket(ticket) => Change::RemoveTicket(ticket),
            },
            Self::Grant(ticket, lease) => match (record(ticket)?, record(lease)?) {
                (Found::Ticket(ticket), Found::Lease(lease)) => Change::Grant(ticket, lease),
                _ => return Err(misfit()),
            },
        })
    }
}

/// The wakers that effects wake, and those that they remove.
pub(crate) fn wakers_of(effects: &[Effect]) -> (Vec<u64>, Vec<u64>) {
    let woken = effects.iter().filter_map(|effect| match effect {
        Effect::Wake(waker) => Some(waker.0),
        Effect::RemoveWaker(_) => None,
    });
    let removed = effects.iter().filter_map(|effect| match effect {
        Effect::RemoveWaker(waker) => Some(waker.0),
        Effect::Wake(_) => None,
    });
    (woken.collect(), removed.collect())
}

/// Reads what [`wakers_of`] wrote.
pub(crate) fn effects_of(woken: &[u64], removed: &[u64]) -> Vec<Effect> {
    let woken = woken.iter().map(|id| Effect::Wake(WakerId(*id)));
    woken.chain(removed.iter().map(|id| Effect::RemoveWaker(WakerId(*id)))).collect()
}
