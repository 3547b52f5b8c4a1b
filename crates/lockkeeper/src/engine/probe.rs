//! What this machine shows of a proof of life.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use lockkeeper_core::id::HolderId;
use lockkeeper_core::liveness::{LivenessProbe, Observation, Origin, ProcessRef, Proof, Voucher};

use crate::platform::liveness_lock::LivenessFile;
use crate::platform::process::Watch;
use crate::platform::watches::Watches;
use crate::platform::{pipe, process};

/// Where we are, and the file on which resident holders keep their locks.
pub struct MachineProbe {
    origin: Origin,
    life: Arc<LivenessFile>,
    sentries: Arc<Mutex<BTreeMap<HolderId, Arc<OwnedFd>>>>,
    watches: Watches,
}

impl MachineProbe {
    /// Looks from this process, at holders whose locks are in `folder`.
    pub fn new(folder: &Path, origin: Origin) -> io::Result<Self> {
        let life = Arc::new(LivenessFile::open(folder)?);
        Ok(Self { origin, life, sentries: Arc::default(), watches: Watches::default() })
    }

    /// Where we are.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// The file of locks.
    pub fn liveness_file(&self) -> &LivenessFile {
        &self.life
    }

    /// Whether process numbers of that place mean the same here.
    pub fn shares_pids_with(&self, other: &Origin) -> bool {
        other.boot == self.origin.boot && other.pid_namespace == self.origin.pid_namespace
    }

    /// How to wait for the end of a process.
    pub fn watch(&self, process: ProcessRef) -> Watch {
        self.watches.watch(process)
    }
}

impl LivenessProbe for MachineProbe {
    fn observe(&self, proof: &Proof) -> Observation {
        // The id of a boot is unique: where it is the same, the machine is, whatever a container calls it.
        if proof.origin.boot != self.origin.boot {
            let same_machine = proof.origin.host == self.origin.host;
            return if same_machine { Observation::OtherBoot } else { Observation::OtherHost };
        }
        match proof.voucher {
            Voucher::KernelLock { holder, .. } => Observation::Lock(self.life.look(holder)),
            Voucher::Process(_) if !self.shares_pids_with(&proof.origin) => Observation::OtherPidNamespace,
            Voucher::Process(process) => Observation::Process(process::look(process)),
            Voucher::Time => Observation::Nothing,
        }
    }
}

impl MachineProbe {
    /// A descriptor that becomes readable when the last process of a holder is gone.
    ///
    /// It costs a thread that sleeps in the kernel until then, one for each such holder: for commands that
    /// outlive their wrapper, and holders of other pid namespaces. None when there can be no thread.
    pub fn sentry(&self, holder: HolderId) -> Option<Arc<OwnedFd>> {
        let mut sentries = self.sentries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(posted) = sentries.get(&holder) {
            return Some(Arc::clone(posted));
        }
        let (reader, writer) = pipe::blocking().ok()?;
        let reader = Arc::new(reader);
        let (life, all) = (Arc::clone(&self.life), Arc::clone(&self.sentries));
        let watch = move || {
            let _ended = life.wait_free(holder);
            all.lock().unwrap_or_else(PoisonError::into_inner).remove(&holder);
            drop(writer);
        };
        thread::Builder::new().name("sentry".to_owned()).spawn(watch).ok()?;
        sentries.insert(holder, Arc::clone(&reader));
        Some(reader)
    }
}
