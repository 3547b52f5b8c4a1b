//! What this machine shows of a proof of life.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use lockkeeper_core::id::HolderId;
use lockkeeper_core::liveness::{Origin, ProcessRef, Proof, Sight, Voucher};

use lockkeeper_platform::life::LifeFile;
use lockkeeper_platform::process::Watch;
use lockkeeper_platform::watches::Watches;
use lockkeeper_platform::{pipe, process};

/// Where we are, and the file on which resident holders keep their locks.
pub struct Senses {
    origin: Origin,
    life: Arc<LifeFile>,
    sentries: Arc<Mutex<BTreeMap<HolderId, Arc<OwnedFd>>>>,
    watches: Watches,
}

impl Senses {
    /// Looks from this process, at holders whose locks are in `folder`.
    pub fn new(folder: &Path, origin: Origin) -> io::Result<Self> {
        let life = Arc::new(LifeFile::open(folder)?);
        Ok(Self { origin, life, sentries: Arc::default(), watches: Watches::default() })
    }

    /// Where we are.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// The file of locks.
    pub fn life(&self) -> &LifeFile {
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

    /// Looks at a holder or waiter.
    pub fn look(&self, proof: &Proof) -> Sight {
        // The id of a boot is unique: where it is the same, the machine is, whatever a container calls it.
        if proof.origin.boot != self.origin.boot {
            let same_machine = proof.origin.host == self.origin.host;
            return if same_machine { Sight::OtherBoot } else { Sight::OtherHost };
        }
        match proof.voucher {
            Voucher::KernelLock { holder, .. } => Sight::Lock(self.life.look(holder)),
            Voucher::Process(_) if !self.shares_pids_with(&proof.origin) => Sight::OtherPidNamespace,
            Voucher::Process(process) => Sight::Process(process::look(process)),
            Voucher::Time => Sight::Nothing,
        }
    }
}

impl Senses {
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
