//! Checks of native leases: what the dead left, whom nobody can judge, and who waits in a circle.

use lockkeeper_core::draft::Burial;
use lockkeeper_core::liveness::Verdict;

use super::finding::{Finding, Recovered, Status, some_of, told};
use super::{Pass, Visit};
use crate::evidence::verdict_word;
use crate::{Engine, HolderEntry};
use lockkeeper_formats::group::Survey;

/// Another check tells why.
const NO_STORE: &str = "there is no open store";

pub(super) fn stale(visit: &Visit<'_>) -> Finding {
    let Some(engine) = visit.engine() else { return Finding::pass(NO_STORE) };
    let recovered = match visit.pass {
        Pass::Quick => Vec::new(),
        Pass::Full => match engine.clean_up() {
            Ok(burials) => burials.iter().map(buried).collect(),
            Err(error) => return Finding::fail(told(&error), error.hint()),
        },
    };
    let left = match left_of_the_dead(engine) {
        Ok(left) => left,
        Err(finding) => return finding,
    };
    let finding = if left.is_empty() {
        Finding::pass("none is left of the dead")
    } else {
        let list = some_of(left.into_iter(), ", ");
        let fix =
            "nothing has to be done, whoever asks next gets it; `lockkeeper doctor --full` puts it away";
        Finding::warn(format!("left of the dead: {list}"), fix)
    };
    finding.with_recovered(recovered)
}

fn left_of_the_dead(engine: &Engine) -> Result<Vec<String>, Finding> {
    let listing = engine.listing().map_err(|error| Finding::fail(told(&error), error.hint()))?;
    let leases = listing.holders.iter().filter(|holder| holder.verdict.is_free());
    let leases = leases.map(|holder| format!("{} of {}", holder.lease.id, holder.lease.claim.owner));
    let tickets = listing.waiters.iter().filter(|waiter| waiter.verdict.is_free());
    let tickets =
        tickets.map(|waiter| format!("{} of {}", waiter.ticket.id.as_ticket(), waiter.ticket.claim.owner));
    Ok(leases.chain(tickets).collect())
}

fn buried(burial: &Burial) -> Recovered {
    let id = if burial.held { burial.id.to_string() } else { burial.id.as_ticket() };
    let why = match burial.verdict {
        Verdict::Dead(death) => death.to_string(),
        verdict @ (Verdict::Alive | Verdict::Unknown | Verdict::Expired | Verdict::Overdue) => {
            verdict_word(verdict).to_owned()
        }
    };
    Recovered { format: "lease", what: format!("{id} of {}", burial.owner), why }
}

pub(super) fn unknown(visit: &Visit<'_>) -> Finding {
    let Some(engine) = visit.engine() else { return Finding::pass(NO_STORE) };
    let listing = match engine.listing() {
        Ok(listing) => listing,
        Err(error) => return Finding::fail(told(&error), error.hint()),
    };
    let endless =
        |holder: &&HolderEntry| holder.verdict == Verdict::Unknown && holder.lease.expires_at().is_none();
    let unknown: Vec<&HolderEntry> = listing.holders.iter().filter(endless).collect();
    let Some(first) = unknown.first() else {
        return Finding::pass("each one can be judged, or ends by its TTL");
    };
    let fix = format!(
        "`lockkeeper why` tells the evidence; if you know that one is over: lockkeeper locks break {} --yes",
        first.lease.id
    );
    let list = unknown.iter().map(|holder| {
        let (lease, here) = (&holder.lease, engine.senses().origin());
        let place = &lease.claim.proof.origin;
        let place =
            if place.host == here.host { "another pid namespace".to_owned() } else { place.host.clone() };
        format!("{} of {} in {place}", lease.id, lease.claim.owner)
    });
    let detail = format!("held for good by those of whom nobody here knows: {}", some_of(list, ", "));
    Finding::warn(detail, fix)
}

pub(super) fn deadlocks(visit: &Visit<'_>) -> Finding {
    let mut finding = Finding::pass("every wait can end");
    match visit.engine().map_or_else(|| Ok(Vec::new()), Engine::circles) {
        Ok(circles) => {
            for circle in circles {
                let links: Vec<String> = circle.iter().map(ToString::to_string).collect();
                let fix = "end one of them; take everything in one call, or in one same order everywhere";
                finding = finding.and(Status::Fail, links.join(", and "), fix);
            }
        }
        Err(error) => finding = finding.and(Status::Fail, told(&error), error.hint()),
    }
    // What keeps the groups from being looked at is told by their own check.
    for circle in visit.survey().map(Survey::cycles).unwrap_or_default() {
        let detail = format!("holders of groups wait for each other: {}", circle.join(", "));
        finding = finding.and(Status::Fail, detail, "`lockkeeper group status` names the processes: end one");
    }
    finding
}
