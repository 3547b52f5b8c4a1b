//! Check of the alerts: compares counts over all lock formats with their limits.

use std::collections::BTreeSet;
use std::time::Duration;

use lockkeeper_core::alert::{Alert, Counts, Limits, raise};
use lockkeeper_core::id::Owner;
use lockkeeper_core::time::format_span;
use lockkeeper_store::StoreError;

use super::Context;
use super::finding::{Finding, Status};
use crate::foreign_locks::{ForeignLocks, ForeignPlaces};
use crate::messages::{Sentence, said};
use crate::{Engine, Listing};

pub(super) fn check(context: &Context<'_>) -> Finding {
    let mut finding = Finding::pass("waits, deadlocks, orphans and downgrades are within their limits");
    let alerts = raise(&count(context), &Limits::default());
    for alert in &alerts {
        let (what, advice) = sentences(alert);
        let coded = said("alert.coded").with("code", alert.code()).with_list("what", [what]);
        finding = finding.and(Status::Warn, coded, advice);
    }
    finding.with_alerts(alerts)
}

/// What an alert says, and what to do about it.
pub(crate) fn sentences(alert: &Alert) -> (Sentence, Sentence) {
    let (what, advice) = match alert {
        Alert::LongWait { .. } => ("alert.LOCK_WAIT", "alert.hint.LOCK_WAIT"),
        Alert::Deadlocks { .. } => ("alert.DEADLOCKS", "alert.hint.DEADLOCKS"),
        Alert::Orphans { .. } => ("alert.ORPHAN_LOCKS", "alert.hint.ORPHAN_LOCKS"),
        Alert::Downgrades { .. } => ("alert.DOWNGRADES", "alert.hint.DOWNGRADES"),
    };
    let value = match alert {
        Alert::LongWait { waited, .. } => format_span(*waited),
        Alert::Deadlocks { count, .. } | Alert::Orphans { count, .. } | Alert::Downgrades { count, .. } => {
            count.to_string()
        }
    };
    (said(what).with("value", value).with("limit", alert.limit()), said(advice))
}

/// Counts over all formats. A format that cannot be read is left out: its own check reports the error.
fn count(context: &Context<'_>) -> Counts {
    let leases = context.engine().map(|engine| count_leases(engine, &engine.listing()?));
    let mut counts = leases.and_then(Result::ok).unwrap_or_default();
    counts.downgrades = context.inputs.downgrades;
    let places = ForeignPlaces {
        root: &context.inputs.location.root,
        swarm: context.inputs.swarm,
        groups: context.inputs.groups,
    };
    ForeignLocks::look(places, context.inputs.now).add_to(&mut counts);
    counts
}

/// Counts leases and tickets.
pub fn count_leases(engine: &Engine, listing: &Listing) -> Result<Counts, StoreError> {
    let deadlocks = if may_deadlock(listing) { engine.cycles()?.len() } else { 0 };
    Ok(Counts { deadlocks, ..waits_and_orphans(listing) })
}

/// Whether a deadlock is possible at all. All tickets are served in one order, so tickets alone never make a cycle. A
/// cycle needs an owner that holds a lease while it waits, waits twice, or waits under a lease.
fn may_deadlock(listing: &Listing) -> bool {
    let holders: BTreeSet<&Owner> = listing.holders.iter().map(|holder| &holder.lease.claim.owner).collect();
    let mut waiting = BTreeSet::new();
    listing.waiters.iter().any(|waiter| {
        let (owner, ticket) = (&waiter.ticket.claim.owner, &waiter.ticket);
        holders.contains(owner) || !ticket.under.is_empty() || !waiting.insert(owner)
    })
}

/// The counts that need nothing but the listing.
pub fn waits_and_orphans(listing: &Listing) -> Counts {
    let live = listing.waiters.iter().filter(|waiter| !waiter.verdict.is_free());
    let waits = live.map(|waiter| listing.now.since(waiter.ticket.enqueued_at));
    let orphans = listing.holders.iter().filter(|holder| holder.verdict.is_free()).count();
    Counts { longest_wait: waits.max().unwrap_or(Duration::ZERO), orphans, ..Counts::default() }
}
