//! Liveness: whether the holder of a record still lives.
//!
//! A [`Proof`] in the record says what to look at. A [`LivenessProbe`] looks at it and returns an [`Observation`]. [`judge`]
//! turns the observation into a [`Verdict`], always in the same order. What is not known counts as held: only the kernel proves
//! a death.

use std::fmt;

use crate::id::{HolderId, WakerId};
use crate::time::{Moment, Ttl};

/// The machine and boot where a claim was made. Process ids and moments are valid only there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    /// The machine's host name.
    pub host: String,
    /// The kernel's id of this boot.
    pub boot: String,
    /// The pid namespace that process numbers belong to.
    pub pid_namespace: u64,
    /// How long a claim lasts after its last sign of life, where the kernel shows nothing of it. Only a store that several
    /// machines share has sessions: on one machine the kernel always knows.
    pub session: Option<Ttl>,
}

/// One process. The start time distinguishes it from a later process with the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProcessRef {
    /// The process id, 1 to 2²².
    pub pid: u32,
    /// When it started, in the kernel's ticks since boot.
    pub started: u64,
}

/// What proves that the holder of a claim lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Voucher {
    /// A kernel lock that lasts as long as any process of the holder. It needs no pid, clock or TTL.
    KernelLock {
        /// The offset of the lock in the file `life`.
        holder: HolderId,
        /// The process that took it. It is shown to people and watched by waiters.
        process: ProcessRef,
    },
    /// A process that was chosen for the claim.
    Process(ProcessRef),
    /// Nothing. The claim ends with its TTL.
    Time,
    /// Nothing. The claim ends with its TTL. It was made for this process, whose descendants may end it earlier.
    TimeFor(ProcessRef),
}

impl Voucher {
    /// Whether only the TTL ends the claim.
    pub fn is_time_alone(self) -> bool {
        matches!(self, Self::Time | Self::TimeFor(_))
    }
}

impl fmt::Display for Voucher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::KernelLock { .. } => "kernel-lock",
            Self::Process(_) => "process",
            Self::Time | Self::TimeFor(_) => "ttl",
        })
    }
}

/// How the store knows that an owner still lives.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Proof {
    /// Where the claim was made.
    pub origin: Origin,
    /// What proves it there.
    pub voucher: Voucher,
}

impl Proof {
    /// The process whose life proves the claim, if there is one.
    pub fn process(&self) -> Option<ProcessRef> {
        match self.voucher {
            Voucher::KernelLock { process, .. } | Voucher::Process(process) => Some(process),
            Voucher::Time | Voucher::TimeFor(_) => None,
        }
    }

    /// The process that the claim was made for, if it is known. Its descendants may end the claim.
    pub fn made_for(&self) -> Option<ProcessRef> {
        match self.voucher {
            Voucher::TimeFor(process) => Some(process),
            Voucher::KernelLock { .. } | Voucher::Process(_) | Voucher::Time => self.process(),
        }
    }
}

/// What happens to a claim whose TTL is up while its holder lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Contract {
    /// It stays: a live or unknown holder is never displaced.
    Strict,
    /// Another owner may take it over while the holder still runs. The token protects.
    Lease,
    /// The next owner stops the processes of the holder, sees them dead, and then takes it over.
    Kill,
}

impl fmt::Display for Contract {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Strict => "strict",
            Self::Lease => "lease",
            Self::Kill => "kill",
        })
    }
}

/// The state of a kernel lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockState {
    /// Some process of the holder has it.
    Held,
    /// Nobody has it: every process of the holder is gone.
    Free,
    /// It could not be read.
    Unreadable,
}

/// The state of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessState {
    /// It runs, sleeps or is stopped.
    Running,
    /// It ended, or is a zombie.
    Gone,
    /// Its id belongs to a process that started at another time.
    Reused,
    /// It could not be read.
    Unreadable,
}

/// What the machine shows of a proof of life at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observation {
    /// The claim was made on another machine.
    OtherHost,
    /// It was made here, before the last boot.
    OtherBoot,
    /// Its process ids belong to another pid namespace.
    OtherPidNamespace,
    /// The kernel lock was read.
    Lock(LockState),
    /// The process was read.
    Process(ProcessState),
    /// There is nothing to look at.
    Nothing,
}

/// Looks at the processes of this machine.
pub trait LivenessProbe {
    /// What this machine shows of a proof of life now.
    fn observe(&self, proof: &Proof) -> Observation;

