//! Sessions: renews what this process has on a store that several machines share.
//!
//! Other machines cannot see whether a holder or a worker lives. So each has a session: a TTL that this thread renews three times
//! within its span. When the store cannot be reached, the session is valid until the one that was renewed last can have ended:
//! counted on the clock of this machine, from when that renewal was sent. The holder stops its commands before that.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use lockkeeper_core::id::LeaseId;
use lockkeeper_core::lease::{self, NotCurrent};
use lockkeeper_core::record::Lease;
use lockkeeper_core::time::Moment;
use lockkeeper_platform::clock;
use lockkeeper_store::{LeaseStore, StoreError};

use crate::{MachineProbe, decide};

/// How soon a renewal that failed is tried again.
const RETRY: Duration = Duration::from_millis(500);
/// How often the thread looks at the clock: a machine that was suspended wakes up late.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// What is kept in reserve: the clocks of two machines do not run equally fast, and a process dies some time after its signal.
const RESERVE: Duration = Duration::from_secs(2);

/// When commands have to be stopped at the latest, if they get `grace` to end by themselves and the last renewal that was
/// answered was sent at `sent_at`.
pub(crate) fn stop_at(sent_at: Moment, span: Duration, grace: Duration) -> Moment {
    sent_at.after(span.saturating_sub(grace + RESERVE))
}

/// What a renewal answers: the number of the heartbeat that it wrote, or why the session is lost.
pub(crate) type Renewed<L> = Result<Result<i64, L>, StoreError>;

/// Renews a session whose last heartbeat has one of these numbers. It adds the numbers that it tries to write to the list.
pub(crate) type Renew<L> = Arc<dyn Fn(&[i64], &mut Vec<i64>) -> Renewed<L> + Send + Sync>;

/// Whether a session is valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Validity<L> {
    Valid,
    /// It was not renewed for so long that the commands have to be stopped now.
    Lapsed,
    /// The store has refused to renew it.
    Lost(L),
}

/// The sessions of this process, each under its key.
pub(crate) struct Sessions<K, L> {
    shared: Arc<Shared<K, L>>,
}

struct Shared<K, L> {
    table: Mutex<Table<K, L>>,
    changed: Condvar,
}

struct Table<K, L> {
    sessions: BTreeMap<K, Session<L>>,
    /// How many sessions there were.
    count: u64,
    thread: Option<JoinHandle<()>>,
    is_over: bool,
}

/// One session.
struct Session<L> {
    /// Tells it from an earlier one with the same key.
    number: u64,
    span: Duration,
    renew: Renew<L>,
    /// The numbers that the last heartbeat may have: the last one, and one that may have been written by a call without an answer.
    written: Vec<i64>,
    /// When the last renewal that was answered was sent, on the clock of this machine.
    sent_at: Moment,
    renew_at: Moment,
    loss: Option<L>,
}

impl<L: Clone> Clone for Session<L> {
    fn clone(&self) -> Self {
        let (renew, written, loss) = (Arc::clone(&self.renew), self.written.clone(), self.loss.clone());
        Self { renew, written, loss, ..*self }
    }
}

impl<K, L> Sessions<K, L>
where
    K: Ord + Clone + Send + 'static,
    L: Clone + Send + 'static,
{
    pub(crate) fn new() -> Self {
        let table = Table { sessions: BTreeMap::new(), count: 0, thread: None, is_over: false };
        Self { shared: Arc::new(Shared { table: Mutex::new(table), changed: Condvar::new() }) }
    }

    /// Renews a session from now on. Its first heartbeat has the number `written`, and was asked for after `sent_at`.
    pub(crate) fn keep(&self, key: K, span: Duration, written: i64, sent_at: Moment, renew: Renew<L>) {
        let mut table = self.shared.table();
        table.count += 1;
        let (number, renew_at) = (table.count, sent_at.after(span / 3));
        let session = Session { number, span, renew, written: vec![written], sent_at, renew_at, loss: None };
        table.sessions.insert(key, session);
        if table.thread.is_none() {
            let shared = Arc::clone(&self.shared);
            let spawned = thread::Builder::new().name("sessions".to_owned()).spawn(move || shared.run());
            // Without the thread the session lapses, and the holder stops in time.
            table.thread = spawned.ok();
        }
        drop(table);
        self.shared.changed.notify_all();
    }

    /// Ends the renewals of a session.
    pub(crate) fn forget(&self, key: &K) {
        self.shared.table().sessions.remove(key);
    }

    /// Whether a session is valid; none if there is no such session.
    pub(crate) fn validity(&self, key: &K, grace: Duration) -> Option<Validity<L>> {
        let table = self.shared.table();
        let session = table.sessions.get(key)?;
        let has_lapsed = stop_at(session.sent_at, session.span, grace) <= clock::now();
        Some(match &session.loss {
            Some(loss) => Validity::Lost(loss.clone()),
            None if has_lapsed => Validity::Lapsed,
            None => Validity::Valid,
        })
    }

    /// When to look at a session again; none if there is no such session.
    pub(crate) fn look_at(&self, key: &K, grace: Duration) -> Option<Moment> {
        let table = self.shared.table();
        let session = table.sessions.get(key)?;
        Some(stop_at(session.sent_at, session.span, grace).min(clock::now().after(LOOK_EVERY)))
    }
}

