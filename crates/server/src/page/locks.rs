//! Locks page: holders, waiters, and why they wait.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use lockkeeper_core::id::LeaseId;
use lockkeeper_core::liveness::{Verdict, Voucher};
use lockkeeper_core::record::{Claim, Lease};
use lockkeeper_core::resource::{Mode, Resource};
use lockkeeper_core::run::Status;
use lockkeeper_core::waiting::Blocker;
use lockkeeper_engine::foreign_locks::{ForeignLock, ForeignWaiter};
use lockkeeper_engine::runs::RunFilter;
use lockkeeper_engine::{HolderEntry, Listing, OwnerNames, WaiterEntry};

use super::request_row::runs_by_lease;
use super::texts::{Texts, fill, pieces};
use super::times::{TimeFormat, TimePoint};
use super::wait_graph::{Wait, WaitGraph};
use super::{Layout, render};
use crate::error::ApiError;
use crate::state::AppState;

/// How many holders and waiters are shown. The API has all of them.
const MAX_ROWS: usize = 200;

#[derive(Template)]
#[template(path = "locks.html")]
struct Page {
    layout: Layout,
    state: String,
    now: i64,
    /// How many wait: tickets of the dead are not counted.
    waiting: usize,
    longest: Option<TimePoint>,
    orphans: usize,
    holders: Vec<Holder>,
    holders_left_out: usize,
    waiters: Vec<Waiter>,
    waiters_left_out: usize,
    graph: Option<WaitGraph>,
    /// The sentence about a holder, with its places.
    held: Vec<(&'static str, &'static str)>,
    /// Locks of other formats, and since when.
    foreign: Vec<(Option<TimePoint>, ForeignLock)>,
    /// The processes that wait for locks of other formats, and since when at most.
    foreign_waiters: Vec<(TimePoint, ForeignWaiter)>,
}

/// A name or a path, with how it is held if others may hold it, too.
pub(super) struct Chip {
    pub(super) text: String,
    pub(super) mode: Option<String>,
}

/// What is known of a holder: a sentence with its places, and when it was last heard of.
struct Sign {
    words: Vec<(&'static str, &'static str)>,
    heard: TimePoint,
}

struct Holder {
    id: String,
    token: u64,
    owner: Owner,
    reason: Option<String>,
    resources: Vec<Chip>,
    state: &'static str,
    tone: &'static str,
    since: TimePoint,
    sign: Sign,
    ends: Option<TimePoint>,
    pid: Option<u32>,
    host: String,
    /// The question before it is broken, and what follows.
    question: String,
    means: String,
    /// The run that holds it: id and title.
    run: Option<(String, String)>,
    /// How many wait for it, in words; empty if nobody does.
    blocks: String,
}

/// An owner: as people know it, and as commands know it.
struct Owner {
    name: String,
    whole: String,
}

struct Waiter {
    ticket: String,
    owner: Owner,
    reason: Option<String>,
    resources: Vec<Chip>,
    since: TimePoint,
    position: usize,
    /// Whether its process has ended: then it is skipped.
    is_gone: bool,
    whys: Vec<Why>,
}

/// Why a ticket waits for one resource.
struct Why {
    wanted: String,
    holder: Option<Obstacle>,
    behind: Option<String>,
}

struct Obstacle {
    owner: String,
    since: TimePoint,
    /// None if its process can be observed.
    sign: Option<Sign>,
    witness: Option<String>,
}

pub(super) async fn page(State(state): State<AppState>, layout: Layout) -> Result<Response, ApiError> {
    let (listing, names, foreign, counts, runs) = state
        .blocking(|state| {
            let (listing, foreign) = (state.leases().listing()?, state.foreign_locks());
            let counts = state.counts(&listing, &foreign)?;
            let statuses = vec![Status::Running, Status::Cancelling];
            let filter = RunFilter { statuses, limit: MAX_ROWS, ..RunFilter::default() };
            let names = OwnerNames::of(&listing, state.root());
            Ok((listing, names, foreign, counts, state.runs().entries(&filter)?))
        })
        .await?;
    let runs = runs_by_lease(runs.iter().map(|entry| (&entry.run, &entry.request.request)));
    let waiting: Vec<&WaiterEntry> =
        listing.waiters.iter().filter(|waiter| !waiter.verdict.is_free()).collect();
    let foreign_wait = |waiter: &ForeignWaiter| listing.now.before(Duration::from_secs(waiter.waits_seconds));
    let foreign_waits = foreign.waiters.iter().map(foreign_wait);
    let longest = waiting.iter().map(|waiter| waiter.ticket.enqueued_at).chain(foreign_waits).min();
    let (texts, times) = (layout.texts, TimeFormat::new(listing.now));
    let read = Read { listing: &listing, names: &names, texts, times: &times };
    // Those that most others wait for come first.
    let waiters = read.waiters_by_lease();
    let count = |one: &HolderEntry| waiters.get(&one.lease.id).copied().unwrap_or(0);
    let mut holders: Vec<(&HolderEntry, usize)> =
        listing.holders.iter().map(|one| (one, count(one))).collect();
    holders.sort_by_key(|(_, waiters)| std::cmp::Reverse(*waiters));
    let page = Page {
        state: state.state_folder().display().to_string(),
        now: times.now(),
        waiting: waiting.len() + foreign.waiters.len(),
        longest: longest.map(|moment| times.since(moment)),
        orphans: counts.orphans,
        holders: holders
            .iter()
            .take(MAX_ROWS)
            .map(|(one, waiters)| Holder::new(one, *waiters, &read).of_run(runs.get(&one.lease.id).cloned()))
            .collect(),
        holders_left_out: listing.holders.len().saturating_sub(MAX_ROWS),
        waiters: listing.waiters.iter().take(MAX_ROWS).map(|one| Waiter::new(one, &read)).collect(),
        waiters_left_out: listing.waiters.len().saturating_sub(MAX_ROWS),
        graph: read.graph(),
        held: pieces(texts.why_held),
        foreign: foreign.locks.into_iter().map(|lock| (read.since(&lock), lock)).collect(),
        foreign_waiters: foreign
            .waiters
            .into_iter()
            .map(|waiter| (times.since(foreign_wait(&waiter)), waiter))
            .collect(),
        layout: layout.at("/locks"),
    };
    render(&page)
}

