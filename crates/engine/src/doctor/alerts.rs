//! The check of counts against their limits, over all formats.

use std::collections::BTreeSet;
use std::time::Duration;

use lockkeeper_core::alert::{Counts, Limits, raise};
use lockkeeper_core::id::Owner;

use super::Visit;
use super::finding::{Finding, Status};
use crate::{Engine, Listing};
use lockkeeper_formats::group::Liveness;
use lockkeeper_store::StoreError;

pub(super) fn check(visit: &Visit<'_>) -> Finding {
    let mut finding = Finding::pass("waits, deadlocks, orphans and downgrades are within their limits");
    let alerts = raise(&count(visit), &Limits::default());
    for alert in &alerts {
        finding = finding.and(Status::Warn, format!("{}: {alert}", alert.code()), alert.hint());
    }
    finding.with_alerts(alerts)
}

/// The counts of all formats together. What cannot be counted is told by its own check.
fn count(visit: &Visit<'_>) -> Counts {
    let leases = visit.engine().map(|engine| count_leases(engine, &engine.listing()?));
    let mut counts = leases.and_then(Result::ok).unwrap_or_default();
    counts.downgrades = visit.site.downgrades;
    if let Ok(survey) = visit.survey() {
        let lines = survey.groups.iter().flat_map(|group| &group.findings);
        counts.orphans += lines.filter(|line| line.liveness == Liveness::Dead).count();
        counts.deadlocks += survey.cycles().len();
    }
    let tasks = visit.tasks().unwrap_or_default().iter();
    counts.orphans +=
        tasks.filter(|(_, found)| found.as_ref().is_ok_and(|one| one.verdict.is_stale())).count();
    let requests = visit.requests().unwrap_or_default().iter();
    counts.orphans +=
        requests.filter(|(_, found)| found.as_ref().is_ok_and(|one| one.verdict.is_stale())).count();
    counts
}

/// What is to be counted among leases and tickets.
pub fn count_leases(engine: &Engine, listing: &Listing) -> Result<Counts, StoreError> {
    let deadlocks = if may_be_stuck(listing) { engine.circles()?.len() } else { 0 };
    Ok(Counts { deadlocks, ..waits_and_orphans(listing) })
}

/// Whether anybody could wait in a circle at all. Tickets alone are in one order everywhere, so it takes somebody who
/// holds something while waiting, waits twice, or waits under a lease.
fn may_be_stuck(listing: &Listing) -> bool {
    let holders: BTreeSet<&Owner> = listing.holders.iter().map(|holder| &holder.lease.claim.owner).collect();
    let mut waiting = BTreeSet::new();
    listing.waiters.iter().any(|waiter| {
        let (owner, ticket) = (&waiter.ticket.claim.owner, &waiter.ticket);
        holders.contains(owner) || !ticket.under.is_empty() || !waiting.insert(owner)
    })
}

/// The counts that a listing has in it already.
pub fn waits_and_orphans(listing: &Listing) -> Counts {
    let live = listing.waiters.iter().filter(|waiter| !waiter.verdict.is_free());
    let waits = live.map(|waiter| listing.now.since(waiter.ticket.enqueued_at));
    let orphans = listing.holders.iter().filter(|holder| holder.verdict.is_free()).count();
    Counts { longest_wait: waits.max().unwrap_or(Duration::ZERO), orphans, ..Counts::default() }
}
