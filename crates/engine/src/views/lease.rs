//! Views of leases, tickets, resources and alerts.

use std::num::NonZeroU32;

use lockkeeper_core::alert::Alert;
use lockkeeper_core::record::{Lease, Ticket};
use lockkeeper_core::request::Request;
use lockkeeper_core::resource::{Mode, Resource, Target};
use lockkeeper_core::time::Moment;
use lockkeeper_core::waiting::Blocker;
use lockkeeper_platform::wall_clock::ClockOffset;
use serde::{Deserialize, Serialize};

use crate::evidence::verdict_word;
use crate::{ConflictingLease, HolderEntry, Listing, WaiterEntry};

/// A resource: a name or a pattern over paths, and the mode in which it is held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Resource))]
#[serde(deny_unknown_fields)]
pub struct ResourceView {
    /// The name, such as `db`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The pattern over paths, such as `src/api/**`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// `exclusive`, `shared` or `slots:N`.
    #[serde(default = "exclusive")]
    pub mode: String,
}

fn exclusive() -> String {
    "exclusive".to_owned()
}

impl ResourceView {
    /// Shows a resource.
    pub fn new(resource: &Resource) -> Self {
        let (text, mode) = (resource.target.as_str().to_owned(), resource.mode.to_string());
        match &resource.target {
            Target::Name(_) => Self { name: Some(text), path: None, mode },
            Target::Path(_) => Self { name: None, path: Some(text), mode },
        }
    }

    /// Parses the mode; none when it is not a mode.
    pub fn parse_mode(&self) -> Option<Mode> {
        match self.mode.as_str() {
            "exclusive" => Some(Mode::Exclusive),
            "shared" => Some(Mode::Shared),
            counted => counted.strip_prefix("slots:")?.parse::<NonZeroU32>().ok().map(Mode::Slots),
        }
    }
}

/// A lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Lease))]
pub struct LeaseView {
    /// Its id, such as `L42`.
    pub id: String,
    /// Its fencing token.
    pub token: u64,
    /// The owner, as `kind:id`.
    pub owner: String,
    /// What it protects.
    pub resources: Vec<ResourceView>,
    /// When it was granted.
    pub acquired_at: String,
    /// When it was last renewed.
    pub heartbeat_at: String,
    /// When it expires unless it is renewed.
    pub expires_at: Option<String>,
    /// The process that it is tied to.
    pub pid: Option<u32>,
    /// The machine that it was taken on.
    pub host: String,
    /// The proof of life of its holder: `kernel-lock`, `process` or `ttl`.
    pub proof: String,
    /// Why it was taken.
    pub reason: Option<String>,
    /// What happens when its TTL ends: `strict`, `lease` or `kill`.
    pub contract: String,
    /// The state of its holder: `alive`, `unknown`, `dead`, `expired` or `overdue`. Left out when it was not checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
}

impl LeaseView {
    /// Shows a lease without the state of its holder.
    pub fn new(lease: &Lease, now: Moment) -> Self {
        let dial = ClockOffset::at(now);
        Self {
            id: lease.id.to_string(),
            token: lease.token.0,
            owner: lease.claim.owner.as_str().to_owned(),
            resources: lease.claim.resources.iter().map(ResourceView::new).collect(),
            acquired_at: dial.utc(lease.acquired_at),
            heartbeat_at: dial.utc(lease.heartbeat_at),
            expires_at: lease.expires_at().map(|end| dial.utc(end)),
            pid: lease.claim.proof.process().map(|process| process.pid),
            host: lease.claim.proof.origin.host.clone(),
            proof: lease.claim.proof.voucher.to_string(),
            reason: lease.claim.reason.clone(),
            contract: lease.claim.contract.to_string(),
            state: None,
        }
    }

    /// Shows a lease with the state of its holder.
    pub fn with_state(holder: &HolderEntry, now: Moment) -> Self {
        Self { state: Some(verdict_word(holder.verdict).to_owned()), ..Self::new(&holder.lease, now) }
    }
}

/// A lease that a ticket waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Obstacle))]
pub struct ObstacleView {
    /// The lease.
    pub lease: String,
    /// Its owner.
    pub owner: String,
    /// The name, or a path that both match.
    pub witness: String,
}

