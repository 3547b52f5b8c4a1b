//! Checks of native leases: records of dead holders, holders that cannot be judged, and deadlocks.

use lockkeeper_core::id::Owner;
use lockkeeper_core::liveness::Verdict;
use lockkeeper_core::records::Reaped;
use lockkeeper_formats::group::Survey;
use lockkeeper_store::StoreError;

use super::finding::{Finding, Recovered, Status, with_causes};
use super::{Context, Pass};
use crate::evidence::verdict_word;
use crate::messages::{Sentence, said};
use crate::{Engine, HolderEntry};

/// The check `store` says why.
const NO_STORE: &str = "there is no open store";

pub(super) fn stale(context: &Context<'_>) -> Finding {
    let Some(engine) = context.engine() else { return Finding::pass(NO_STORE) };
    let recovered = match context.pass {
        Pass::Quick => Vec::new(),
        Pass::Full => match engine.clean_up() {
            Ok(reaped) => reaped.iter().map(recovered_lease).collect(),
            Err(error) => return Finding::fail(with_causes(&error), error.hint()),
        },
    };
    let dead = match dead_records(engine) {
        Ok(dead) => dead,
        Err(error) => return Finding::fail(with_causes(&error), error.hint()),
    };
    let finding = if dead.is_empty() {
        Finding::pass("none belongs to a dead holder")
    } else {
        Finding::warn(said("seen.dead_holders").with_list("list", dead), said("fix.dead_holders"))
    };
    finding.with_recovered(recovered)
}

/// The leases and tickets whose holder is dead or whose TTL has ended.
fn dead_records(engine: &Engine) -> Result<Vec<Sentence>, StoreError> {
    let item = |id: String, owner: &Owner| said("item.of").with("id", id).with("owner", owner);
    let listing = engine.listing()?;
    let leases = listing.holders.iter().filter(|holder| holder.verdict.is_free());
    let leases = leases.map(|holder| item(holder.lease.id.to_string(), &holder.lease.claim.owner));
    let tickets = listing.waiters.iter().filter(|waiter| waiter.verdict.is_free());
    let tickets = tickets.map(|waiter| item(waiter.ticket.id.as_ticket(), &waiter.ticket.claim.owner));
    Ok(leases.chain(tickets).collect())
}

fn recovered_lease(reaped: &Reaped) -> Recovered {
    let id = if reaped.held { reaped.id.to_string() } else { reaped.id.as_ticket() };
    let why = match reaped.verdict {
        Verdict::Dead(death) => death.to_string(),
        verdict @ (Verdict::Alive | Verdict::Unknown | Verdict::Expired | Verdict::Overdue) => {
            verdict_word(verdict).to_owned()
        }
    };
    Recovered { format: "lease", what: format!("{id} of {}", reaped.owner), why }
}

pub(super) fn unknown(context: &Context<'_>) -> Finding {
    let Some(engine) = context.engine() else { return Finding::pass(NO_STORE) };
    let listing = match engine.listing() {
        Ok(listing) => listing,
        Err(error) => return Finding::fail(with_causes(&error), error.hint()),
    };
    let endless =
        |holder: &&HolderEntry| holder.verdict == Verdict::Unknown && holder.lease.expires_at().is_none();
    let unknown: Vec<&HolderEntry> = listing.holders.iter().filter(endless).collect();
    let Some(first) = unknown.first() else {
        return Finding::pass("each holder can be judged, or its lease ends by its TTL");
    };
    let fix = said("fix.unknown_holders").with("id", first.lease.id);
    let list = unknown.iter().map(|holder| {
        let (lease, here) = (&holder.lease, engine.probe().origin());
        let place = &lease.claim.proof.origin;
        let item = if place.host != here.host {
            said("item.of_in").with("place", &place.host)
        } else if place.pid_namespace == here.pid_namespace {
            said("item.of_life")
        } else {
            said("item.of_namespace")
        };
        item.with("id", lease.id).with("owner", &lease.claim.owner)
    });
    Finding::warn(said("seen.unknown_holders").with_list("list", list), fix)
}

pub(super) fn deadlocks(context: &Context<'_>) -> Finding {
    let mut finding = Finding::pass("every wait can end");
    match context.engine().map_or_else(|| Ok(Vec::new()), Engine::cycles) {
        Ok(cycles) => {
            for cycle in cycles {
                let links: Vec<String> = cycle.iter().map(ToString::to_string).collect();
                finding = finding.and(Status::Fail, links.join(", and "), said("fix.deadlock"));
            }
        }
        Err(error) => finding = finding.and(Status::Fail, with_causes(&error), error.hint()),
    }
    // The check `group-locks` says why groups cannot be read.
    for cycle in context.survey().map(Survey::cycles).unwrap_or_default() {
        let detail = said("seen.group_cycle").with("list", cycle.join(", "));
        finding = finding.and(Status::Fail, detail, said("fix.group_cycle"));
    }
    finding
}
