//! `requests`: lists requests and their status.

use clap::Subcommand;
use lockkeeper_core::id::RequestId;
use lockkeeper_core::record::Priority;
use lockkeeper_core::request::RequestStatus;
use lockkeeper_core::run::Run;
use lockkeeper_core::secret;
use lockkeeper_core::time::Moment;
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_engine::runs::{RequestEntry, RequestFilter, RunError, Runs, short_id};
use lockkeeper_engine::views::{RequestItem, shown_command_line, time};
use lockkeeper_engine::{Listing, OwnerNames};
use lockkeeper_platform::clock;
use serde_json::json;

use super::context::{Context, Globals};
use super::runs::rows::{age, has_failed, leases_for, request_status, why};
use super::{Verb, print, table};

/// List requests and their status
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  lockkeeper requests --status FAILED\n  lockkeeper requests show tests\n  \
        lockkeeper requests priority deploy 10"
)]
pub(super) struct Args {
    /// Only requests with this status: QUEUED, RUNNING, DONE, NEEDS_INPUT, FAILED, CANCELED
    #[arg(long = "status", value_name = "STATUS")]
    statuses: Vec<String>,
    /// Only requests with this text in their title or id
    #[arg(long, value_name = "TEXT")]
    text: Option<String>,
    /// At most this many, the latest first
    #[arg(long, value_name = "N", default_value = "100")]
    limit: usize,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Show all of one request
    Show(ShowArgs),
    /// Change the priority of a request, and with it the place of its queued run
    Priority(PriorityArgs),
}

#[derive(clap::Args)]
struct ShowArgs {
    /// Its id
    #[arg(value_name = "REQUEST")]
    request: String,
}

#[derive(clap::Args)]
struct PriorityArgs {
    /// Its id
    #[arg(value_name = "REQUEST")]
    request: String,
    /// From -100 to 100: higher is sooner
    #[arg(value_name = "N", allow_hyphen_values = true)]
    priority: String,
}

impl Verb for Args {
    const NAME: &'static str = "requests";

    fn run(self, globals: &Globals) -> Result<Exit, Report> {
        let context = Context::new(globals)?;
        match &self.command {
            None => list(&context, &self),
            Some(Command::Show(args)) => show(&context, &args.request),
            Some(Command::Priority(args)) => set_priority(&context, args),
        }
    }
}

