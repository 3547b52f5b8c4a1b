//! Agents page: the board of coding agents, with what each works on, waits for and was denied.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use lockkeeper_core::resource::Target;
use lockkeeper_core::time::format_span;
use lockkeeper_engine::open::{has_store, open_engine_to_read};
use lockkeeper_engine::report::Report;
use lockkeeper_engine::views::{AgentView, BoardView};
use lockkeeper_engine::{Listing, OwnerNames, WaiterEntry};
use lockkeeper_platform::clock;
use lockkeeper_platform::wall_clock::epoch_seconds;

use super::texts::Texts;
use super::times::{TimeFormat, TimePoint};
use super::{Layout, render};
use crate::api::agents::board;
use crate::error::ApiError;
use crate::state::AppState;

/// How many agents and waiters are shown. The API has all of them.
const MAX_ROWS: usize = 200;
/// How many files of one agent are shown.
const MAX_FILES: usize = 12;
/// A part of an owner that is longer than this is cut.
const MAX_PART: usize = 12;
/// How many letters of it are left.
const SHORT_PART: usize = 8;

#[derive(Template)]
#[template(path = "agents.html")]
struct Page {
    layout: Layout,
    now: i64,
    takes_part: bool,
    /// How many agents are in which state. States that nobody is in are left out.
    counts: Vec<(usize, &'static str)>,
    agents: Vec<Agent>,
    agents_left_out: usize,
    waiting: Vec<Waiting>,
    waiting_left_out: usize,
    incident: Option<String>,
    failed_open: Option<String>,
}

/// An owner: cut for display, complete in the tooltip.
#[derive(Clone)]
struct Owner {
    short: String,
    whole: String,
}

struct Agent {
    owner: Owner,
    is_below: bool,
    harness: String,
    state: &'static str,
    tone: &'static str,
    seen: TimePoint,
    note: Option<String>,
    files: Vec<String>,
    files_left_out: usize,
    waits_for: Vec<Waiting>,
    denied: Vec<(String, u64)>,
    denied_left_out: usize,
}

#[derive(Clone)]
struct Waiting {
    targets: Vec<String>,
    owner: Owner,
    holder: Option<Owner>,
    position: usize,
    since: TimePoint,
}

pub(super) async fn page(State(state): State<AppState>, layout: Layout) -> Result<Response, ApiError> {
    let BoardView { takes_part, mut agents, incidents, failed_open, .. } = board(&state).await?;
    let (listing, names) = state
        .blocking(|state| {
            let listing = local_listing(state.state_folder())?;
            let names = OwnerNames::of(&listing, state.root());
            Ok((listing, names))
        })
        .await?;
    let (texts, now) = (layout.texts, epoch_seconds());
    let owners = Owners::new(&agents, &listing, names);
    let waiting = waiting(&agents, &listing, &owners);
    let count = |state: &str| agents.iter().filter(|agent| agent.state == state).count();
    let counts = [
        (count("works"), texts.agent_works),
        (count("waits"), texts.agent_waits),
        (count("rests"), texts.agent_rests),
    ];
    let counts = counts.into_iter().filter(|(count, _)| *count > 0).collect();
    // Agents that wait come first, then those that work. Within a state, the agent that was seen last comes first.
    agents.sort_by_key(|agent| match agent.state {
        "waits" => 0,
        "works" => 1,
        _ => 2,
    });
    let page = Page {
        now: now.saturating_mul(1000),
        takes_part,
        counts,
        agents_left_out: agents.len().saturating_sub(MAX_ROWS),
        agents: agents
            .into_iter()
            .take(MAX_ROWS)
            .map(|one| Agent::new(one, &waiting, &owners, texts, now))
            .collect(),
        waiting_left_out: waiting.len().saturating_sub(MAX_ROWS),
        waiting: waiting.into_iter().take(MAX_ROWS).collect(),
        incident: incidents.last().cloned(),
        failed_open: failed_open.last().cloned(),
        layout: layout.at("/agents"),
    };
    render(&page)
}

/// The short names of all owners on the page. No two are the same.
struct Owners {
    names: OwnerNames,
    short: BTreeMap<String, String>,
}

impl Owners {
    fn new(agents: &[AgentView], listing: &Listing, names: OwnerNames) -> Self {
        let claims = listing.holders.iter().map(|holder| &holder.lease.claim);
        let claims = claims.chain(listing.waiters.iter().map(|waiter| &waiter.ticket.claim));
        let mut all: BTreeSet<&str> = agents.iter().map(|agent| agent.owner.as_str()).collect();
        all.extend(claims.map(|claim| claim.owner.as_str()));
        Self { names, short: told_apart(&all) }
    }

