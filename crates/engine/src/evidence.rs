//! Evidence for `why`: each check of a holder, what was observed, and what follows from it.

use std::time::Duration;

use lockkeeper_core::liveness::{Contract, LivenessProbe, LockState, Observation, ProcessState, Verdict};
use lockkeeper_core::record::Lease;
use lockkeeper_core::resource::Target;
use lockkeeper_core::time::{Moment, format_span};
use lockkeeper_store::StoreError;

use lockkeeper_platform::process;

use crate::{Engine, HolderEntry, WaiterEntry};

/// Why a name or path is held, or free.
#[derive(Clone, Debug)]
pub struct Evidence {
    /// The name or path.
    pub target: Target,
    /// The moment of the check.
    pub now: Moment,
    /// Every lease on it, with its evidence.
    pub holders: Vec<Chain>,
    /// The waiters, in the order in which they are served.
    pub waiters: Vec<WaiterEntry>,
    /// Whether this process can only read the store.
    pub is_read_only: bool,
}

/// The evidence on one lease.
#[derive(Clone, Debug)]
pub struct Chain {
    /// The lease and its verdict.
    pub holder: HolderEntry,
    /// The name, or a path that both match.
    pub witness: String,
    /// The checks, in the order in which they count.
    pub steps: Vec<Step>,
    /// What to do about it.
    pub advice: String,
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What was checked.
    pub question: &'static str,
    /// What was observed.
    pub seen: String,
    /// What follows from it.
    pub means: String,
}

impl Evidence {
    /// Whether there is a holder.
    pub fn is_held(&self) -> bool {
        self.holders.iter().any(|chain| !chain.holder.verdict.is_free())
    }

    /// How many live waiters come before a new request.
    pub fn waiting_count(&self) -> usize {
        self.waiters.iter().filter(|waiter| !waiter.verdict.is_free()).count()
    }
}

impl Engine {
    /// Gathers the evidence on one name or path.
    pub fn why(&self, target: &Target) -> Result<Evidence, StoreError> {
        let listing = self.listing()?;
        let now = listing.now;
        let waits =
            |waiter: &WaiterEntry| waiter.ticket.claim.targets().any(|want| want.meets(target).is_some());
        let waiters: Vec<WaiterEntry> = listing.waiters.into_iter().filter(waits).collect();
        let is_read_only = self.store.is_read_only();
        let mut evidence =
            Evidence { target: target.clone(), now, holders: Vec::new(), waiters, is_read_only };
        let is_waited_for = evidence.waiting_count() > 0;
        let chains = listing.holders.into_iter().filter_map(|holder| {
            let lease = &holder.lease;
            let witness = lease.claim.targets().find_map(|held| held.meets(target))?;
            let observation = self.probe.observe(&lease.claim.proof);
            let shares_pids = self.probe.shares_pids_with(&lease.claim.proof.origin);
            let process = lease.claim.proof.process().filter(|_| shares_pids);
            let can_stop = shares_pids && process.and_then(process::foreign_user).is_none();
            let steps = steps(lease, observation, holder.verdict, (shares_pids, can_stop), now);
            let mut advice = advice(lease, holder.verdict, can_stop, is_waited_for);
            if is_read_only {
                advice.push_str("; the state folder is read-only here, so do it elsewhere");
            }
            Some(Chain { holder, witness, steps, advice })
        });
        evidence.holders = chains.collect();
        Ok(evidence)
    }
}

/// The checks of one lease. `shares_pids` says whether the pids of its holder are valid here, `can_stop` whether this process may
/// end it.
fn steps(
    lease: &Lease,
    observation: Observation,
    verdict: Verdict,
    (shares_pids, can_stop): (bool, bool),
    now: Moment,
) -> Vec<Step> {
    let step = |question, seen: String, means: &str| Step { question, seen, means: means.to_owned() };
    let origin = &lease.claim.proof.origin;
    let mut chain = Vec::new();
    match observation {
        Observation::Lock(LockState::Unreadable) if origin.session.is_some() => {
            let seen =
                format!("taken by another user or container of {}, or on a machine like it", origin.host);
            chain.push(step("machine", seen, "its processes cannot be observed from here"));
        }
        Observation::OtherHost => {
            chain.push(step(
                "machine",
                format!("taken on {}", origin.host),
                "its processes cannot be observed from here",
            ));
        }
        Observation::OtherBoot => {
            chain.push(step(
                "boot",
                "the machine was rebooted since".to_owned(),
                "every process from before is gone",
            ));
        }
        Observation::OtherPidNamespace => {
            let seen = format!("this boot of {}, in another pid namespace", origin.host);
            chain.push(step("machine", seen, "its processes cannot be observed from here"));
        }
        Observation::Lock(_) | Observation::Process(_) | Observation::Nothing => {
            chain.push(step(
                "machine",
                format!("this boot of {}", origin.host),
                "its processes can be observed",
            ));
        }
    }
    chain.extend(voucher_step(lease, observation, shares_pids));
    chain.push(time_step(lease, now));
    let means = match verdict {
        Verdict::Alive => "held: its holder lives",
        Verdict::Unknown => "held: nothing proves that its holder died",
        Verdict::Dead(_) => "free: its holder died; the next in line gets it at once",
        Verdict::Expired => "free: its TTL has ended; the next in line gets it at once",
        Verdict::Overdue if can_stop => {
            "held: its TTL has ended; a waiter stops its processes first, then gets it"
        }
        Verdict::Overdue => "held: its TTL has ended, but nobody here can stop its processes",
    };
    chain.push(step("verdict", verdict_word(verdict).to_owned(), means));
    chain
}

