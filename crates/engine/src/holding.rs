//! Supervision of a command under a lease: renews the lease while the command runs, and stops the command if the lease is lost.

use std::io;
use std::mem;
use std::os::fd::BorrowedFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, Scope};
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

/// How often the supervisor looks whether the store has answered.
const ANSWER_POLL_INTERVAL: Duration = Duration::from_millis(10);

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

    /// Clears all wake-ups so far. Call it before you read the leases, so that no later wake-up is missed.
    pub fn clear(&self) {
        self.waker.receive();
    }
}

impl Engine {
    /// Listens for the loss of the leases of one resident holder. Only one listener of a holder may exist.
    pub fn listen_for_loss(&self, holder: HolderId) -> Result<LossListener, StoreError> {
        Ok(LossListener { waker: self.store.waker_with_id(WakerId(holder.0))? })
    }

    /// Listens for the loss of this lease. None if its holder has no waker, or the waker cannot be created.
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
        let descriptors: Vec<_> = listener.iter().map(LossListener::as_fd).collect();
        thread::scope(|scope| {
            let mut watch = LossWatch {
                engine: self,
                lease,
                listener: listener.as_ref(),
                grace,
                renew_at: renew_at(lease, begun),
                checker: lease.claim.session().map(|_| Checker::start(scope, self, lease)),
                loss: None,
            };
            let ending = running.supervise(&descriptors, &mut |event| watch.on_event(event))?;
            Ok(Supervised { ending, loss: watch.loss })
        })
    }

    /// Renews the lease, or only checks whether it is lost. Returns why it is lost.
    fn check(&self, lease: &Lease, check: Check) -> Result<Option<NotCurrent>, StoreError> {
        let renewed = match check {
            Check::Look => Err(NotCurrent::Revoked(lease.id)),
            Check::Renew => self.renew(lease.id, Some(lease.token), None)?,
        };
        match renewed {
            Err(NotCurrent::Revoked(_)) => self.loss_to_obey(lease.id, lease.token),
            renewed => Ok(renewed.err()),
        }
    }
}

/// A question to the store while a command runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Check {
    Look,
    Renew,
}

/// Asks a store on another machine in a thread of its own. A broken link may block a call for long, and the supervisor has to
/// stop the command before its session ends.
struct Checker {
    checks: Sender<Check>,
    answers: Receiver<(Check, Result<Option<NotCurrent>, StoreError>)>,
    is_asked: bool,
    /// Whether a wake-up came after the question that has no answer yet: then it has to be asked again.
    is_outdated: bool,
}

impl Checker {
    fn start<'s, 'e: 's>(scope: &'s Scope<'s, 'e>, engine: &'e Engine, lease: &'e Lease) -> Self {
        let ((checks, asked), (answer, answers)) = (channel(), channel());
        scope.spawn(move || {
            for check in asked {
                // The receiver is gone if the command has ended meanwhile.
                let _ = answer.send((check, engine.check(lease, check)));
            }
        });
        Self { checks, answers, is_asked: false, is_outdated: false }
    }

    /// Asks, unless the last question has no answer yet. Returns the answer if there is one.
    fn ask(&mut self, check: Check) -> Option<(Check, Result<Option<NotCurrent>, StoreError>)> {
        let answer = self.answers.try_recv().ok();
        self.is_asked &= answer.is_none();
        if !self.is_asked && (answer.is_none() || mem::take(&mut self.is_outdated)) {
            self.is_asked = self.checks.send(check).is_ok();
        }
        answer
    }
}

/// Renews the lease and notices its loss while the command runs.
struct LossWatch<'w> {
    engine: &'w Engine,
    lease: &'w Lease,
    listener: Option<&'w LossListener>,
    grace: Duration,
    /// When the lease has to be renewed, on the clock of this machine; none if it has no TTL.
    renew_at: Option<Moment>,
    checker: Option<Checker>,
    loss: Option<NotCurrent>,
}

impl LossWatch<'_> {
    fn on_event(&mut self, event: Event) -> Next {
        if let (Event::Ready(_), Some(listener)) = (event, self.listener) {
            listener.clear();
            if let Some(checker) = &mut self.checker {
                checker.is_outdated = checker.is_asked;
            }
        }
        let now = clock::now();
        if let Some(loss) = self.engine.sessions.loss(self.lease.id, self.grace) {
            self.loss = Some(loss);
            return Next::Stop(self.grace);
        }
        let is_due = self.renew_at.is_some_and(|due| due <= now);
        let check = if is_due { Check::Renew } else { Check::Look };
        let answer = match &mut self.checker {
            None => Some((check, self.engine.check(self.lease, check))),
            Some(checker) => checker.ask(check),
        };
        let Some((check, checked)) = answer else { return Next::WaitUntil(now.after(ANSWER_POLL_INTERVAL)) };
        if check == Check::Renew && checked.is_ok() {
            self.renew_at = renew_at(self.lease, now);
        }
        match checked {
            Ok(Some(loss)) => {
                self.loss = Some(loss);
                Next::Stop(self.grace)
            }
            Ok(None) => {
                let is_asked = self.checker.as_ref().is_some_and(|checker| checker.is_asked);
                let answer_at = is_asked.then(|| now.after(ANSWER_POLL_INTERVAL));
                let look_at = self.listener.is_none().then(|| now.after(LOOK_EVERY));
                let session = self.engine.sessions.look_at(self.lease.id, self.grace);
                let next = [self.renew_at, answer_at, look_at, session].into_iter().flatten().min();
                next.map_or(Next::Wait, Next::WaitUntil)
            }
            // The store may answer again before the lease ends.
            Err(_) => Next::WaitUntil(now.after(LOOK_EVERY)),
        }
    }
}

/// A lease is renewed three times within its TTL.
fn renew_at(lease: &Lease, now: Moment) -> Option<Moment> {
    lease.claim.ttl.map(|ttl| now.after(ttl.get() / 3))
}
