//! Supervision of a command under a lease: renews the lease while the command runs, and stops the command if the lease is lost.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use lockkeeper_core::id::{HolderId, WakerId};
use lockkeeper_core::lease::NotCurrent;
use lockkeeper_core::record::Lease;
use lockkeeper_core::time::Moment;

use super::Engine;
use lockkeeper_platform::clock;
use lockkeeper_platform::exec::{Ending, Event, Next, Running};
use lockkeeper_store::{StoreError, Waker};

/// Commands that end sooner than this get no waker: creating one takes longer than they do.
const SHORT: Duration = Duration::from_millis(20);

/// How often the lease is checked where no waker reports its loss, or where the last check failed.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How a command under a lease ended.
#[derive(Debug)]
pub struct Supervised {
    /// The end of the command.
    pub ending: Ending,
    /// Why the command was stopped, if its lease was lost.
    pub loss: Option<NotCurrent>,
}

/// Wakes a holder when another process takes one of its leases away.
pub struct LossListener {
    waker: Box<dyn Waker>,
}

impl LossListener {
    /// Readable when a lease may be lost.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.waker.as_fd()
    }

    /// Forgets all wake-ups so far. Call it before the leases are read, so that no later wake-up is missed.
    pub fn clear(&self) {
        self.waker.receive();
    }
}

impl Engine {
    /// Listens for the loss of the leases of one resident holder. Only one listener of a holder may exist.
    pub fn listen_for_loss(&self, holder: HolderId) -> Result<LossListener, StoreError> {
        Ok(LossListener { waker: self.store.waker_with_id(WakerId(holder.0))? })
    }

    /// Listens for the loss of this lease. None if nobody would wake its holder, or the waker cannot be created.
    pub(crate) fn loss_listener(&self, lease: &Lease) -> Option<LossListener> {
        let waker = self.store.waker_with_id(lease.waker()?).ok()?;
        Some(LossListener { waker })
    }

    /// Waits for the end of a command that runs under a lease of this process. Renews the lease. If the lease is lost, stops the
    /// command with its whole process tree: TERM, `grace`, KILL.
    pub fn supervise(&self, mut running: Running, lease: &Lease, grace: Duration) -> io::Result<Supervised> {
        let begun = clock::now();
        if let Some(ending) = running.supervise_until(begun.after(SHORT))? {
            return Ok(Supervised { ending, loss: None });
        }
        let listener = self.loss_listener(lease);
        let mut watch = Watch {
            engine: self,
            lease,
            listener: listener.as_ref(),
            grace,
            renew_at: renew_at(lease, begun),
            loss: None,
        };
        let descriptors: Vec<_> = listener.iter().map(LossListener::as_fd).collect();
        let ending = running.supervise(&descriptors, &mut |event| watch.on_event(event))?;
        Ok(Supervised { ending, loss: watch.loss })
    }
}

/// Renews the lease and notices its loss while the command runs.
struct Watch<'w> {
    engine: &'w Engine,
    lease: &'w Lease,
    listener: Option<&'w LossListener>,
    grace: Duration,
    /// When the lease has to be renewed, on the clock of this machine; none if it has no TTL.
    renew_at: Option<Moment>,
    loss: Option<NotCurrent>,
}

impl Watch<'_> {
    fn on_event(&mut self, event: Event) -> Next {
        if let (Event::Ready(_), Some(listener)) = (event, self.listener) {
            listener.clear();
        }
        let now = clock::now();
        if let Some(loss) = self.engine.sessions.loss(self.lease.id, self.grace) {
            self.loss = Some(loss);
            return Next::Stop(self.grace);
        }
        let checked = match self.renew_at {
            Some(due) if due <= now => self.renew(now),
            Some(_) | None => self.engine.loss(self.lease.id, self.lease.token),
        };
        match checked {
            Ok(Some(loss)) => {
                self.loss = Some(loss);
                Next::Stop(self.grace)
            }
            Ok(None) => {
                let look_at = self.listener.is_none().then(|| now.after(LOOK_EVERY));
                let session = self.engine.sessions.look_at(self.lease.id, self.grace);
                let next = [self.renew_at, look_at, session].into_iter().flatten().min();
                next.map_or(Next::Wait, Next::WaitUntil)
            }
            // The store may be back before the lease ends.
            Err(_) => Next::WaitUntil(now.after(LOOK_EVERY)),
        }
    }

    fn renew(&mut self, now: Moment) -> Result<Option<NotCurrent>, StoreError> {
        let renewed = self.engine.renew(self.lease.id, Some(self.lease.token), None)?;
        self.renew_at = renew_at(self.lease, now);
        Ok(renewed.err())
    }
}

/// A lease is renewed three times within its TTL.
fn renew_at(lease: &Lease, now: Moment) -> Option<Moment> {
    lease.claim.ttl.map(|ttl| now.after(ttl.get() / 3))
}