fn voucher_step(lease: &Lease, observation: Observation, shares_pids: bool) -> Option<Step> {
    let process = lease.claim.proof.process().map_or(0, |process| process.pid);
    let whose = if shares_pids { "" } else { " of another pid namespace" };
    let (question, seen, means) = match observation {
        Observation::Lock(LockState::Held) => {
            ("kernel lock", format!("held (taken by process {process}{whose})"), "it lives")
        }
        Observation::Lock(LockState::Free) => {
            ("kernel lock", "free".to_owned(), "no process of the holder is left")
        }
        Observation::Lock(LockState::Unreadable) => {
            ("kernel lock", "cannot be read".to_owned(), "proves nothing")
        }
        Observation::Process(ProcessState::Running) => ("process", format!("{process} runs"), "it lives"),
        Observation::Process(ProcessState::Gone) => ("process", format!("{process} has ended"), "it died"),
        Observation::Process(ProcessState::Reused) => {
            ("process", format!("{process} is another process now"), "it died")
        }
        Observation::Process(ProcessState::Unreadable) => {
            ("process", format!("{process} cannot be observed"), "proves nothing")
        }
        Observation::OtherPidNamespace => {
            ("process", format!("{process} belongs to another pid namespace"), "proves nothing")
        }
        Observation::Nothing => ("process", "not tied to a process".to_owned(), "only its TTL counts"),
        Observation::OtherHost | Observation::OtherBoot => return None,
    };
    Some(Step { question, seen, means: means.to_owned() })
}

fn time_step(lease: &Lease, now: Moment) -> Step {
    let renewed = format!("renewed {} ago", format_span(now.since(lease.heartbeat_at)));
    let session = lease.session_ends_at().map(|end| {
        if end < now {
            "its session has ended: where nothing of it can be observed, it passes on".to_owned()
        } else {
            let left = format_span(end.since(now).max(Duration::from_millis(1)));
            format!("where nothing of it can be observed, it passes on after {left} of silence")
        }
    });
    let (seen, means) = match lease.expires_at() {
        None if session.is_some() => (format!("{renewed}, no TTL"), session.unwrap_or_default()),
        None => (format!("{renewed}, no TTL"), "it does not expire".to_owned()),
        Some(end) if end < now => {
            let over = format_span(now.since(end));
            let means = match lease.claim.contract {
                Contract::Strict if !lease.claim.proof.voucher.is_time_alone() => {
                    "overdue, but a live holder keeps it (contract strict)"
                }
                Contract::Strict | Contract::Lease => "its TTL has ended",
                Contract::Kill => "its TTL has ended: a waiter stops it (contract kill)",
            };
            (format!("{renewed}, expired {over} ago"), means.to_owned())
        }
        Some(end) => (renewed, format!("{} left", format_span(end.since(now).max(Duration::from_millis(1))))),
    };
    Step { question: "time", seen, means }
}

/// The verdict in one word.
pub fn verdict_word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Alive => "alive",
        Verdict::Unknown => "unknown",
        Verdict::Dead(_) => "dead",
        Verdict::Expired => "expired",
        Verdict::Overdue => "overdue",
    }
}

fn advice(lease: &Lease, verdict: Verdict, can_stop: bool, is_waited_for: bool) -> String {
    let id = lease.id;
    match verdict {
        Verdict::Dead(_) | Verdict::Expired if is_waited_for => {
            "others are in line before you: wait behind them (`acquire --wait`)".to_owned()
        }
        Verdict::Dead(_) | Verdict::Expired => {
            "nothing: acquire it, or remove it with `lockkeeper locks cleanup`".to_owned()
        }
        Verdict::Alive => format!(
            "wait for it (`acquire --wait`), ask {} to release it, or force it with `lockkeeper locks break {id} --yes`",
            lease.claim.owner
        ),
        Verdict::Unknown if lease.session_ends_at().is_some() => format!(
            "wait for it (`acquire --wait`): its host renews it while its holder lives, and it passes on when the host is silent; or \
             force it with `lockkeeper locks break {id} --yes`"
        ),
        Verdict::Unknown if lease.expires_at().is_some() => {
            format!("wait until its TTL ends, or force it with `lockkeeper locks break {id} --yes`")
        }
        Verdict::Unknown => {
            format!(
                "it never ends by itself: if you know that its holder has ended, `lockkeeper locks break {id} --yes`"
            )
        }
        Verdict::Overdue if can_stop => "wait for it: a waiter stops its processes".to_owned(),
        Verdict::Overdue => format!(
            "its processes belong to another user or another pid namespace, and nobody here can stop them: wait there, or force it with \
             `lockkeeper locks break {id} --yes`"
        ),
    }
}
