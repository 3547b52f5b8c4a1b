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

use lockkeeper_core::id::{LeaseId, Token};
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
    token: Token,
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
            token: lease.token,
            span,
            written: vec![lease.heartbeat_at],
            sent_at,
            renew_at: sent_at.after(span / 3),
            loss: None,
        }
    }

    /// When the command of the lease has to be stopped at the latest, if it gets `grace` to end by itself.
    fn stop_at(&self, grace: Duration) -> Moment {
        self.sent_at.after(self.span.saturating_sub(grace + RESERVE))
    }
}

impl Sessions {
    pub(crate) fn new(store: Arc<dyn LeaseStore>, probe: Arc<MachineProbe>) -> Self {
        let (table, changed) = (Mutex::default(), Condvar::new());
        Self { shared: Arc::new(Shared { store, probe, table, changed }) }
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

    /// Ends the renewals of a lease.
    pub(crate) fn forget(&self, id: LeaseId) {
        self.shared.table().sessions.remove(&id);
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
            match next.map(|(id, session)| (*id, session.clone())) {
                Some((id, session)) if session.renew_at <= now => {
                    drop(table);
                    let renewed = self.renew(id, session);
                    table = self.table();
                    // The lease may have been released or upgraded meanwhile.
                    if let Some(known) = table.sessions.get_mut(&id).filter(|it| it.token == renewed.token) {
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

    /// Renews one session with a call of the store.
    fn renew(&self, id: LeaseId, mut session: Session) -> Session {
        let sent_at = clock::now();
        let mut attempted = Vec::new();
        let decided = decide(&*self.store, &self.probe, |overlay| {
            attempted.push(overlay.now());
            lease::keep_session(overlay, id, session.token, &session.written)
        });
        match decided.map(|(renewed, _)| renewed) {
            Ok(Ok(lease)) => {
                session.written = vec![lease.heartbeat_at];
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
