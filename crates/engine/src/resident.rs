//! Resident holder: a process that proves that it lives by a liveness lock (a kernel lock) for as long as it holds leases.

use std::io;

use lockkeeper_core::id::HolderId;
use lockkeeper_core::liveness::{Origin, ProcessRef, Proof, Voucher};
use lockkeeper_platform::liveness_lock::LivenessLock;
use lockkeeper_platform::process;

use super::Engine;

/// The liveness lock of this process. Its leases end when this process and all commands that share the lock are gone.
#[derive(Debug)]
pub struct Resident {
    lock: LivenessLock,
    process: ProcessRef,
    origin: Origin,
}

impl Engine {
    /// Takes a new liveness lock for this process.
    pub fn resident(&self) -> io::Result<Resident> {
        let process = process::current()?;
        let lock = self.probe().liveness_file().hold_new()?;
        Ok(Resident { lock, process, origin: self.probe().origin().clone() })
    }
}

impl Resident {
    /// The proof of life of this process and of the commands that share its lock.
    pub fn proof(&self) -> Proof {
        let voucher = Voucher::KernelLock { holder: self.holder(), process: self.process };
        Proof { origin: self.origin.clone(), voucher }
    }

    /// The id of the lock.
    pub fn holder(&self) -> HolderId {
        self.lock.holder()
    }

    /// The lock. Commands that this process starts may share it.
    pub fn lock(&self) -> &LivenessLock {
        &self.lock
    }
}
