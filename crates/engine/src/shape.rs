//! Leases, tickets and refusals in the one shape that every interface gives them.

use std::num::NonZeroU32;

use lockkeeper_core::alert::Alert;
use lockkeeper_core::deadlock::Link;
use lockkeeper_core::record::{Lease, Ticket};
use lockkeeper_core::resource::{Mode, Resource, Target};
use lockkeeper_core::time::Moment;
use lockkeeper_core::waiting::Jam;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::evidence::verdict_word;
use crate::report::{Exit, Report};
use crate::{HolderEntry, WaiterEntry};
use lockkeeper_platform::wall_clock::ClockOffset;

/// An alert, in the shape that every interface gives it.
pub fn alert_to_json(alert: &Alert) -> Value {
    json!({
        "code": alert.code(),
        "value": alert.value(),
        "limit": alert.limit(),
        "message": alert.to_string(),
        "hint": alert.hint(),
    })
}

/// Reads `exclusive`, `shared` or `slots:N`.
pub fn mode_from(text: &str) -> Option<Mode> {
    match text {
        "exclusive" => Some(Mode::Exclusive),
        "shared" => Some(Mode::Shared),
        counted => counted.strip_prefix("slots:")?.parse::<NonZeroU32>().ok().map(Mode::Slots),
    }
}

