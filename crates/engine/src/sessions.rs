//! Sessions: heartbeats of this process on a store that several machines share.
//!
//! Other machines cannot see whether a holder or a worker lives. So each has a session: a TTL that a thread of this module renews
//! three times within its span. If the store cannot be reached, this process counts on its own clock how long the session is
//! valid for certain: one span, from the moment when it sent the last renewal that was answered. The holder stops its commands
//! before that.

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

/// The pause before a renewal that failed is tried again.
const RETRY: Duration = Duration::from_millis(500);
/// How often the thread reads the clock: its timer does not count while the machine is suspended.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Safety margin: the clocks of two machines do not run equally fast, and a process dies some time after its signal. It is at most a
/// sixth of the span: a session is renewed after a third of it.
const RESERVE: Duration = Duration::from_secs(2);

/// When commands have to be stopped at the latest, if they get `grace` to end by themselves and the last renewal that was
/// answered was sent at `sent_at`.
pub(crate) fn stop_at(sent_at: Moment, span: Duration, grace: Duration) -> Moment {
    sent_at.after(span.saturating_sub(grace + RESERVE.min(span / 6)))
}

/// The shortest session that fits this grace: if it is renewed in time, no command is stopped.
pub(crate) fn shortest_span(grace: Duration) -> Duration {
    // The margin is a sixth of a span below twelve seconds, and two seconds above.
    (2 * grace).min((grace + RESERVE) * 3 / 2)
}

/// The longest grace that fits this session.
pub(crate) fn longest_grace(span: Duration) -> Duration {
    (span * 2 / 3).saturating_sub(RESERVE.min(span / 6))
}

/// The subject of a session: a lease or a worker.
pub(crate) trait Renew: Clone + Send + 'static {
    /// Why the store refuses a renewal.
    type Loss: Clone + Send;

    /// Renews the session.
    fn renew(&mut self, renewal: &mut Renewal<'_>) -> Renewed<Self::Loss>;
}

/// The result of a renewal: the number of the heartbeat that it wrote, or why the session is lost.
pub(crate) type Renewed<L> = Result<Result<i64, L>, StoreError>;

/// The inputs of a renewal.
pub(crate) struct Renewal<'a> {
    /// The numbers that the last heartbeat may have: the last one, and those of calls without an answer.
    pub(crate) written: &'a [i64],
    /// The renewal adds the numbers that it tries to write.
    pub(crate) attempted: Vec<i64>,
    /// Whether the session is still wanted and cannot have ended, on the clock of this machine.
    pub(crate) is_valid: &'a dyn Fn() -> bool,
}

/// Whether a session is valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Validity<L> {
    Valid,
    /// The last renewal is too old: the commands have to be stopped now.
    Lapsed,
    /// The store has refused to renew it.
    Lost(L),
}

/// The sessions of this process, each under its key.
pub(crate) struct Sessions<K, S: Renew> {
    shared: Arc<Shared<K, S>>,
}

struct Shared<K, S: Renew> {
    table: Mutex<Table<K, S>>,
    changed: Condvar,
    /// One renewal at a time: otherwise a renewal could find the heartbeat of another one, and take it for that of a clone.
    renewing: Mutex<()>,
}

struct Table<K, S: Renew> {
    sessions: BTreeMap<K, Session<S>>,
    /// How many sessions there were so far.
    count: u64,
    thread: Option<JoinHandle<()>>,
    is_over: bool,
}

/// One session.
#[derive(Clone)]
struct Session<S: Renew> {
    /// Distinguishes it from an earlier session with the same key.
    number: u64,
    subject: S,
    span: Duration,
    /// The numbers that the last heartbeat may have.
    written: Vec<i64>,
    /// When the last renewal that was answered was sent, on the clock of this machine.
    sent_at: Moment,
    renew_at: Moment,
    loss: Option<S::Loss>,
}

impl<S: Renew> Session<S> {
    /// Whether the session cannot have ended yet, on the clock of this machine.
    fn is_valid(&self) -> bool {
        self.loss.is_none() && clock::now() < self.sent_at.after(self.span)
    }
}