fn list(context: &Context, args: &Args) -> Result<Exit, Report> {
    let statuses =
        args.statuses.iter().map(|text| text.parse()).collect::<Result<Vec<RequestStatus>, _>>()?;
    let filter =
        RequestFilter { statuses, text: args.text.clone(), limit: args.limit, ..RequestFilter::default() };
    let runs = context.existing_runs()?;
    let (entries, now) = match &runs {
        Some(runs) => {
            runs.expire()?;
            (runs.requests(&filter)?, runs.now().moment)
        }
        // Without a store there are no times to compare with, so any clock will do.
        None => (Vec::new(), clock::now()),
    };
    let leases = leases(context, &entries)?;
    if context.json {
        let requests = entries.iter().map(|entry| RequestItem::new(entry, leases.as_ref(), now));
        print::json_text(&format!(r#"{{"requests":{}}}"#, print::json_list(requests)));
        return Ok(Exit::Done);
    }
    if entries.is_empty() {
        print::talk("no requests: put one into the queue with `lockkeeper submit -- CMD`");
        return Ok(Exit::Done);
    }
    let names = names(context, leases.as_ref());
    let last_line = |run: &Run| runs.as_ref().filter(|_| has_failed(run))?.last_line(run);
    let rows = entries.iter().map(|entry| {
        let request = &entry.request.request;
        let latest = entry.latest.as_ref();
        let last_line = latest.and_then(last_line).map(|line| format!(": {}", table::plain(&line)));
        vec![
            table::plain(short_id(request.id.as_str())),
            request_status(entry.request.status),
            latest.map_or_else(|| "-".to_owned(), |run| age(run, now)),
            request.priority.get().to_string(),
            table::cut(&table::plain(&request.title), 40),
            latest.map_or_else(String::new, |run| {
                names.in_text(&why(run, request, entry.blocked.as_ref(), leases.as_ref(), now))
            }) + &last_line.unwrap_or_default(),
        ]
    });
    let heading = ["REQUEST", "STATUS", "FOR", "PRIORITY", "TITLE", "WHY"];
    print::out(&table::fit_terminal(&table::list(&heading, &rows.collect::<Vec<_>>())));
    Ok(Exit::Done)
}

fn names(context: &Context, leases: Option<&Listing>) -> OwnerNames {
    leases.map(|leases| OwnerNames::of(leases, &context.location.root)).unwrap_or_default()
}

fn leases(context: &Context, entries: &[RequestEntry]) -> Result<Option<Listing>, Report> {
    let runs = entries.iter().filter_map(|entry| Some((entry.latest.as_ref()?, &entry.request.request)));
    leases_for(context, runs)
}

fn show(context: &Context, id: &str) -> Result<Exit, Report> {
    let (runs, entry) = find(context, id)?;
    print_one(context, &runs, &entry)
}

fn set_priority(context: &Context, args: &PriorityArgs) -> Result<Exit, Report> {
    let priority: Priority = args.priority.parse()?;
    let (runs, entry) = find(context, &args.request)?;
    let id = &entry.request.request.id;
    runs.set_priority(id, priority)?;
    print_one(context, &runs, &runs.request(id)?)
}

/// Finds a request by its id, or by a unique part of its id or of the id of a run.
fn find(context: &Context, id: &str) -> Result<(Runs, RequestEntry), Report> {
    let id: RequestId = id.parse()?;
    let runs = context.existing_runs()?.ok_or_else(|| RunError::NoRequest(id.clone()))?;
    runs.expire()?;
    let entry = match runs.request(&id) {
        Err(no_request @ RunError::NoRequest(_)) => match runs.find(id.as_str()) {
            Ok(run) => runs.request(&run.request)?,
            Err(ambiguous @ RunError::Ambiguous { .. }) => return Err(ambiguous.into()),
            Err(_) => return Err(no_request.into()),
        },
        found => found?,
    };
    Ok((runs, entry))
}

fn print_one(context: &Context, runs: &Runs, entry: &RequestEntry) -> Result<Exit, Report> {
    let leases = leases(context, std::slice::from_ref(entry))?;
    let now = runs.now().moment;
    if context.json {
        print::json(&json!({ "request": RequestItem::new(entry, leases.as_ref(), now) }));
    } else {
        print::out(&names(context, leases.as_ref()).in_text(&as_text(entry, leases.as_ref(), now)));
    }
    Ok(Exit::Done)
}

fn as_text(entry: &RequestEntry, leases: Option<&Listing>, now: Moment) -> String {
    let request = &entry.request.request;
    let mut lines = vec![
        ("request", table::plain(request.id.as_str())),
        ("title", table::plain(&request.title)),
        ("status", request_status(entry.request.status)),
    ];
    if let Some(run) = &entry.latest {
        lines.push(("run", format!("{} {}", run.id, super::runs::rows::status(run.status()))));
        let why = why(run, request, entry.blocked.as_ref(), leases, now);
        lines.extend(Some(why).filter(|why| !why.is_empty()).map(|why| ("why", why)));
    }
    lines.push(("command", table::plain(&shown_command_line(&request.command))));
    lines.push(("folder", table::plain(&request.dir)));
    let join = |words: Vec<String>| words.join(", ");
    let held: Vec<String> = request.resources().iter().map(|held| held.target.to_string()).collect();
    if !held.is_empty() {
        let how = if request.shared { " (shared)" } else { "" };
        lines.push(("holds", format!("{}{how}", join(held))));
    }
    if !request.needs.is_empty() {
        lines.push(("needs", join(request.needs.iter().map(ToString::to_string).collect())));
    }
    if !request.after.is_empty() {
        lines.push(("after", join(request.after.iter().map(ToString::to_string).collect())));
    }
    lines.push(("priority", request.priority.get().to_string()));
    lines.extend(request.queue_timeout.map(|span| ("queue timeout", print::span(span))));
    lines.extend(request.timeout.map(|span| ("timeout", print::span(span))));
    if request.retry.limit > 0 {
        let (first, longest) = (print::span(request.retry.base), print::span(request.retry.longest));
        lines.push(("retries", format!("{}, after {first} to {longest}", request.retry.limit)));
    }
    lines.extend(request.key.as_ref().map(|key| ("key", table::plain(key))));
    lines.push(("created", time(entry.request.created_at)));
    for (name, value) in &request.env {
        lines.push(("env", table::plain(&format!("{name}={}", secret::shown(name, value)))));
    }
    lines.iter().map(|(what, text)| format!("{what:<14}{text}\n")).collect()
}