/// A resource: a name or a path, and how it is held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Resource))]
#[serde(deny_unknown_fields)]
pub struct ResourceShape {
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

impl ResourceShape {
    /// Shows a resource.
    pub fn of(resource: &Resource) -> Self {
        let (text, mode) = (resource.target.as_str().to_owned(), resource.mode.to_string());
        match &resource.target {
            Target::Name(_) => Self { name: Some(text), path: None, mode },
            Target::Path(_) => Self { name: None, path: Some(text), mode },
        }
    }
}

/// A lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Lease))]
pub struct LeaseShape {
    /// Its id, such as `L42`.
    pub id: String,
    /// Its fencing number.
    pub token: u64,
    /// Who holds it, as `kind:id`.
    pub owner: String,
    /// What it protects.
    pub resources: Vec<ResourceShape>,
    /// When it was granted.
    pub acquired_at: String,
    /// When it was last renewed.
    pub heartbeat_at: String,
    /// When it ends unless it is renewed.
    pub expires_at: Option<String>,
    /// The process that it is tied to.
    pub pid: Option<u32>,
    /// The machine that it was taken on.
    pub host: String,
    /// How the store knows that its holder lives: `kernel-lock`, `process` or `ttl`.
    pub proof: String,
    /// Why it was taken.
    pub reason: Option<String>,
    /// What becomes of it when its time is up: `strict`, `lease` or `kill`.
    pub contract: String,
    /// What is seen of its holder: `alive`, `unknown`, `dead`, `expired` or `overdue`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
}

impl LeaseShape {
    /// Shows a lease, whoever its holder is.
    pub fn of(lease: &Lease, now: Moment) -> Self {
        let dial = ClockOffset::at(now);
        Self {
            id: lease.id.to_string(),
            token: lease.token.0,
            owner: lease.claim.owner.as_str().to_owned(),
            resources: lease.claim.resources.iter().map(ResourceShape::of).collect(),
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

    /// Shows a lease together with what is seen of its holder.
    pub fn judged(holder: &HolderEntry, now: Moment) -> Self {
        Self { state: Some(verdict_word(holder.verdict).to_owned()), ..Self::of(&holder.lease, now) }
    }
}

/// Somebody whom a ticket waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Obstacle))]
pub struct ObstacleShape {
    /// The lease in the way.
    pub lease: String,
    /// Who holds it.
    pub owner: String,
    /// The name, or a path that both match.
    pub witness: String,
}

/// A ticket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Ticket))]
pub struct TicketShape {
    /// Its id such as `T42`, or the name that its owner gave it.
    pub ticket: String,
    /// Who waits, as `kind:id`.
    pub owner: String,
    /// What is waited for.
    pub resources: Vec<ResourceShape>,
    /// How urgent it is, from −100 to 100.
    pub priority: i32,
    /// Its place in the longest line that it stands in, from 1.
    pub position: usize,
    /// Since when it waits.
    pub waiting_since: String,
    /// Who holds what it waits for.
    pub waits_for: Vec<ObstacleShape>,
    /// The tickets that go first.
    pub behind: Vec<String>,
    /// The process that waits.
    pub pid: Option<u32>,
    /// Why it is wanted.
    pub reason: Option<String>,
}

impl TicketShape {
    /// Shows a ticket.
    pub fn of(ticket: &Ticket, jams: &[Jam], position: usize, now: Moment) -> Self {
        let behind = jams.iter().flat_map(|jam| &jam.tickets).map(|found| found.record.id.as_ticket());
        Self {
            ticket: ticket.claim.ticket.as_ref().map_or_else(|| ticket.id.as_ticket(), ToString::to_string),
            owner: ticket.claim.owner.as_str().to_owned(),
            resources: ticket.claim.resources.iter().map(ResourceShape::of).collect(),
            priority: ticket.priority.get(),
            position,
            waiting_since: ClockOffset::at(now).utc(ticket.enqueued_at),
            waits_for: obstacles(jams),
            behind: behind.collect(),
            pid: ticket.claim.proof.process().map(|process| process.pid),
            reason: ticket.claim.reason.clone(),
        }
    }

    /// Shows a ticket as the listing has it.
    pub fn listed(waiter: &WaiterEntry, now: Moment) -> Self {
        Self::of(&waiter.ticket, &waiter.jams, waiter.position, now)
    }
}

/// Who holds what is in the way.
pub fn obstacles(jams: &[Jam]) -> Vec<ObstacleShape> {
    let leases = jams.iter().flat_map(|jam| &jam.leases);
    let shown = leases.map(|found| ObstacleShape {
        lease: found.record.id.to_string(),
        owner: found.record.claim.owner.as_str().to_owned(),
        witness: found.witness.clone(),
    });
    shown.collect()
}

/// "`db`, held by worker:1 (12 s); behind exec:2".
pub fn reason(jams: &[Jam]) -> String {
    let parts = jams.iter().map(|jam| {
        let mut text = jam.resource.target.to_string();
        if let Some(found) = jam.leases.first() {
            text.push_str(&format!(", held by {}", found.record.claim.owner));
            if let Some(reason) = &found.record.claim.reason {
                text.push_str(&format!(" ({})", plain(reason)));
            }
            if found.witness != jam.resource.target.as_str() {
                text.push_str(&format!(", both match {}", found.witness));
            }
        }
        if let Some(found) = jam.tickets.first() {
            text.push_str(&format!(", behind {}", found.record.claim.owner));
        }
        text
    });
    parts.collect::<Vec<_>>().join("; ")
}

/// Text that somebody else wrote, without anything that could steer a terminal.
pub fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// The wait would never end.
pub fn deadlock(links: &[Link]) -> Report {
    let own_command = matches!(links, [link] if link.waiter == link.holder);
    let cycle: Vec<String> = links.iter().map(ToString::to_string).collect();
    let (message, hint) = if own_command {
        let wanted = &links[0].wanted;
        let message =
            format!("deadlock refused: this command runs under a lease that holds {wanted} already");
        (message, "leave the inner lock out, or give both the same --owner")
    } else {
        let message = format!("deadlock refused: {}", cycle.join(", and "));
        (message, "release what you hold and take everything in one call, or in one same order everywhere")
    };
    let links: Vec<Value> = links
        .iter()
        .map(|link| json!({ "waiter": link.waiter.as_str(), "wanted": link.wanted, "holder": link.holder.as_str() }))
        .collect();
    Report::new(Exit::Refused, "DEADLOCK", message).with_hint(hint).with_context("cycle", links)
}
