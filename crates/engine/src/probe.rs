//! Liveness probe of this machine: liveness locks, processes, and how to wait for their end.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use lockkeeper_core::id::{HolderId, WakerId};
use lockkeeper_core::liveness::{
    LivenessProbe, LockState, Observation, Origin, ProcessRef, ProcessState, Proof, Voucher,
};

use lockkeeper_platform::liveness_lock::LivenessFile;
use lockkeeper_platform::process::Watch;
use lockkeeper_platform::watches::Watches;
use lockkeeper_platform::{nested, pipe, process, waker};

/// Looks at the processes and liveness locks of this machine.
pub struct MachineProbe {
    folder: PathBuf,
    origin: Origin,
    life: Arc<LivenessFile>,
    lock_watches: Arc<Mutex<BTreeMap<HolderId, Arc<OwnedFd>>>>,
    watches: Watches,
}

impl MachineProbe {
    /// Looks at holders whose liveness locks are in `folder`.
    pub fn new(folder: &Path, origin: Origin) -> io::Result<Self> {
        Ok(Self::with(LivenessFile::open(folder)?, folder, origin))
    }

    /// Looks at holders whose liveness locks are in a folder that this process cannot write in.
    pub fn to_read(folder: &Path, origin: Origin) -> io::Result<Self> {
        Ok(Self::with(LivenessFile::open_to_read(folder)?, folder, origin))
    }

    fn with(life: LivenessFile, folder: &Path, origin: Origin) -> Self {
        Self {
            folder: folder.to_owned(),
            origin,
            life: Arc::new(life),
            lock_watches: Arc::default(),
            watches: Watches::default(),
        }
    }

    /// The folder with the liveness locks.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The machine, boot and pid namespace of this process.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// The file with the liveness locks of all holders.
    pub fn liveness_file(&self) -> &LivenessFile {
        &self.life
    }

    /// Whether liveness locks of that origin can be seen here. Claims with a session have theirs in another folder than those without,
    /// also on the same machine.
    pub fn sees(&self, other: &Origin) -> bool {
        other.boot == self.origin.boot && self.shares_sessions_with(other)
    }

    /// Whether both have sessions, or both have none. A folder that is served has claims of both kinds.
    fn shares_sessions_with(&self, other: &Origin) -> bool {
        other.session.is_some() == self.origin.session.is_some()
    }

    /// Whether process ids of that origin are valid here.
    pub fn shares_pids_with(&self, other: &Origin) -> bool {
        self.sees(other) && other.pid_namespace == self.origin.pid_namespace
    }

    /// A handle to wait for the end of a process.
    pub fn watch(&self, process: ProcessRef) -> Watch {
        self.watches.watch(process)
    }
}

impl LivenessProbe for MachineProbe {
    fn observe(&self, proof: &Proof) -> Observation {
        if !self.shares_sessions_with(&proof.origin) {
            return Observation::OtherHost;
        }
        // The id of a boot is unique. If it is the same, the machine is the same, also if a container has another host name.
        if proof.origin.boot != self.origin.boot {
            // On a store that several machines share, two machines may have one name: clones of each other.
            let same_machine = proof.origin.session.is_none() && proof.origin.host == self.origin.host;
            return if same_machine { Observation::OtherBoot } else { Observation::OtherHost };
        }
        match proof.voucher {
            Voucher::KernelLock { holder, .. } => Observation::Lock(self.life.look(holder)),
            Voucher::Process(process) if !self.shares_pids_with(&proof.origin) => {
                match nested::look(proof.origin.pid_namespace, process) {
                    ProcessState::Unreadable => Observation::OtherPidNamespace,
                    state => Observation::Process(state),
                }
            }
            Voucher::Process(process) => Observation::Process(process::look(process)),
            Voucher::Time | Voucher::TimeFor(_) => Observation::Nothing,
        }
    }

    fn is_waker_abandoned(&self, waker: WakerId) -> bool {
        // The wakers of a store that several machines share are no files.
        self.origin.session.is_none() && waker::is_abandoned(&self.folder, waker)
    }
}

impl MachineProbe {
    /// A descriptor that becomes readable when the last process of a holder is gone.
    ///
    /// It costs one thread for each such holder, which sleeps in the kernel until then. It is for commands that outlive their
    /// wrapper, and for holders in other pid namespaces. None if no thread can be started, or if the lock cannot be read.
    pub fn watch_lock(&self, holder: HolderId) -> Option<Arc<OwnedFd>> {
        let mut lock_watches = self.lock_watches.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lock_watches.get(&holder) {
            return Some(Arc::clone(known));
        }
        if self.life.look(holder) == LockState::Unreadable {
            return None;
        }
        let (reader, writer) = pipe::blocking().ok()?;
        let reader = Arc::new(reader);
        let (life, all) = (Arc::clone(&self.life), Arc::clone(&self.lock_watches));
        let watch = move || {
            let _ended = life.wait_free(holder);
            all.lock().unwrap_or_else(PoisonError::into_inner).remove(&holder);
            drop(writer);
        };
        thread::Builder::new().name("lock-watch".to_owned()).spawn(watch).ok()?;
        lock_watches.insert(holder, Arc::clone(&reader));
        Some(reader)
    }
}
