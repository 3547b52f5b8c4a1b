//! Sessions: renews the leases of this process on a store that several machines share.
//!
//! Other machines cannot see whether a holder lives. So each lease of a process there has a session: a TTL that this thread
//! renews three times within its span. When the store cannot be reached, the lease is valid until the session that was renewed
//! last can have ended: counted on the clock of this machine, from when that renewal was sent. The holder stops its command
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

/// How soon a renewal that failed is tried again.
const RETRY: Duration = Duration::from_millis(500);
/// How often the thread looks at the clock: a machine that was suspended wakes up late.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// What is kept in reserve: the clocks of two machines do not run equally fast, and a process dies some time after its signal.
const RESERVE: Duration = Duration::from_secs(2);

/// The leases of this process whose sessions are renewed.
pub(crate) struct Sessions {
    shared: Arc<Shared>,
}

struct Shared {
    store: Arc<dyn LeaseStore>,
    probe: Arc<MachineProbe>,
    table: Mutex<Table>,
    changed: Condvar,
    /// One renewal at a time: two of them would take each other for those of a clone.
    renewing: Mutex<()>,
}

#[derive(Default)]
struct Table {
    sessions: BTreeMap<LeaseId, Session>,
    thread: Option<JoinHandle<()>>,
    is_over: bool,
}

/// The session of one lease.
#[derive(Clone)]
struct Session {
    /// The lease as its holder knows it: what it says again if the store has forgotten it.
    lease: Lease,
    span: Duration,
    /// The heartbeats that the record may have: the last one, and one that may have been written by a call without an answer.
    written: Vec<Moment>,
    /// When the last renewal that was answered was sent, on the clock of this machine.
    sent_at: Moment,
    renew_at: Moment,
    loss: Option<NotCurrent>,
}

impl Session {
    fn new(lease: &Lease, span: Duration, sent_at: Moment) -> Self {
        Self {
            lease: lease.clone(),
            span,
            written: vec![lease.heartbeat_at],
            sent_at,
            renew_at: sent_at.after(span / 3),
            loss: None,
        }
    }

    /// Whether the session cannot have ended yet, on the clock of this machine. Only then may the holder say again what it holds.
    fn is_valid(&self, now: Moment) -> bool {
        self.loss.is_none() && now < self.sent_at.after(self.span)
    }

    /// When the command of the lease has to be stopped at the latest, if it gets `grace` to end by itself.
    fn stop_at(&self, grace: Duration) -> Moment {
        self.sent_at.after(self.span.saturating_sub(grace + RESERVE))
    }
}

impl Sessions {
    pub(crate) fn new(store: Arc<dyn LeaseStore>, probe: Arc<MachineProbe>) -> Self {
        let (table, changed, renewing) = (Mutex::default(), Condvar::new(), Mutex::default());
        Self { shared: Arc::new(Shared { store, probe, table, changed, renewing }) }
    }

    /// Renews the session of this lease from now on. Its grant was asked for after `sent_at`. A lease without a session needs
    /// nothing.
    pub(crate) fn keep(&self, lease: &Lease, sent_at: Moment) {
        let Some(session) = lease.claim.session() else { return };
        // A TTL that is shorter than the session ends the lease just as well.
        let span = lease.claim.ttl.map_or(session, |ttl| ttl.min(session)).get();
        let mut table = self.shared.table();
        table.sessions.insert(lease.id, Session::new(lease, span, sent_at));
        if table.thread.is_none() {
            let shared = Arc::clone(&self.shared);
            let spawned = thread::Builder::new().name("sessions".to_owned()).spawn(move || shared.run());
            // Without the thread the session lapses, and the holder stops in time.
            table.thread = spawned.ok();
        }
        drop(table);
        self.shared.changed.notify_all();
    }

    /// Ends the renewals of a lease. Returns it if its session was still valid.
    pub(crate) fn forget(&self, id: LeaseId) -> Option<Lease> {
        let forgotten = self.shared.table().sessions.remove(&id)?;
        forgotten.is_valid(clock::now()).then_some(forgotten.lease)
    }

    /// Renews the session of this lease now: the store does not seem to know the lease. Returns whether it has a session, and why
    /// it is lost.
    pub(crate) fn check(&self, id: LeaseId) -> Option<Option<NotCurrent>> {
        self.shared.renew(id);
        self.shared.table().sessions.get(&id).map(|session| session.loss.clone())
    }

    /// Why the session of this lease is over or has to be given up now; none while it is valid, or if it has no session.
    pub(crate) fn loss(&self, id: LeaseId, grace: Duration) -> Option<NotCurrent> {
        let table = self.shared.table();
        let session = table.sessions.get(&id)?;
        let has_lapsed = session.stop_at(grace) <= clock::now();
        session.loss.clone().or_else(|| has_lapsed.then_some(NotCurrent::SessionLapsed(id)))
    }

    /// When to look at the session of this lease again; none if it has no session.
    pub(crate) fn look_at(&self, id: LeaseId, grace: Duration) -> Option<Moment> {
        let table = self.shared.table();
        let session = table.sessions.get(&id)?;
        Some(session.stop_at(grace).min(clock::now().after(LOOK_EVERY)))
    }
}

impl Drop for Sessions {
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

impl Shared {
    fn table(&self) -> MutexGuard<'_, Table> {
        // A panic leaves no session half changed.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut table = self.table();
        while !table.is_over {
            let now = clock::now();
            let valid = table.sessions.iter().filter(|(_, session)| session.loss.is_none());
            let next = valid.min_by_key(|(_, session)| session.renew_at);
            match next.map(|(id, session)| (*id, session.renew_at)) {
                Some((id, renew_at)) if renew_at <= now => {
                    drop(table);
                    self.renew(id);
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
    fn renew(&self, id: LeaseId) {
        let _one_at_a_time = self.renewing.lock().unwrap_or_else(PoisonError::into_inner);
        let session = self.table().sessions.get(&id).filter(|session| session.loss.is_none()).cloned();
        let Some(session) = session else { return };
        let renewed = self.renewed(id, session);
        // The lease may have been released or upgraded meanwhile.
        let mut table = self.table();
        if let Some(known) = table.sessions.get_mut(&id).filter(|it| it.lease.token == renewed.lease.token) {
            *known = renewed;
        }
    }

    /// Renews one session with a call of the store.
    fn renewed(&self, id: LeaseId, mut session: Session) -> Session {
        let sent_at = clock::now();
        let mut attempted = Vec::new();
        let decided = decide(&*self.store, &self.probe, |overlay| {
            attempted.push(overlay.now());
            // A lease that was released meanwhile, or whose session may have ended, is not said again.
            let is_held = self.table().sessions.contains_key(&id) && session.is_valid(clock::now());
            lease::keep_session(overlay, &session.lease, &session.written, is_held)
        });
        match decided.map(|(renewed, _)| renewed) {
            Ok(Ok(lease)) => {
                session.written = vec![lease.heartbeat_at];
                session.lease = lease;
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
