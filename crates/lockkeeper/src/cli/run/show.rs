//! `run show` and `run events`.

use lockkeeper_core::run::Status;
use lockkeeper_engine::OwnerNames;
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_engine::runs::{RunDetail, StoredEvent, short_id};
use lockkeeper_engine::views::{BlockedView, EventView, RequestView, RunView, shown_command_line, time};
use lockkeeper_engine::with_short_ids;
use serde::Serialize;
use serde_json::json;

use super::Which;
use crate::cli::context::Context;
use crate::cli::runs::rows::{age, has_failed, leases_for, status, why};
use crate::cli::work::Place;
use crate::cli::{print, table};

#[derive(clap::Args)]
pub(super) struct EventsArgs {
    #[command(flatten)]
    which: Which,
    /// Only events after the one with this number
    #[arg(long, value_name = "N", default_value = "0")]
    after: u32,
}

/// A run with its request, its events and the path of its output.
#[derive(Serialize)]
struct FullRun {
    #[serde(flatten)]
    run: RunView,
    request: RequestView,
    events: Vec<EventView>,
    blocked: Option<BlockedView>,
    /// The machine that executes or executed it, on a store that several machines share.
    host: Option<String>,
    log: String,
}

pub(super) fn run(context: &Context, which: &Which) -> Result<Exit, Report> {
    let (runs, run) = which.find(context)?;
    let view = runs.show(&run.id)?;
    let now = runs.now().moment;
    let request = &view.request.request;
    let leases = leases_for(context, std::iter::once((&view.run, request)))?;
    let log = runs.folder_of(&view.run.id).output().display().to_string();
    let elsewhere = match view.run.status() {
        Status::Queued => Place::default().settings_to_look(context)?.held_elsewhere(request),
        _ => None,
    };
    if context.json {
        let blocked = view.blocked.as_ref().map(|blocked| BlockedView::new(blocked, now));
        let blocked = blocked.map(|blocked| BlockedView { lock_file: elsewhere, ..blocked });
        let run = FullRun {
            run: RunView::new(&view.run, now),
            request: RequestView::new(&view.request),
            events: view.events.iter().map(EventView::new).collect(),
            blocked: blocked.map(|blocked| blocked.with_holders(request, leases.as_ref())),
            host: view.host.clone(),
            log,
        };
        print::json(&json!({ "run": run }));
        return Ok(Exit::Done);
    }
    let names =
        leases.as_ref().map(|leases| OwnerNames::of(leases, &context.location.root)).unwrap_or_default();
    let why = names.in_text(&why(&view.run, request, view.blocked.as_ref(), leases.as_ref(), now));
    let why = elsewhere.into_iter().chain([why].into_iter().filter(|why| !why.is_empty()));
    let why = why.collect::<Vec<_>>().join("; ");
    let last_line = has_failed(&view.run).then(|| runs.last_line(&view.run)).flatten();
    let text = as_text(&view, &why, &age(&view.run, now), &log, last_line.as_deref());
    print::out(&table::wrap_terminal(&text, 11));
    Ok(Exit::Done)
}

fn as_text(view: &RunDetail, why: &str, age: &str, log: &str, last_line: Option<&str>) -> String {
    let (run, request) = (&view.run, &view.request.request);
    let mut lines = vec![
        ("run", run.id.to_string()),
        ("request", table::plain(request.id.as_str())),
        ("title", table::plain(&request.title)),
        (
            "status",
            format!(
                "{} {} {age}",
                status(run.status()),
                if run.status().is_terminal() { "after" } else { "for" }
            ),
        ),
    ];
    if !why.is_empty() {
        lines.push(("why", why.to_owned()));
    }
    lines.extend(last_line.map(|line| ("last line", table::plain(line))));
    if has_failed(run) {
        lines.push(("output", format!("`lockkeeper run logs {}` prints it", short_id(run.id.as_str()))));
    }
    lines.push(("attempt", format!("{} of {}", run.attempt(), request.retry.limit + 1)));
    lines.extend(run.worker().as_ref().map(|worker| ("worker", format!("{worker}, claim {}", run.claim()))));
    lines.extend(view.host.as_ref().map(|host| ("host", table::plain(host))));
    lines.push(("command", table::plain(&shown_command_line(&request.command))));
    let command = run.process().and_then(|process| process.command);
    lines.extend(command.map(|command| ("pid", command.pid.to_string())));
    lines.extend(run.lease().map(|(lease, token)| ("lease", format!("{lease}, token {token}"))));
    lines.push(("queued", time(run.queued_at.unix_micros)));
    lines.extend(run.started_at().map(|at| ("started", time(at.unix_micros))));
    lines.extend(run.completed_at().map(|at| ("completed", time(at.unix_micros))));
    lines.push(("log", table::plain(log)));
    let mut text: String = lines.iter().map(|(what, line)| format!("{what:<11}{line}\n")).collect();
    text.push('\n');
    view.events.iter().for_each(|event| text.push_str(&line(event)));
    text
}

pub(super) fn events(context: &Context, args: &EventsArgs) -> Result<Exit, Report> {
    let (runs, run) = args.which.find(context)?;
    for event in runs.events(&run.id, args.after)? {
        if context.json {
            print::json(&EventView::new(&event));
        } else {
            print::out(&table::wrap_terminal(&line(&event), 6));
        }
    }
    Ok(Exit::Done)
}

/// An event as a line for people.
fn line(event: &StoredEvent) -> String {
    let moved = match &event.from {
        Some(from) if *from != event.to => format!("{from} → {}", event.to),
        Some(_) | None => event.to.clone(),
    };
    let mut line = format!("{:>4}  {}  {:<10}  {moved}", event.id.seq, time(event.at), event.kind);
    for part in event.reason.iter().chain(&event.message) {
        line.push_str("  ");
        line.push_str(&table::plain(&with_short_ids(part)));
    }
    line + "\n"
}
