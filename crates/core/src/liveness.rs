//! Whether the holder of a record still lives: the evidence, the order in which it counts, the verdict.
//!
//! A proof says who vouches for a claim. [`Observation`] is what the machine shows of it at one moment, gathered
//! by whoever can look. [`judge`] weighs it, always in the same order, and keeps the steps, so that a person
//! can be told why. Any "don't know" means held: only the kernel's word is proof of death.

use std::fmt;

use crate::id::HolderId;
use crate::time::{Moment, Ttl};

/// Where a claim was made: process numbers and moments mean something only there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    /// The machine's host name.
    pub host: String,
    /// The kernel's id of this boot.
    pub boot: String,
    /// The pid namespace that process numbers belong to.
    pub pid_namespace: u64,
}

/// One process, also after its number was given to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProcessRef {
    /// The process id, 1 to 2²².
    pub pid: u32,
    /// When it started, in the kernel's ticks since boot.
    pub started: u64,
}

/// Who vouches for a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Voucher {
    /// A kernel lock that lives as long as any process of the holder; no pid, clock or TTL is needed.
    KernelLock {
        /// The number that the lock stands on.
        holder: HolderId,
        /// The process that took it, to be shown and to be watched.
        process: ProcessRef,
    },
    /// A process that was chosen to stand for the claim.
    Process(ProcessRef),
    /// Nobody: only time tells.
    Time,
}

impl fmt::Display for Voucher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::KernelLock { .. } => "kernel-lock",
            Self::Process(_) => "process",
            Self::Time => "ttl",
        })
    }
}

/// How the store knows that an owner still lives.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Proof {
    /// Where the claim was made.
    pub origin: Origin,
    /// Who vouches for it there.
    pub voucher: Voucher,
}

impl Proof {
    /// The process that stands for the claim, if one does.
    pub fn process(&self) -> Option<ProcessRef> {
        match self.voucher {
            Voucher::KernelLock { process, .. } | Voucher::Process(process) => Some(process),
            Voucher::Time => None,
        }
    }
}

/// What becomes of a claim whose TTL ran out although its holder lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Contract {
    /// It stays: a live or unknown holder is never displaced.
    Strict,
    /// It may be taken over while the holder still runs; the token protects.
    Lease,
    /// The holder's processes are stopped and seen to be dead first, then it is succeeded.
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

/// What a look at a kernel lock shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockState {
    /// Some process of the holder has it.
    Held,
    /// Nobody has it: every process of the holder is gone.
    Free,
    /// The look itself failed.
    Unreadable,
}

/// What a look at a process shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessState {
    /// It runs, sleeps or is stopped.
    Running,
    /// It ended, or is a zombie.
    Gone,
    /// Its number belongs to a process that started at another time.
    Reused,
    /// The look itself failed.
    Unreadable,
}

/// What the machine shows of a proof at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observation {
    /// The claim was made on another machine.
    OtherHost,
    /// It was made here, before the last boot.
    OtherBoot,
    /// Its process numbers belong to another pid namespace.
    OtherPidNamespace,
    /// The kernel lock was looked at.
    Lock(LockState),
    /// The process was looked at.
    Process(ProcessState),
    /// There is nothing to look at.
    Nothing,
}

/// How a claim was dated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dates {
    /// When it was last renewed.
    pub heartbeat_at: Moment,
    /// How long it lives from there; for good when there is none.
    pub ttl: Option<Ttl>,
    /// When it lapses unless its owner comes for it: granted to a ticket whose owner was away.
    pub pickup_by: Option<Moment>,
}

