//! Served store: other machines use the leases and runs of this machine's state folder, through `lockkeeper serve`.
//!
//! They judge their own holders. The processes of this machine can only be seen here, so the server removes the leases of those that
//! have died.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lockkeeper_core::id::WakerId;
use lockkeeper_core::time::Ttl;
use lockkeeper_platform::origin;
pub use lockkeeper_store::http::ALIVE;
use lockkeeper_store::runs::ChangeSignal;
use lockkeeper_store::{ServedFolder, ServedWaker, StoreError};

use crate::Engine;
use crate::location::Location;
use crate::open::OpenError;
use crate::runs::portable::for_any_machine;

/// How often the server looks for dead holders of this machine, at most.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// The leases and runs of a state folder, for other machines.
pub struct ServedStore {
    folder: PathBuf,
    /// The root of the project. Folders of requests are relative to it.
    root: PathBuf,
    project: String,
    session: Ttl,
    /// Opened with the first call: a folder that nobody uses from elsewhere keeps no log.
    open: Mutex<Option<Arc<ServedFolder>>>,
    wakers: Mutex<Wakers>,
    looked_at: Mutex<Option<Instant>>,
}

#[derive(Default)]
struct Wakers {
    by_id: BTreeMap<u64, (u64, Arc<Mutex<ServedWaker>>)>,
    count: u64,
}

impl ServedStore {
    /// The leases at this location as those of a project. `session` is that of its clients.
    pub fn new(location: &Location, project: &str, session: Ttl) -> Self {
        Self {
            folder: location.state.clone(),
            root: location.root.clone(),
            project: project.to_owned(),
            session,
            open: Mutex::default(),
            wakers: Mutex::default(),
            looked_at: Mutex::default(),
        }
    }

    /// Answers one call of another machine.
    pub fn answer(&self, leases: &Engine, request: &[u8]) -> Result<Vec<u8>, OpenError> {
        self.reap(leases)?;
        match self.folder()?.answer(request) {
            // The database was made anew, or the folder was.
            Err(StoreError::Removed { .. }) => {
                *lock(&self.open) = None;
                Ok(self.folder()?.answer(request)?)
            }
            answered => Ok(answered?),
        }
    }

    /// The wake-ups of a process on another machine. Who asks later for the same ones gets them alone.
    pub fn waker(self: &Arc<Self>, id: u64) -> Result<RemoteWaker, OpenError> {
        let mut wakers = lock(&self.wakers);
        wakers.count += 1;
        let number = wakers.count;
        let waker = match wakers.by_id.get(&id) {
            Some((_, waker)) => Arc::clone(waker),
            None => Arc::new(Mutex::new(self.folder()?.waker(WakerId(id))?)),
        };
        let descriptor = lock(&waker).as_fd().try_clone_to_owned().map_err(OpenError::Machine)?;
        wakers.by_id.insert(id, (number, Arc::clone(&waker)));
        Ok(RemoteWaker { store: Arc::clone(self), id, number, waker, descriptor: Some(descriptor) })
    }

    /// The changes of requests and runs, for a process on another machine.
    pub fn changes(&self) -> Result<RemoteChanges, OpenError> {
        let changes = self.folder()?.changes()?;
        let descriptor = changes.as_fd().map(|fd| fd.try_clone_to_owned()).transpose();
        Ok(RemoteChanges { descriptor: descriptor.map_err(OpenError::Machine)?, changes })
    }

    /// Removes the leases of holders of this machine that have died, so that others need not wait for them.
    pub fn reap(&self, leases: &Engine) -> Result<(), StoreError> {
        let mut looked_at = lock(&self.looked_at);
        if looked_at.is_some_and(|at| at.elapsed() < LOOK_EVERY) {
            return Ok(());
        }
        *looked_at = Some(Instant::now());
        drop(looked_at);
        if leases.has_dead_holder()? {
            leases.clean_up()?;
        }
        Ok(())
    }

    fn folder(&self) -> Result<Arc<ServedFolder>, OpenError> {
        let mut open = lock(&self.open);
        if let Some(folder) = &*open {
            return Ok(Arc::clone(folder));
        }
        let here = origin::origin().map_err(OpenError::Machine)?;
        let (folder, project) = (&self.folder, &self.project);
        let translate = |request| for_any_machine(&self.root, request);
        let folder = ServedFolder::open(folder, &here.boot, project, self.session, &translate)?;
        let folder = Arc::new(folder);
        *open = Some(Arc::clone(&folder));
        Ok(folder)
    }
}

impl Engine {
    /// Whether a holder of this machine has died and its lease is still there.
    fn has_dead_holder(&self) -> Result<bool, StoreError> {
        self.look(|overlay| {
            let (leases, _) = overlay.all()?;
            Ok(leases.iter().any(|lease| {
                lease.claim.proof.origin.session.is_none() && overlay.judge_lease(lease).is_free()
            }))
        })
    }
}

/// The changes of requests and runs, for a process on another machine.
pub struct RemoteChanges {
    changes: Box<dyn ChangeSignal>,
    descriptor: Option<OwnedFd>,
}

impl RemoteChanges {
    /// Readable after a change; none if the system cannot signal changes. It can be taken once.
    pub fn take_descriptor(&mut self) -> Option<OwnedFd> {
        self.descriptor.take()
    }

    /// Forgets all changes so far.
    pub fn receive(&self) {
        self.changes.drain();
    }
}

/// The wake-ups of a process on another machine.
pub struct RemoteWaker {
    store: Arc<ServedStore>,
    id: u64,
    number: u64,
    waker: Arc<Mutex<ServedWaker>>,
    descriptor: Option<OwnedFd>,
}

impl RemoteWaker {
    /// Readable after a wake-up. It can be taken once.
    pub fn take_descriptor(&mut self) -> Option<OwnedFd> {
        self.descriptor.take()
    }

    /// Forgets all wake-ups so far. Returns what to tell the process; none if it has connected again, and is told there.
    pub fn receive(&self) -> Option<String> {
        let wakers = lock(&self.store.wakers);
        let is_current = wakers.by_id.get(&self.id).is_some_and(|(number, _)| *number == self.number);
        is_current.then(|| lock(&self.waker).receive())
    }
}

impl Drop for RemoteWaker {
    fn drop(&mut self) {
        let mut wakers = lock(&self.store.wakers);
        if wakers.by_id.get(&self.id).is_some_and(|(number, _)| *number == self.number) {
            wakers.by_id.remove(&self.id);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each value is replaced as a whole, so a panic elsewhere leaves it sound.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