/// Shows the leases that a request waits for.
pub fn obstacles(blockers: &[Blocker]) -> Vec<ObstacleView> {
    let leases = blockers.iter().flat_map(|blocker| &blocker.leases);
    let shown = leases.map(|found| ObstacleView {
        lease: found.record.id.to_string(),
        owner: found.record.claim.owner.as_str().to_owned(),
        witness: found.witness.clone(),
    });
    shown.collect()
}

/// A lease that keeps a queued run from starting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Holder))]
pub struct HolderView {
    /// The lease.
    pub lease: String,
    /// Its owner.
    pub owner: String,
    /// The name, or a path that both match.
    pub witness: String,
    /// For how many seconds it has been held.
    pub held_seconds: u64,
}

impl HolderView {
    /// Shows the leases that conflict with what a request needs.
    pub fn in_the_way(request: &Request, leases: &Listing) -> Vec<Self> {
        let found = leases.conflicting_leases(&request.resources());
        found.iter().map(|found| Self::new(found, leases.now)).collect()
    }

    fn new(found: &ConflictingLease<'_>, now: Moment) -> Self {
        let lease = &found.holder.lease;
        Self {
            lease: lease.id.to_string(),
            owner: lease.claim.owner.to_string(),
            witness: found.witness.clone(),
            held_seconds: now.since(lease.acquired_at).as_secs(),
        }
    }
}

/// A ticket: a place in the waiting line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Ticket))]
pub struct TicketView {
    /// Its id, such as `T42`.
    pub id: String,
    /// The name that its owner gave it, or its id.
    pub ticket: String,
    /// The owner, as `kind:id`.
    pub owner: String,
    /// The resources that it waits for.
    pub resources: Vec<ResourceView>,
    /// Its priority, from −100 to 100.
    pub priority: i32,
    /// Its position in the longest line that it is in, from 1.
    pub position: usize,
    /// Since when it waits.
    pub waiting_since: String,
    /// The leases that it waits for.
    pub waits_for: Vec<ObstacleView>,
    /// The tickets that are served before it.
    pub behind: Vec<String>,
    /// The process that waits.
    pub pid: Option<u32>,
    /// Why it is wanted.
    pub reason: Option<String>,
}

impl TicketView {
    /// Shows a ticket.
    pub fn new(ticket: &Ticket, blockers: &[Blocker], position: usize, now: Moment) -> Self {
        let behind =
            blockers.iter().flat_map(|blocker| &blocker.tickets).map(|found| found.record.id.as_ticket());
        Self {
            id: ticket.id.as_ticket(),
            ticket: ticket.claim.ticket.as_ref().map_or_else(|| ticket.id.as_ticket(), ToString::to_string),
            owner: ticket.claim.owner.as_str().to_owned(),
            resources: ticket.claim.resources.iter().map(ResourceView::new).collect(),
            priority: ticket.priority.get(),
            position,
            waiting_since: ClockOffset::at(now).utc(ticket.enqueued_at),
            waits_for: obstacles(blockers),
            behind: behind.collect(),
            pid: ticket.claim.proof.process().map(|process| process.pid),
            reason: ticket.claim.reason.clone(),
        }
    }

    /// Shows a ticket of a listing.
    pub fn listed(waiter: &WaiterEntry, now: Moment) -> Self {
        Self::new(&waiter.ticket, &waiter.blockers, waiter.position, now)
    }
}

/// An alert: a count that is above its limit.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Alert))]
pub struct AlertView {
    /// `LOCK_WAIT`, `DEADLOCKS`, `ORPHAN_LOCKS` or `DOWNGRADES`.
    pub code: &'static str,
    /// The value.
    pub value: u64,
    /// The limit that it is above.
    pub limit: u64,
    /// What is wrong, in words.
    pub message: String,
    /// What the user can do about it.
    pub hint: &'static str,
}

impl AlertView {
    /// Shows an alert.
    pub fn new(alert: &Alert) -> Self {
        Self {
            code: alert.code(),
            value: alert.value(),
            limit: alert.limit(),
            message: alert.to_string(),
            hint: alert.hint(),
        }
    }
}