impl<K: Ord + Clone + Send + 'static, S: Renew> Sessions<K, S> {
    pub(crate) fn new() -> Self {
        let table = Mutex::new(Table { sessions: BTreeMap::new(), count: 0, thread: None, is_over: false });
        Self { shared: Arc::new(Shared { table, changed: Condvar::new(), renewing: Mutex::default() }) }
    }

    /// Renews a session from now on. Its first heartbeat has the number `written`, and was sent after `sent_at`.
    pub(crate) fn keep(&self, key: K, subject: S, span: Duration, written: i64, sent_at: Moment) {
        let mut table = self.shared.table();
        table.count += 1;
        let (number, renew_at) = (table.count, sent_at.after(span / 3));
        let session =
            Session { number, subject, span, written: vec![written], sent_at, renew_at, loss: None };
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

    /// Ends the renewals of a session. Returns its subject if it was still valid.
    pub(crate) fn forget(&self, key: &K) -> Option<S> {
        let forgotten = self.shared.table().sessions.remove(key)?;
        forgotten.is_valid().then_some(forgotten.subject)
    }

    /// Renews a session now, unless it is lost. Returns its subject, or why it is lost; none if there is no such session.
    pub(crate) fn renew_now(&self, key: &K) -> Option<Result<S, S::Loss>> {
        self.shared.renew(key);
        let table = self.shared.table();
        let session = table.sessions.get(key)?;
        Some(session.loss.clone().map_or_else(|| Ok(session.subject.clone()), Err))
    }

    /// Whether a session is valid; none if there is no such session.
    pub(crate) fn validity(&self, key: &K, grace: Duration) -> Option<Validity<S::Loss>> {
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

impl<K, S: Renew> Drop for Sessions<K, S> {
    fn drop(&mut self) {
        let thread = {
            let mut table = self.shared.table();
            table.is_over = true;
            table.thread.take()
        };
        self.shared.changed.notify_all();
        // Joined, so that the caller closes the store, and not the thread.
        let _ = thread.map(JoinHandle::join);
    }
}

impl<K, S: Renew> Shared<K, S> {
    fn table(&self) -> MutexGuard<'_, Table<K, S>> {
        // Each session is replaced as a whole, so it is sound after a panic.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Ord + Clone, S: Renew> Shared<K, S> {
    fn run(&self) {
        let mut table = self.table();
        while !table.is_over {
            let now = clock::now();
            let valid = table.sessions.iter().filter(|(_, session)| session.loss.is_none());
            let next = valid.min_by_key(|(_, session)| session.renew_at);
            match next.map(|(key, session)| (key.clone(), session.renew_at)) {
                Some((key, renew_at)) if renew_at <= now => {
                    drop(table);
                    self.renew(&key);
                    table = self.table();
                }
                next => {
                    let due = next.map_or(LOOK_EVERY, |(_, renew_at)| renew_at.since(now));
                    let waited = self.changed.wait_timeout(table, due.min(LOOK_EVERY));
                    table = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
            }
        }
    }

    /// Renews one session, unless it is lost or over.
    fn renew(&self, key: &K) {
        let _one_at_a_time = self.renewing.lock().unwrap_or_else(PoisonError::into_inner);
        let session = self.table().sessions.get(key).filter(|session| session.loss.is_none()).cloned();
        let Some(session) = session else { return };
        let renewed = self.renewed(key, session);
        // It may have been ended or replaced meanwhile.
        let mut table = self.table();
        if let Some(known) = table.sessions.get_mut(key).filter(|it| it.number == renewed.number) {
            *known = renewed;
        }
    }

    /// Renews one session with a call of the store.
    fn renewed(&self, key: &K, mut session: Session<S>) -> Session<S> {
        let sent_at = clock::now();
        let is_known = || self.table().sessions.get(key).is_some_and(|known| known.number == session.number);
        let is_valid = || is_known() && session.is_valid();
        let mut renewal = Renewal { written: &session.written, attempted: Vec::new(), is_valid: &is_valid };
        let mut subject = session.subject.clone();
        let answer = subject.renew(&mut renewal);
        let mut attempted = renewal.attempted;
        session.subject = subject;
        match answer {
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
}

/// The leases of this process whose sessions are renewed.
pub(crate) struct LeaseSessions {
    sessions: Sessions<LeaseId, KeptLease>,
    store: Arc<dyn LeaseStore>,
    probe: Arc<MachineProbe>,
}

/// A lease as its holder knows it. The holder writes it again if the store has lost it.
#[derive(Clone)]
struct KeptLease {
    lease: Lease,
    store: Arc<dyn LeaseStore>,
    probe: Arc<MachineProbe>,
}

impl Renew for KeptLease {
    type Loss = NotCurrent;

    /// The number of a heartbeat is its time.
    fn renew(&mut self, renewal: &mut Renewal<'_>) -> Renewed<NotCurrent> {
        let written: Vec<Moment> = renewal.written.iter().copied().map(Moment::from_micros).collect();
        let (renewed, _) = decide(&*self.store, &self.probe, |overlay| {
            renewal.attempted.push(overlay.now().as_micros());
            // A lease that was released meanwhile, or whose session may have ended, is not written again.
            lease::keep_session(overlay, &self.lease, &written, (renewal.is_valid)())
        })?;
        Ok(renewed.map(|lease| {
            let heartbeat = lease.heartbeat_at.as_micros();
            self.lease = lease;
            heartbeat
        }))
    }
}

impl LeaseSessions {
    pub(crate) fn new(store: Arc<dyn LeaseStore>, probe: Arc<MachineProbe>) -> Self {
        Self { sessions: Sessions::new(), store, probe }
    }

    /// Renews the session of this lease from now on. The request for the lease was sent after `sent_at`. Does nothing for a lease
    /// without a session.
    pub(crate) fn keep(&self, lease: &Lease, sent_at: Moment) {
        let Some(session) = lease.claim.session() else { return };
        // A TTL that is shorter than the session ends the lease, too.
        let span = lease.claim.ttl.map_or(session, |ttl| ttl.min(session)).get();
        let (store, probe) = (Arc::clone(&self.store), Arc::clone(&self.probe));
        let kept = KeptLease { lease: lease.clone(), store, probe };
        self.sessions.keep(lease.id, kept, span, lease.heartbeat_at.as_micros(), sent_at);
    }

    /// Ends the renewals of a lease. Returns it if its session was still valid.
    pub(crate) fn forget(&self, id: LeaseId) -> Option<Lease> {
        self.sessions.forget(&id).map(|kept| kept.lease)
    }

    /// Renews the session of this lease now. Returns the current lease, or why it is lost; none if it has no session.
    pub(crate) fn check(&self, id: LeaseId) -> Option<Result<Lease, NotCurrent>> {
        self.sessions.renew_now(&id).map(|kept| kept.map(|kept| kept.lease))
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