/// What the rows are made from.
struct Read<'r> {
    listing: &'r Listing,
    names: &'r OwnerNames,
    texts: &'static Texts,
    times: &'r TimeFormat,
}

impl Read<'_> {
    /// How many wait for each lease.
    fn waiters_by_lease(&self) -> HashMap<LeaseId, usize> {
        let mut waiters: HashMap<LeaseId, usize> = HashMap::new();
        for waiter in self.listing.waiters.iter().filter(|waiter| !waiter.verdict.is_free()) {
            let leases = waiter.blockers.iter().flat_map(|blocker| &blocker.leases);
            let leases: BTreeSet<LeaseId> = leases.map(|found| found.record.id).collect();
            for lease in leases {
                *waiters.entry(lease).or_default() += 1;
            }
        }
        waiters
    }

    /// What is known of the holder of a lease.
    fn sign(&self, lease: &Lease, verdict: Verdict) -> Sign {
        let texts = self.texts;
        let words = match (&lease.claim.proof.voucher, verdict) {
            (_, Verdict::Dead(_)) => texts.process_ended,
            (Voucher::Time | Voucher::TimeFor(_), _) => texts.no_process,
            (Voucher::KernelLock { .. } | Voucher::Process(_), Verdict::Alive) => texts.process_seen,
            (Voucher::KernelLock { .. } | Voucher::Process(_), Verdict::Unknown) => texts.not_visible,
            (Voucher::KernelLock { .. } | Voucher::Process(_), Verdict::Expired | Verdict::Overdue) => {
                texts.heard
            }
        };
        Sign { words: pieces(words), heard: self.times.since(lease.heartbeat_at) }
    }

    /// What is known of the holder of a lease; none if its process is observed and lives.
    fn sign_if_unseen(&self, lease: &Lease) -> Option<Sign> {
        let verdict = self.listing.holders.iter().find(|one| one.lease.id == lease.id)?.verdict;
        let is_watched =
            matches!(lease.claim.proof.voucher, Voucher::KernelLock { .. } | Voucher::Process(_));
        (!is_watched || verdict != Verdict::Alive).then(|| self.sign(lease, verdict))
    }

    /// What follows when a lease is broken: for its holder, and for who is next.
    fn break_means(&self, holder: &HolderEntry, owner: &str) -> String {
        let (texts, proof) = (self.texts, &holder.lease.claim.proof);
        let pid = proof.process().map(|process| process.pid.to_string()).unwrap_or_default();
        let sentence = match (&proof.voucher, holder.verdict) {
            (_, Verdict::Dead(_)) => texts.break_gone,
            (_, Verdict::Expired | Verdict::Overdue) => texts.break_time_up,
            (Voucher::Time | Voucher::TimeFor(_), _) => texts.break_no_process,
            (_, Verdict::Unknown) => texts.break_unseen,
            (Voucher::KernelLock { .. }, Verdict::Alive) => texts.break_told,
            (Voucher::Process(_), Verdict::Alive) => texts.break_untold,
        };
        let blocks =
            |blocker: &Blocker| blocker.leases.iter().any(|found| found.record.id == holder.lease.id);
        let mut alive = self.listing.waiters.iter().filter(|waiter| !waiter.verdict.is_free());
        let next = alive.find(|waiter| waiter.blockers.iter().any(blocks)).map_or_else(
            || texts.nobody_waits.to_owned(),
            |waiter| {
                let next = self.names.of_owner(&waiter.ticket.claim.owner);
                fill(texts.break_next, &[("owner", &next)])
            },
        );
        format!("{}\n{next}", fill(sentence, &[("owner", owner), ("pid", &pid)]))
    }

    /// Since when a lock of another format is held.
    fn since(&self, lock: &ForeignLock) -> Option<TimePoint> {
        Some(self.times.since_time(lock.since.as_ref()?.parse().ok()?))
    }

    fn owner(&self, claim: &Claim) -> Owner {
        Owner { name: self.names.of_owner(&claim.owner), whole: claim.owner.to_string() }
    }

    fn graph(&self) -> Option<WaitGraph> {
        let mut waiters: Vec<&WaiterEntry> =
            self.listing.waiters.iter().filter(|one| !one.verdict.is_free()).collect();
        waiters.sort_by_key(|waiter| waiter.ticket.enqueued_at);
        let is_dead = |lease: &Lease| {
            self.listing.holders.iter().any(|holder| holder.lease.id == lease.id && holder.verdict.is_free())
        };
        let name = |claim: &Claim| self.names.of_owner(&claim.owner);
        let waits = waiters.iter().flat_map(|waiter| {
            waiter.blockers.iter().map(|blocker| Wait {
                waiter: name(&waiter.ticket.claim),
                span: self.times.since(waiter.ticket.enqueued_at).text,
                wanted: blocker.resource.target.to_string(),
                holders: blocker.leases.iter().map(|found| name(&found.record.claim)).collect(),
                is_orphaned: blocker.leases.iter().any(|found| is_dead(&found.record)),
                is_behind: !blocker.tickets.is_empty(),
                place: blocker.tickets.len() + 1,
            })
        });
        WaitGraph::new(&waits.collect::<Vec<_>>())
    }
}