    /// Whether the process that slept on a waker is gone. False if that is not known.
    fn is_waker_abandoned(&self, _waker: WakerId) -> bool {
        false
    }
}

/// The times of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dates {
    /// When it was last renewed.
    pub heartbeat_at: Moment,
    /// How long it lasts from there; without end if there is none.
    pub ttl: Option<Ttl>,
    /// When it ends unless its owner picks it up. It was granted to a ticket whose owner was away.
    pub pickup_by: Option<Moment>,
    /// How long the claim lasts from its last sign of life where nothing of its holder can be observed.
    pub session: Option<Ttl>,
    /// Since when the store remembers. It may have forgotten later signs of life.
    pub remembered_since: Option<Moment>,
}

impl Dates {
    /// When the claim ends, unless renewed.
    pub fn expires_at(&self) -> Option<Moment> {
        self.pickup_by.or_else(|| self.ttl.map(|ttl| self.heartbeat_at.after(ttl.get())))
    }

    /// When the session of its holder ends, unless the holder renews it.
    pub fn session_ends_at(&self) -> Option<Moment> {
        let last = self.remembered_since.map_or(self.heartbeat_at, |since| since.max(self.heartbeat_at));
        self.session.map(|session| last.after(session.get()))
    }
}

/// Why a holder counts as dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// The machine was booted since.
    Rebooted,
    /// Its kernel lock is free.
    LockFree,
    /// Its process ended.
    ProcessGone,
    /// Its process id belongs to another process now.
    PidReused,
}

impl fmt::Display for Death {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rebooted => "the machine was booted since",
            Self::LockFree => "its kernel lock is free, so no process of it is left",
            Self::ProcessGone => "its process has ended",
            Self::PidReused => "its process id belongs to another process now",
        })
    }
}

/// Whether a claim is still held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Its holder provably lives.
    Alive,
    /// It is not known whether its holder lives: held until its time is up.
    Unknown,
    /// Its holder provably died: free at once.
    Dead(Death),
    /// Its time is up: free.
    Expired,
    /// Its time is up and its holder lives: free once the holder is stopped.
    Overdue,
}

impl Verdict {
    /// Whether another owner may take the claim now.
    pub fn is_free(self) -> bool {
        match self {
            Self::Dead(_) | Self::Expired => true,
            Self::Alive | Self::Unknown | Self::Overdue => false,
        }
    }
}

/// Judges a claim by what was observed of its holder.
///
/// The order is fixed: another machine proves nothing, another boot proves death, the kernel lock counts
/// before any pid, a pid only in its own namespace, and time comes last.
pub fn judge(contract: Contract, dates: &Dates, observation: Observation, now: Moment) -> Verdict {
    let expired = dates.expires_at().is_some_and(|end| end < now);
    let by_time = |alive: Verdict| match (expired, contract) {
        (false, _) => alive,
        // Its owner did not pick it up in time.
        (true, _) if dates.pickup_by.is_some() => Verdict::Expired,
        (true, Contract::Strict) => alive,
        (true, Contract::Lease) => Verdict::Expired,
        (true, Contract::Kill) => Verdict::Overdue,
    };
    let silent = dates.session_ends_at().is_some_and(|end| end < now);
    let by_time_alone = || if expired || silent { Verdict::Expired } else { Verdict::Unknown };
    match observation {
        Observation::OtherBoot => Verdict::Dead(Death::Rebooted),
        Observation::Lock(LockState::Free) => Verdict::Dead(Death::LockFree),
        Observation::Process(ProcessState::Gone) => Verdict::Dead(Death::ProcessGone),
        Observation::Process(ProcessState::Reused) => Verdict::Dead(Death::PidReused),
        Observation::Lock(LockState::Held) | Observation::Process(ProcessState::Running) => {
            by_time(Verdict::Alive)
        }
        Observation::OtherHost
        | Observation::OtherPidNamespace
        | Observation::Lock(LockState::Unreadable)
        | Observation::Process(ProcessState::Unreadable)
        | Observation::Nothing => by_time_alone(),
    }
}

/// Until when nothing is granted or claimed on a store that has lost nothing since this moment: before that it may have lost leases and
/// claims, and who has them writes them again within one session. None if that time is over.
pub fn silent_until(remembers_since: Moment, session: Ttl, now: Moment) -> Option<Moment> {
    let end = remembers_since.after(session.get());
    (now <= end).then_some(end)
}

#[cfg(test)]
mod tests;