impl<K, L> Drop for Sessions<K, L> {
    fn drop(&mut self) {
        let thread = {
            let mut table = self.shared.table();
            table.is_over = true;
            table.thread.take()
        };
        self.shared.changed.notify_all();
        // The store outlives the thread, so that it is closed by the caller.
        let _ = thread.map(JoinHandle::join);
    }
}

impl<K, L> Shared<K, L> {
    fn table(&self) -> MutexGuard<'_, Table<K, L>> {
        // A panic leaves no session half changed.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Ord + Clone, L: Clone> Shared<K, L> {
    fn run(&self) {
        let mut table = self.table();
        while !table.is_over {
            let now = clock::now();
            let valid = table.sessions.iter().filter(|(_, session)| session.loss.is_none());
            let next = valid.min_by_key(|(_, session)| session.renew_at);
            match next.map(|(key, session)| (key.clone(), session.clone())) {
                Some((key, session)) if session.renew_at <= now => {
                    drop(table);
                    let renewed = renewed(session);
                    table = self.table();
                    // It may have been forgotten or replaced meanwhile.
                    if let Some(known) = table.sessions.get_mut(&key).filter(|it| it.number == renewed.number)
                    {
                        *known = renewed;
                    }
                }
                next => {
                    let due = next.map_or(LOOK_EVERY, |(_, session)| session.renew_at.since(now));
                    let waited = self.changed.wait_timeout(table, due.min(LOOK_EVERY));
                    table = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
            }
        }
    }
}

/// Renews one session with a call of the store.
fn renewed<L>(mut session: Session<L>) -> Session<L> {
    let sent_at = clock::now();
    let mut attempted = Vec::new();
    match (session.renew)(&session.written, &mut attempted) {
        Ok(Ok(written)) => {
            session.written = vec![written];
            session.sent_at = sent_at;
            session.renew_at = sent_at.after(session.span / 3);
        }
        Ok(Err(loss)) => session.loss = Some(loss),
        Err(error) => {
            if matches!(error, StoreError::InDoubt { .. }) {
                session.written.append(&mut attempted);
            }
            session.renew_at = clock::now().after(RETRY);
        }
    }
    session
}

/// The leases of this process whose sessions are renewed. The number of a heartbeat is its time.
pub(crate) struct LeaseSessions {
    sessions: Sessions<LeaseId, NotCurrent>,
    store: Arc<dyn LeaseStore>,
    probe: Arc<MachineProbe>,
}

impl LeaseSessions {
    pub(crate) fn new(store: Arc<dyn LeaseStore>, probe: Arc<MachineProbe>) -> Self {
        Self { sessions: Sessions::new(), store, probe }
    }

    /// Renews the session of this lease from now on. Its grant was asked for after `sent_at`. A lease without a session needs
    /// nothing.
    pub(crate) fn keep(&self, lease: &Lease, sent_at: Moment) {
        let Some(session) = lease.claim.session() else { return };
        // A TTL that is shorter than the session ends the lease just as well.
        let span = lease.claim.ttl.map_or(session, |ttl| ttl.min(session)).get();
        let (id, token) = (lease.id, lease.token);
        let (store, probe) = (Arc::clone(&self.store), Arc::clone(&self.probe));
        let renew: Renew<NotCurrent> = Arc::new(move |written, attempted| {
            let written: Vec<Moment> = written.iter().map(|micros| Moment::from_micros(*micros)).collect();
            let decided = decide(&*store, &probe, |overlay| {
                attempted.push(overlay.now().as_micros());
                lease::keep_session(overlay, id, token, &written)
            });
            decided.map(|(renewed, _)| renewed.map(|lease| lease.heartbeat_at.as_micros()))
        });
        self.sessions.keep(id, span, lease.heartbeat_at.as_micros(), sent_at, renew);
    }

    /// Ends the renewals of a lease.
    pub(crate) fn forget(&self, id: LeaseId) {
        self.sessions.forget(&id);
    }

    /// Why the session of this lease is over or has to be given up now; none while it is valid, or if it has no session.
    pub(crate) fn loss(&self, id: LeaseId, grace: Duration) -> Option<NotCurrent> {
        match self.sessions.validity(&id, grace)? {
            Validity::Valid => None,
            Validity::Lapsed => Some(NotCurrent::SessionLapsed(id)),
            Validity::Lost(loss) => Some(loss),
        }
    }

    /// When to look at the session of this lease again; none if it has no session.
    pub(crate) fn look_at(&self, id: LeaseId, grace: Duration) -> Option<Moment> {
        self.sessions.look_at(&id, grace)
    }
}