impl Dates {
    /// When the claim runs out, unless renewed.
    pub fn expires_at(&self) -> Option<Moment> {
        self.pickup_by.or_else(|| self.ttl.map(|ttl| self.heartbeat_at.after(ttl.get())))
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

/// What is to be made of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Its holder provably lives.
    Alive,
    /// Nobody knows whether its holder lives: held until its time is up.
    Unknown,
    /// Its holder provably died: free at once.
    Dead(Death),
    /// Its time is up: free.
    Expired,
    /// Its time is up and its holder lives: free once the holder was stopped.
    Overdue,
}

impl Verdict {
    /// Whether the claim may be succeeded without further ado.
    pub fn is_free(self) -> bool {
        match self {
            Self::Dead(_) | Self::Expired => true,
            Self::Alive | Self::Unknown | Self::Overdue => false,
        }
    }
}

/// Weighs what is seen of a holder.
///
/// The order is fixed: another machine proves nothing, another boot proves death, the kernel lock counts
/// before any pid, a pid only in its own namespace, and time comes last.
pub fn judge(contract: Contract, dates: &Dates, observation: Observation, now: Moment) -> Verdict {
    let lapsed = dates.pickup_by.is_some_and(|limit| limit < now);
    let expired = dates.expires_at().is_some_and(|end| end < now);
    let by_time = |alive: Verdict| match (expired, contract) {
        (false, _) => alive,
        (true, _) if lapsed => Verdict::Expired,
        (true, Contract::Strict) => alive,
        (true, Contract::Lease) => Verdict::Expired,
        (true, Contract::Kill) => Verdict::Overdue,
    };
    let by_time_alone = || if expired { Verdict::Expired } else { Verdict::Unknown };
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const NOW: Moment = Moment::from_micros(1_000_000_000);

    fn dates(ttl_seconds: Option<u64>, renewed_seconds_ago: i64) -> Dates {
        Dates {
            heartbeat_at: Moment::from_micros(NOW.as_micros() - renewed_seconds_ago * 1_000_000),
            ttl: ttl_seconds.map(|seconds| Ttl::new(Duration::from_secs(seconds)).unwrap()),
            pickup_by: None,
        }
    }

    const ALL_OBSERVATIONS: [Observation; 11] = [
        Observation::OtherHost,
        Observation::OtherBoot,
        Observation::OtherPidNamespace,
        Observation::Lock(LockState::Held),
        Observation::Lock(LockState::Free),
        Observation::Lock(LockState::Unreadable),
        Observation::Process(ProcessState::Running),
        Observation::Process(ProcessState::Gone),
        Observation::Process(ProcessState::Reused),
        Observation::Process(ProcessState::Unreadable),
        Observation::Nothing,
    ];
    const ALL_CONTRACTS: [Contract; 3] = [Contract::Strict, Contract::Lease, Contract::Kill];

    fn proves_death(observation: Observation) -> bool {
        matches!(
            observation,
            Observation::OtherBoot
                | Observation::Lock(LockState::Free)
                | Observation::Process(ProcessState::Gone | ProcessState::Reused)
        )
    }

    fn proves_life(observation: Observation) -> bool {
        matches!(
            observation,
            Observation::Lock(LockState::Held) | Observation::Process(ProcessState::Running)
        )
    }

    /// Invariant 4. The whole table of observations, contracts and dates is walked.
    #[test]
    fn proof_of_death_needs_no_ttl() {
        for contract in ALL_CONTRACTS {
            for dates in [dates(None, 0), dates(Some(10), 0), dates(Some(10), 11)] {
                for observation in
                    ALL_OBSERVATIONS.into_iter().filter(|observation| proves_death(*observation))
                {
                    assert!(matches!(judge(contract, &dates, observation, NOW), Verdict::Dead(_)));
                }
            }
        }
    }

    /// Invariant 3.
    #[test]
    fn a_live_holder_is_never_free_under_the_strict_contract() {
        for dates in [dates(None, 0), dates(Some(10), 0), dates(Some(10), 11)] {
            for observation in ALL_OBSERVATIONS.into_iter().filter(|observation| proves_life(*observation)) {
                assert_eq!(judge(Contract::Strict, &dates, observation, NOW), Verdict::Alive);
            }
        }
    }

    /// Invariant 5.
    #[test]
    fn what_is_not_known_is_held_until_its_ttl_and_for_good_without_one() {
        for contract in ALL_CONTRACTS {
            for observation in ALL_OBSERVATIONS.into_iter().filter(|s| !proves_life(*s) && !proves_death(*s))
            {
                assert_eq!(judge(contract, &dates(None, 1_000_000), observation, NOW), Verdict::Unknown);
                assert_eq!(judge(contract, &dates(Some(10), 9), observation, NOW), Verdict::Unknown);
                assert_eq!(judge(contract, &dates(Some(10), 10), observation, NOW), Verdict::Unknown);
                assert_eq!(judge(contract, &dates(Some(10), 11), observation, NOW), Verdict::Expired);
            }
        }
    }

    #[test]
    fn an_expired_live_holder_follows_its_contract() {
        let expired = dates(Some(10), 11);
        let seen = Observation::Process(ProcessState::Running);
        assert_eq!(judge(Contract::Strict, &expired, seen, NOW), Verdict::Alive);
        assert_eq!(judge(Contract::Lease, &expired, seen, NOW), Verdict::Expired);
        assert_eq!(judge(Contract::Kill, &expired, seen, NOW), Verdict::Overdue);
    }

    #[test]
    fn a_grant_that_nobody_came_for_lapses_under_every_contract() {
        let late = Dates { pickup_by: Some(Moment::from_micros(NOW.as_micros() - 1)), ..dates(None, 0) };
        for contract in ALL_CONTRACTS {
            assert_eq!(
                judge(contract, &late, Observation::Process(ProcessState::Running), NOW),
                Verdict::Expired
            );
        }
    }
}
