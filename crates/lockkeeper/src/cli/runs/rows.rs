//! Columns of requests and runs for people: status, age, and why a run has not started.

use anstyle::{AnsiColor, Style};
use lockkeeper_core::request::{Request, RequestStatus};
use lockkeeper_core::run::{Ending, Reason, Run, Status};
use lockkeeper_core::time::Moment;
use lockkeeper_engine::Listing;
use lockkeeper_engine::messages::{Language, Phrases};
use lockkeeper_engine::report::Report;
use lockkeeper_engine::runs::{Blocked, flags_for, never_starts, short_id};

use crate::cli::context::Context;
use crate::cli::{locks, print, table};

/// A run's status in its colour.
pub(in crate::cli) fn status(status: Status) -> String {
    let style = style(status);
    format!("{style}{status}{style:#}")
}

/// The colour of a status.
pub(in crate::cli) fn style(status: Status) -> Style {
    match status {
        Status::Queued => AnsiColor::Cyan.on_default(),
        Status::Running => AnsiColor::Blue.on_default().bold(),
        Status::Cancelling => AnsiColor::Yellow.on_default(),
        Status::Succeeded => AnsiColor::Green.on_default(),
        Status::Failed | Status::TimedOut => AnsiColor::Red.on_default(),
        Status::Rejected => AnsiColor::Magenta.on_default(),
        Status::Canceled => Style::new().dimmed(),
    }
}

/// A request's status in its colour.
pub(in crate::cli) fn request_status(status: RequestStatus) -> String {
    let style = match status {
        RequestStatus::Queued => AnsiColor::Cyan.on_default(),
        RequestStatus::Running => AnsiColor::Blue.on_default().bold(),
        RequestStatus::Done => AnsiColor::Green.on_default(),
        RequestStatus::NeedsInput => AnsiColor::Magenta.on_default().bold(),
        RequestStatus::Failed => AnsiColor::Red.on_default(),
        RequestStatus::Canceled => Style::new().dimmed(),
    };
    format!("{style}{status}{style:#}")
}

/// The current leases; none when no queued run needs a lease.
pub(in crate::cli) fn leases_for<'r>(
    context: &Context,
    mut entries: impl Iterator<Item = (&'r Run, &'r Request)>,
) -> Result<Option<Listing>, Report> {
    let asks = entries.any(|(run, request)| run.status() == Status::Queued && request.needs_lease());
    asks.then(|| locks::Snapshot::read(context).map(|board| board.listing)).transpose()
}

/// Why a run has not started or did not succeed, in one line; empty when there is no reason.
pub(in crate::cli) fn why(
    run: &Run,
    request: &Request,
    blocked: Option<&Blocked>,
    leases: Option<&Listing>,
    now: Moment,
) -> String {
    let mut parts = Vec::new();
    match blocked {
        Some(Blocked::Dependencies { unmet, failed }) if failed.is_empty() => {
            let names: Vec<&str> = unmet.iter().map(|request| request.as_str()).collect();
            parts.push(format!("after {}", names.join(", ")));
        }
        // Tables are English.
        Some(Blocked::Dependencies { failed, .. }) => {
            parts.push(Phrases::load(Language::En).put(&never_starts(failed)));
        }
        Some(Blocked::Retry(at)) => {
            parts.push(format!("attempt {} in {}", run.attempt() + 1, print::span(at.since(now))));
        }
        Some(Blocked::Position(0)) => parts.push("next".to_owned()),
        Some(Blocked::Position(ahead)) => parts.push(format!("{ahead} before it")),
        Some(Blocked::Behind(ahead)) => parts.push(format!("{ahead} or more before it")),
        Some(Blocked::NoWorker) => {
            parts.push(format!("nobody works: start `lockkeeper work{}`", flags_for(request)));
        }
        Some(Blocked::NoWorkerWith(labels)) => {
            let labels: Vec<&str> = labels.iter().map(|label| label.as_str()).collect();
            parts.push(format!("no worker with label {}", labels.join(", ")));
        }
        Some(Blocked::Unattended) => {
            parts.push(format!("its worker is gone: `lockkeeper run wait {}` looks after it", typed(run)));
        }
        Some(Blocked::OutOfReach(Some(user))) => parts.push(format!(
            "its worker is gone, and its command belongs to user {user}: `lockkeeper run wait {}` as that user or root looks after \
             it",
            typed(run)
        )),
        Some(Blocked::OutOfReach(None)) => parts.push(format!(
            "cannot be judged from here: its worker is gone, its processes are in another pid namespace, or the file `life` was \
             removed; `lockkeeper run wait {id}` there looks after it, and `lockkeeper run mark {id} failed` ends it if its \
             command has ended",
            id = typed(run)
        )),
        Some(Blocked::TimeIsUp) => parts.push("its time is up, its processes are being ended".to_owned()),
        None => {}
    }
    if let (Status::Queued, Some(leases)) = (run.status(), leases) {
        parts.extend(leases.conflicting_leases(&request.resources()).iter().map(|found| {
            let lease = &found.holder.lease;
            let held = print::span(leases.now.since(lease.acquired_at));
            format!("`{}` is held by {} for {held}", found.witness, lease.claim.owner)
        }));
    }
    if let Some(reason) = run.reason() {
        parts.push(reason_words(reason, run.ending()));
    }
    parts.extend(run.message().map(ToOwned::to_owned));
    table::plain(&parts.join("; "))
}

/// Why a run ended: the exit code or the signal of its command in words, else the reason code.
pub(in crate::cli) fn reason_words(reason: Reason, ending: Option<Ending>) -> String {
    match (reason, ending) {
        (Reason::ExitCode, Some(Ending::Exited(code))) => format!("exit code {code}"),
        (Reason::Signal, Some(Ending::Signaled(signal))) => format!("killed by signal {signal}"),
        (Reason::NeedsInput, _) => "needs input".to_owned(),
        (reason, ending) => {
            ending.map_or_else(|| reason.to_string(), |ending| format!("{reason} {}", ending.exit_code()))
        }
    }
}

/// What a person types to name a run: the id of its request if somebody chose that, else the last part of its own id.
pub(in crate::cli) fn typed(run: &Run) -> String {
    let request = run.request.as_str();
    let is_chosen = short_id(request) == request;
    table::plain(if is_chosen { request } else { short_id(run.id.as_str()) })
}

/// The run for a line that names it once: the last part of its id, and the id of its request if somebody chose that.
pub(in crate::cli) fn named(run: &Run) -> String {
    let (short, typed) = (short_id(run.id.as_str()), typed(run));
    if typed == short { typed } else { format!("{short} {typed}") }
}

/// Whether a run ended badly: then its last line of output is shown.
pub(in crate::cli) fn has_failed(run: &Run) -> bool {
    matches!(run.status(), Status::Failed | Status::TimedOut)
}

/// How long a run has been in its status, or how long it took.
pub(in crate::cli) fn age(run: &Run, now: Moment) -> String {
    let from = run.started_at().filter(|_| run.status() != Status::Queued).unwrap_or(run.queued_at);
    match run.completed_at() {
        // Moments of two boots cannot be compared, so the wall clock is used.
        Some(end) => {
            let micros = end.unix_micros.saturating_sub(from.unix_micros);
            print::span(std::time::Duration::from_micros(u64::try_from(micros).unwrap_or(0)))
        }
        None => print::span(now.since(from.moment)),
    }
}
