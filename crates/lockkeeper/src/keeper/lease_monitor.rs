//! Lease monitor: the thread that renews leases with a TTL and notices lost leases and sessions. It is started when first needed.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::{Duration, Instant};

use lockkeeper_engine::LossListener;

use super::guard::Held;
use super::{Error, Keeper, Shared, locked};
use lockkeeper_platform::{pipe, poll};

/// How soon a renewal that failed is tried again.
const RETRY: Duration = Duration::from_millis(500);

/// The handle of the thread.
pub(super) struct LeaseMonitor {
    guards: Arc<Mutex<Vec<Weak<Held>>>>,
    /// A byte means: look at the guards again. Closed means: the keeper is gone.
    control: OwnedFd,
}

impl LeaseMonitor {
    /// Starts the thread. From here on a process that takes a lease away can wake it.
    pub(super) fn start(keeper: &Keeper) -> Result<Self, Error> {
        let holder = keeper.resident()?.holder();
        let listener = keeper.engine().listen_for_loss(holder).map_err(Error::store)?;
        let (reader, control) = pipe::nonblocking().map_err(Error::System)?;
        let guards: Arc<Mutex<Vec<Weak<Held>>>> = Arc::default();
        let thread =
            Thread { keeper: Arc::downgrade(&keeper.shared), guards: Arc::clone(&guards), listener, reader };
        let spawned = thread::Builder::new().name("lockkeeper".to_owned()).spawn(move || thread.run());
        spawned.map_err(Error::System)?;
        Ok(Self { guards, control })
    }

    /// Watches a guard as long as it exists.
    pub(super) fn watch(&self, held: &Arc<Held>) {
        let mut guards = locked(&self.guards);
        guards.retain(|guard| guard.strong_count() > 0);
        let weak = Arc::downgrade(held);
        if !guards.iter().any(|guard| guard.ptr_eq(&weak)) {
            guards.push(weak);
        }
        // A full pipe has a byte already.
        let _ = rustix::io::write(&self.control, b"!");
    }
}

struct Thread {
    keeper: Weak<Shared>,
    guards: Arc<Mutex<Vec<Weak<Held>>>>,
    listener: LossListener,
    reader: OwnedFd,
}

impl Thread {
    fn run(self) {
        let mut retry_at = None;
        loop {
            let due = retry_at.or_else(|| self.next_due());
            let timeout = due.map(|due: Instant| due.saturating_duration_since(Instant::now()));
            let Ok(ready) = poll::wait(&[self.listener.as_fd(), self.reader.as_fd()], timeout) else {
                return;
            };
            self.listener.clear();
            if ready.contains(1) && self.is_closed() {
                return;
            }
            let Some(keeper) = self.keeper.upgrade() else { return };
            // Sessions first: a store that does not answer must not delay the news of them.
            for held in self.held() {
                held.check_session(&keeper.engine);
                held.run_callbacks();
            }
            let is_woken = ready.any() || retry_at.is_some();
            let mut failed = false;
            // All of them, also after one failed.
            for held in self.held() {
                let is_due = held.renewal_due().is_some_and(|due| due <= Instant::now());
                let looked = match (is_due, is_woken) {
                    (true, _) => held.renew(&keeper.engine),
                    (false, true) => held.check(&keeper.engine).map(|_| ()),
                    (false, false) => Ok(()),
                };
                held.run_callbacks();
                failed |= looked.is_err();
            }
            retry_at = failed.then(|| Instant::now() + RETRY);
        }
    }

    /// When a lease has to be renewed, or a session looked at.
    fn next_due(&self) -> Option<Instant> {
        let keeper = self.keeper.upgrade()?;
        let held = self.held();
        let dues = held.iter().flat_map(|held| [held.renewal_due(), held.session_due(&keeper.engine)]);
        dues.flatten().min()
    }

    fn held(&self) -> Vec<Arc<Held>> {
        locked(&self.guards).iter().filter_map(Weak::upgrade).collect()
    }

    fn is_closed(&self) -> bool {
        let mut bytes = [0; 64];
        loop {
            match rustix::io::read(&self.reader, &mut bytes) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(_) => return false,
            }
        }
    }
}
