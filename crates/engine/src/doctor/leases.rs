//! Checks of native leases: records of dead holders, holders that cannot be judged, and deadlocks.

use lockkeeper_core::liveness::Verdict;
use lockkeeper_core::records::Reaped;
use lockkeeper_formats::group::Survey;

use super::finding::{Finding, Recovered, Status, first_few, with_causes};
use super::{Context, Pass};
use crate::evidence::verdict_word;
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
        Err(finding) => return finding,
    };
    let finding = if dead.is_empty() {
        Finding::pass("none belongs to a dead holder")
    } else {
        let list = first_few(dead.into_iter(), ", ");
        let fix = "nothing has to be done: the next request gets what they hold; `lockkeeper doctor --full` removes them";
        Finding::warn(format!("their holders are dead: {list}"), fix)
    };
    finding.with_recovered(recovered)
}

/// The leases and tickets whose holder is dead or whose TTL has ended.
fn dead_records(engine: &Engine) -> Result<Vec<String>, Finding> {
    let listing = engine.listing().map_err(|error| Finding::fail(with_causes(&error), error.hint()))?;
    let leases = listing.holders.iter().filter(|holder| holder.verdict.is_free());
    let leases = leases.map(|holder| format!("{} of {}", holder.lease.id, holder.lease.claim.owner));
    let tickets = listing.waiters.iter().filter(|waiter| waiter.verdict.is_free());
    let tickets =
        tickets.map(|waiter| format!("{} of {}", waiter.ticket.id.as_ticket(), waiter.ticket.claim.owner));
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
    let fix = format!(
        "`lockkeeper why` shows the evidence; if you know that a holder has ended: lockkeeper locks break {} --yes",
        first.lease.id
    );
    let list = unknown.iter().map(|holder| {
        let (lease, here) = (&holder.lease, engine.probe().origin());
        let place = &lease.claim.proof.origin;
        let place =
            if place.host == here.host { "another pid namespace".to_owned() } else { place.host.clone() };
        format!("{} of {} in {place}", lease.id, lease.claim.owner)
    });
    let detail =
        format!("held without a TTL by holders that cannot be observed from here: {}", first_few(list, ", "));
    Finding::warn(detail, fix)
}

pub(super) fn deadlocks(context: &Context<'_>) -> Finding {
    let mut finding = Finding::pass("every wait can end");
    match context.engine().map_or_else(|| Ok(Vec::new()), Engine::cycles) {
        Ok(cycles) => {
            for cycle in cycles {
                let links: Vec<String> = cycle.iter().map(ToString::to_string).collect();
                let fix = "end one of them; acquire everything in one call, or everywhere in the same order";
                finding = finding.and(Status::Fail, links.join(", and "), fix);
            }
        }
        Err(error) => finding = finding.and(Status::Fail, with_causes(&error), error.hint()),
    }
    // The check `group-locks` says why groups cannot be read.
    for cycle in context.survey().map(Survey::cycles).unwrap_or_default() {
        let detail = format!("holders of groups wait for each other: {}", cycle.join(", "));
        finding = finding.and(Status::Fail, detail, "`lockkeeper group status` names the processes: end one");
    }
    finding
}
