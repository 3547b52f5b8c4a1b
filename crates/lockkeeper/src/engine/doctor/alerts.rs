//! The check of counts against their limits, over all formats.

use std::time::Duration;

use lockkeeper_core::alert::{Alert, Counts, Limits, raise};

use super::finding::{Finding, Status};
use super::leases::group_circles;
use super::{Pass, Site};
use crate::engine::{Engine, Listing};
use crate::lockfile::group::{Life, Survey};
use crate::store::StoreError;

pub(super) fn check(site: &Site<'_>, _: Pass) -> Finding {
    let mut finding = Finding::pass("waits, deadlocks, orphans and downgrades are within their limits");
    for alert in raised(site) {
        finding = finding.and(Status::Warn, format!("{}: {alert}", alert.code()), alert.hint());
    }
    finding
}

/// The alerts of all formats together. What cannot be counted is told by its own check.
pub(super) fn raised(site: &Site<'_>) -> Vec<Alert> {
    let leases = site.engine().map(|engine| {
        let listing = engine.listing()?;
        count_leases(engine, &listing)
    });
    let mut counts = leases.and_then(Result::ok).unwrap_or_default();
    counts.downgrades = site.downgrades;
    counts.deadlocks += group_circles(site).len();
    counts.orphans += orphaned_files(site);
    raise(&counts, &Limits::default())
}

/// What is to be counted among leases and tickets.
pub fn count_leases(engine: &Engine, listing: &Listing) -> Result<Counts, StoreError> {
    // It takes two to wait in a circle.
    let deadlocks = if listing.waiters.len() < 2 { 0 } else { engine.circles()?.len() };
    Ok(Counts { deadlocks, ..waits_and_orphans(listing) })
}

/// The counts that a listing has in it already.
pub fn waits_and_orphans(listing: &Listing) -> Counts {
    let live = listing.waiters.iter().filter(|waiter| !waiter.verdict.is_free());
    let waits = live.map(|waiter| listing.now.since(waiter.ticket.enqueued_at));
    let orphans = listing.holders.iter().filter(|holder| holder.verdict.is_free()).count();
    Counts { longest_wait: waits.max().unwrap_or(Duration::ZERO), orphans, ..Counts::default() }
}

/// Lock files of other programs that outlived their holders.
fn orphaned_files(site: &Site<'_>) -> usize {
    let swarm = site.swarm.list(site.now).unwrap_or_default();
    let swarm = swarm.iter().filter(|(_, found)| found.as_ref().is_ok_and(|found| found.verdict.is_stale()));
    let aiflow = site.aiflow().list(site.now).unwrap_or_default();
    let aiflow =
        aiflow.iter().filter(|(_, found)| found.as_ref().is_ok_and(|found| found.verdict.is_stale()));
    let survey = Survey::take(site.groups, site.seconds()).unwrap_or_default();
    let lines = survey.groups.iter().flat_map(|group| &group.findings);
    let groups = lines.filter(|line| line.life == Life::Dead);
    swarm.count() + aiflow.count() + groups.count()
}