/// The names and paths of a claim for a title: the first three.
fn names_of(claim: &Claim) -> String {
    let mut names: Vec<String> = claim.targets().take(4).map(ToString::to_string).collect();
    if let Some(fourth) = names.get_mut(3) {
        *fourth = "…".to_owned();
    }
    names.join(", ")
}

/// Names and paths as chips.
pub(super) fn chips(resources: &[Resource]) -> Vec<Chip> {
    let chips = resources.iter().map(|resource| Chip {
        text: resource.target.to_string(),
        mode: match resource.mode {
            Mode::Exclusive => None,
            mode @ (Mode::Shared | Mode::Slots(_)) => Some(mode.to_string()),
        },
    });
    chips.collect()
}

impl Holder {
    fn new(holder: &HolderEntry, waiters: usize, read: &Read<'_>) -> Self {
        let (lease, claim, texts, times) = (&holder.lease, &holder.lease.claim, read.texts, read.times);
        let (state, tone) = match holder.verdict {
            Verdict::Alive => (texts.alive, "good"),
            Verdict::Unknown => (texts.unknown, "warn"),
            Verdict::Dead(_) => (texts.dead, "bad"),
            Verdict::Expired => (texts.expired, "bad"),
            Verdict::Overdue => (texts.overdue, "bad"),
        };
        let owner = read.owner(claim);
        let blocks = match waiters {
            0 => String::new(),
            waiters => fill(texts.waits_behind, &[("n", &waiters.to_string())]),
        };
        Self {
            id: lease.id.to_string(),
            token: lease.token.0,
            question: fill(texts.break_title, &[("resource", &names_of(claim))]),
            means: read.break_means(holder, &owner.name),
            owner,
            reason: claim.reason.clone(),
            resources: chips(&claim.resources),
            state,
            tone,
            since: times.since(lease.acquired_at),
            sign: read.sign(lease, holder.verdict),
            ends: lease.expires_at().map(|end| times.until(end)),
            pid: claim.proof.process().map(|process| process.pid),
            host: claim.proof.origin.host.clone(),
            run: None,
            blocks,
        }
    }
}

impl Holder {
    /// Adds the run that holds it. A reason that equals the title of the run is left out.
    fn of_run(self, run: Option<(String, String)>) -> Self {
        let says_more = |reason: &String| run.as_ref().is_none_or(|(_, title)| title != reason);
        let reason = self.reason.filter(says_more);
        Self { reason, run, ..self }
    }
}

impl Waiter {
    fn new(waiter: &WaiterEntry, read: &Read<'_>) -> Self {
        let (ticket, claim) = (&waiter.ticket, &waiter.ticket.claim);
        Self {
            ticket: claim.ticket.as_ref().map_or_else(|| ticket.id.as_ticket(), ToString::to_string),
            owner: read.owner(claim),
            reason: claim.reason.clone(),
            resources: chips(&claim.resources),
            since: read.times.since(ticket.enqueued_at),
            position: waiter.position,
            is_gone: waiter.verdict.is_free(),
            whys: waiter.blockers.iter().map(|blocker| Why::new(blocker, read)).collect(),
        }
    }
}

impl Why {
    fn new(blocker: &Blocker, read: &Read<'_>) -> Self {
        let wanted = blocker.resource.target.to_string();
        let name = |claim: &Claim| read.names.of_owner(&claim.owner);
        let holder = blocker.leases.first().map(|found| Obstacle {
            owner: name(&found.record.claim),
            since: read.times.since(found.record.acquired_at),
            sign: read.sign_if_unseen(&found.record),
            witness: Some(found.witness.clone()).filter(|witness| *witness != wanted),
        });
        let behind = blocker.tickets.first().map(|found| name(&found.record.claim));
        Self { wanted, holder, behind }
    }
}
