//! `lockkeeper` and `lockkeeper status` alone: the overview.

use anstyle::Style;
use lockkeeper_engine::OwnerNames;
use lockkeeper_engine::foreign_locks::ForeignPlaces;
use lockkeeper_engine::messages::Messages;
use lockkeeper_engine::overview::{Overview, RequestSummary, Requests};
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_engine::runs::short_id;
use lockkeeper_engine::views::{AttentionView, OverviewView};
use lockkeeper_formats::group::Folders;

use super::context::Context;
use super::locks::resources;
use super::obtain::reason;
use super::runs::rows::{age, why};
use super::{print, table, task};

/// How many leases and tickets are shown.
const SHOWN: usize = 10;

const FIRST_STEPS: &str = "\
nothing is locked or queued here yet

  lockkeeper demo                     see what it does, in half a minute
  lockkeeper exec db -- ./migrate.sh  run a command under the lock `db`
  lockkeeper submit -- make test      put a command into the queue
  lockkeeper init                     let coding agents take part
  lockkeeper --help                   all commands
";

pub(super) fn run(context: &Context) -> Result<Exit, Report> {
    let (swarm, groups) = (task::swarm()?, Folders::from_variables(&|name| std::env::var_os(name)));
    let places = ForeignPlaces { root: &context.location.root, swarm: &swarm, groups: &groups };
    let (leases, runs) = (context.engine_to_read()?, context.existing_runs()?);
    let overview = Overview::read(leases.as_ref(), runs.as_ref(), &context.location.state, places)?;
    let messages = Messages::load();
    if context.json {
        print::json(&OverviewView::new(&overview, context.language(), &messages));
        return Ok(Exit::Done);
    }
    let attention = AttentionView::all(&overview, context.language(), &messages);
    let names = OwnerNames::of(&overview.locks.listing, &context.location.root);
    print::out(&table::fit_terminal(&as_text(&overview, &attention, &names)));
    Ok(Exit::Done)
}

fn as_text(overview: &Overview, attention: &[AttentionView], names: &OwnerNames) -> String {
    if overview.is_quiet() {
        let quiet = "nothing is held, nobody waits, nothing runs, nothing failed\n";
        return if overview.is_used { quiet } else { FIRST_STEPS }.to_owned();
    }
    let sections = [
        held(overview, names),
        waiting(overview, names),
        of_others(overview),
        section("Running", &overview.running, |one| in_progress(overview, names, one)),
        section("Queued", &overview.queued, |one| in_progress(overview, names, one)),
        section("Failed", &overview.failed, |one| failed(overview, one)),
        needs_a_person(attention),
    ];
    sections.into_iter().flatten().collect::<Vec<_>>().join("\n")
}

fn held(overview: &Overview, names: &OwnerNames) -> Option<String> {
    let listing = &overview.locks.listing;
    let rows = listing.holders.iter().take(SHOWN).map(|holder| {
        let claim = &holder.lease.claim;
        vec![
            holder.lease.id.to_string(),
            table::plain(&resources(claim)),
            table::plain(&names.in_text(claim.owner.as_str())),
            format!("for {}", print::span(listing.now.since(holder.lease.acquired_at))),
            print::verdict(holder.verdict),
            table::plain(claim.reason.as_deref().unwrap_or("")),
        ]
    });
    titled("Held", listing.holders.len() as u64, &rows.collect::<Vec<_>>(), "lockkeeper locks")
}

fn waiting(overview: &Overview, names: &OwnerNames) -> Option<String> {
    let listing = &overview.locks.listing;
    let rows = listing.waiters.iter().take(SHOWN).map(|waiter| {
        let claim = &waiter.ticket.claim;
        let because = if waiter.verdict.is_free() {
            "gone: it will be skipped".to_owned()
        } else {
            format!("waits for {}", reason(&waiter.blockers))
        };
        vec![
            waiter.ticket.id.as_ticket(),
            table::plain(&resources(claim)),
            table::plain(&names.in_text(claim.owner.as_str())),
            format!("for {}", print::span(listing.now.since(waiter.ticket.enqueued_at))),
            table::plain(&names.in_text(&because)),
        ]
    });
    titled("Waiting", listing.waiters.len() as u64, &rows.collect::<Vec<_>>(), "lockkeeper locks")
}

fn of_others(overview: &Overview) -> Option<String> {
    let locks = &overview.locks.foreign.locks;
    let rows = locks.iter().take(SHOWN).map(|lock| {
        let (subject, holder) = (table::plain(&lock.subject), table::plain(&lock.holder));
        vec![lock.format.to_owned(), subject, holder, lock.state.to_owned(), table::plain(&lock.reason)]
    });
    titled(
        "Held in files of other systems",
        locks.len() as u64,
        &rows.collect::<Vec<_>>(),
        "lockkeeper locks",
    )
}

/// A section with requests.
fn section(title: &str, requests: &Requests, row: impl Fn(&RequestSummary) -> Vec<String>) -> Option<String> {
    let rows: Vec<_> = requests.first.iter().map(row).collect();
    titled(title, requests.count, &rows, "lockkeeper requests")
}

fn in_progress(overview: &Overview, names: &OwnerNames, one: &RequestSummary) -> Vec<String> {
    [beginning(overview, one, "for"), vec![names.in_text(&reason_of(overview, one))]].concat()
}

fn failed(overview: &Overview, one: &RequestSummary) -> Vec<String> {
    let request = &one.entry.request.request;
    let mut parts = vec![reason_of(overview, one)];
    parts.push(format!("`lockkeeper run logs {}`", table::plain(short_id(request.id.as_str()))));
    parts.extend(one.last_line.as_deref().map(table::plain));
    [beginning(overview, one, "took"), vec![parts.join("; ")]].concat()
}

/// The first cells of a row: the id, how long the request has been in this state or took, and its title.
fn beginning(overview: &Overview, one: &RequestSummary, how: &str) -> Vec<String> {
    let request = &one.entry.request.request;
    let age = one.entry.latest.as_ref().map_or_else(String::new, |run| age(run, overview.now));
    let title = table::cut(&table::plain(&request.title), 30);
    vec![table::plain(short_id(request.id.as_str())), format!("{how} {age}"), title]
}

fn reason_of(overview: &Overview, one: &RequestSummary) -> String {
    let entry = &one.entry;
    let leases = Some(&overview.locks.listing);
    let run = entry.latest.as_ref();
    run.map_or_else(String::new, |run| {
        why(run, &entry.request.request, entry.blocked.as_ref(), leases, overview.now)
    })
}

fn needs_a_person(attention: &[AttentionView]) -> Option<String> {
    let rows = attention.iter().map(|one| vec![table::plain(&one.message), table::plain(&one.hint)]);
    let lines = rows.flat_map(|row| [vec![row[0].clone()], vec![format!("  {}", row[1])]]);
    titled("Needs a person", attention.len() as u64, &lines.collect::<Vec<_>>(), "lockkeeper status --json")
}

/// A title with a count, and rows. `all` is the command that shows all of them.
fn titled(title: &str, count: u64, rows: &[Vec<String>], all: &str) -> Option<String> {
    if count == 0 {
        return None;
    }
    let bold = Style::new().bold();
    let mut text = format!("{bold}{title}{bold:#} ({count})\n");
    for line in table::aligned(rows.iter()).lines() {
        text.push_str(&format!("  {line}\n"));
    }
    if count > rows.len() as u64 && rows.len() >= SHOWN {
        text.push_str(&format!("  … `{all}` shows all\n"));
    }
    Some(text)
}