    fn owner(&self, whole: &str) -> Owner {
        // Runs, and owners that nobody chose, have the names that other pages show.
        let named = whole.parse().map(|owner| self.names.of_owner(&owner)).ok().filter(|name| name != whole);
        let short = named.or_else(|| self.short.get(whole).cloned());
        Owner { short: short.unwrap_or_else(|| whole.to_owned()), whole: whole.to_owned() }
    }
}

/// Short forms of owners. Sessions have long ids, some of which begin with the time: where the beginning does not tell two owners apart,
/// the end does.
fn told_apart(owners: &BTreeSet<&str>) -> BTreeMap<String, String> {
    let begin = |letters: &[char]| format!("{}…", letters[..SHORT_PART].iter().collect::<String>());
    let end =
        |letters: &[char]| format!("…{}", letters[letters.len() - SHORT_PART..].iter().collect::<String>());
    let forms = |owner: &str| [cut(owner, begin), cut(owner, end), owner.to_owned()];
    let mut count: BTreeMap<String, usize> = BTreeMap::new();
    for form in owners.iter().flat_map(|owner| BTreeSet::from(forms(owner))) {
        *count.entry(form).or_default() += 1;
    }
    let short = |owner: &str| {
        let [begin, end, whole] = forms(owner);
        [begin, end].into_iter().find(|form| count.get(form) == Some(&1)).unwrap_or(whole)
    };
    owners.iter().map(|owner| ((*owner).to_owned(), short(owner))).collect()
}

/// Cuts the long parts of an owner.
fn cut(owner: &str, form: impl Fn(&[char]) -> String) -> String {
    let part = |part: &str| {
        let letters: Vec<char> = part.chars().collect();
        if letters.len() > MAX_PART { form(&letters) } else { part.to_owned() }
    };
    owner.split(':').map(part).collect::<Vec<_>>().join(":")
}

/// The waits of agents, and those of others for what agents hold. What else waits in this repository is on the page of locks.
fn waiting(agents: &[AgentView], listing: &Listing, owners: &Owners) -> Vec<Waiting> {
    let times = TimeFormat::new(listing.now);
    let is_agent = |owner: &str| agents.iter().any(|agent| agent.owner == owner);
    let waiting = |waiter: &WaiterEntry| {
        let claim = &waiter.ticket.claim;
        let mut holders = waiter.blockers.iter().flat_map(|blocker| &blocker.leases);
        let holder = holders.next().map(|found| found.record.claim.owner.as_str());
        let concerns_agents = is_agent(claim.owner.as_str()) || holder.is_some_and(is_agent);
        concerns_agents.then(|| Waiting {
            targets: targets(claim.targets()),
            owner: owners.owner(claim.owner.as_str()),
            holder: holder.map(|holder| owners.owner(holder)),
            position: waiter.position,
            since: times.since(waiter.ticket.enqueued_at),
        })
    };
    listing.waiters.iter().filter(|waiter| !waiter.verdict.is_free()).filter_map(waiting).collect()
}

/// Files and names as people call them. Where the file system ignores case, a file has a second target in lower case, which is not shown.
fn targets<'t>(targets: impl Iterator<Item = &'t Target>) -> Vec<String> {
    let mut shown: Vec<String> = Vec::new();
    for target in targets.take(MAX_FILES) {
        let text = match target {
            Target::Path(pattern) if pattern.is_literal() => pattern.literal_prefix().to_owned(),
            Target::Path(_) | Target::Name(_) => target.as_str().to_owned(),
        };
        if !shown.iter().any(|one| one.to_lowercase() == text) {
            shown.push(text);
        }
    }
    shown
}

/// The claims of agents, which are always in the state folder, also where a server keeps those of others.
fn local_listing(state: &Path) -> Result<Listing, Report> {
    if has_store(state) {
        return Ok(open_engine_to_read(state)?.listing()?);
    }
    Ok(Listing { now: clock::now(), holders: Vec::new(), waiters: Vec::new() })
}

impl Agent {
    fn new(agent: AgentView, waiting: &[Waiting], owners: &Owners, texts: &Texts, now: i64) -> Self {
        let (state, tone) = match agent.state {
            "works" => (texts.agent_works, "info"),
            "waits" => (texts.agent_waits, "warn"),
            _ => (texts.agent_rests, ""),
        };
        let own = waiting.iter().filter(|one| one.owner.whole == agent.owner).take(MAX_FILES);
        let (files, denied) = (agent.claims.len(), agent.denied.len());
        Self {
            owner: owners.owner(&agent.owner),
            is_below: agent.owner.split(':').count() > 2,
            harness: agent.harness,
            state,
            tone,
            seen: ago(agent.last_seen, now),
            note: agent.note.filter(|note| !note.is_empty()),
            files: agent.claims.into_iter().take(MAX_FILES).collect(),
            files_left_out: files.saturating_sub(MAX_FILES),
            waits_for: own.cloned().collect(),
            denied: agent.denied.into_iter().take(MAX_FILES).collect(),
            denied_left_out: denied.saturating_sub(MAX_FILES),
        }
    }
}

/// A time in the past, in seconds since 1970.
fn ago(at: i64, now: i64) -> TimePoint {
    let span = u64::try_from(now.saturating_sub(at)).unwrap_or(0);
    let text = if span == 0 { "0s".to_owned() } else { format_span(Duration::from_secs(span)) };
    TimePoint { at: at.saturating_mul(1000), text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn short(owners: &[&str]) -> Vec<String> {
        let short = told_apart(&owners.iter().copied().collect());
        owners.iter().map(|owner| short[*owner].clone()).collect()
    }

    #[test]
    fn owners_are_short_for_the_eye() {
        assert_eq!(short(&["claude:9f2c1a7e-0000-4000-8000-000000000000:a17"]), ["claude:9f2c1a7e…:a17"]);
        assert_eq!(short(&["person:ann", ""]), ["person:ann", ""]);
    }

    /// Ids of version 7 begin with the time.
    #[test]
    fn no_two_owners_have_the_same_short_form() {
        let ids =
            ["codex:0199a7c2-0000-7000-8000-00000000000a", "codex:0199a7c2-0000-7000-8000-00000000000b"];
        assert_eq!(short(&ids), ["codex:…0000000a", "codex:…0000000b"]);
        let ids = ["x:aaaaaaaa-first-zzzzzzzz", "x:aaaaaaaa-second-zzzzzzzz"];
        assert_eq!(short(&ids), ids);
    }
}
