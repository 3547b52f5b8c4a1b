//! A request in a list: its state, what is known of it, why it waits or failed, and what a person can do.

use std::collections::HashMap;

use lockkeeper_core::id::LeaseId;
use lockkeeper_core::request::RequestStatus;
use lockkeeper_core::run::{Ending, Reason, Run, Status};
use lockkeeper_core::time::{Moment, format_span};
use lockkeeper_engine::runs::{Blocked, RequestEntry, short_id};
use lockkeeper_engine::stages::execution_of;
use lockkeeper_engine::{Listing, OwnerNames};

use super::status::{Badge, of_request};
use super::texts::{Texts, fill};
use super::times::{TimeFormat, TimePoint};

/// How many letters of an id lists show.
const SHORT: usize = 7;

/// A row.
pub(super) struct Row {
    pub(super) id: String,
    pub(super) title: String,
    pub(super) badge: Badge,
    pub(super) locked: bool,
    /// Its place in the queue, from 1.
    pub(super) place: Option<u64>,
    pub(super) run: Option<Short>,
    pub(super) facts: Vec<String>,
    pub(super) holds: Vec<String>,
    pub(super) why: Option<String>,
    /// A link to the lease that it waits for, or to the run that holds that lease: address and text.
    pub(super) link: Option<(String, String)>,
    pub(super) since: Option<TimePoint>,
    pub(super) took: Option<String>,
    pub(super) can_run: bool,
    pub(super) has_output: bool,
    pub(super) cancel: Option<Cancel>,
    pub(super) answers: bool,
    /// Whether it waits for a lease.
    pub(super) waits: bool,
    /// The execution of stages that it belongs to.
    pub(super) execution: Option<String>,
    order: (i64, u128),
}

/// A short id with the whole one.
pub(super) struct Short {
    pub(super) short: String,
    pub(super) whole: String,
}

/// The texts of the dialog before a run is canceled.
pub(super) struct Cancel {
    pub(super) title: String,
    pub(super) means: &'static str,
    pub(super) yes: String,
    pub(super) no: &'static str,
}

impl Short {
    pub(super) fn new(whole: &str) -> Self {
        Self { short: short_id(whole).chars().take(SHORT).collect(), whole: whole.to_owned() }
    }
}

impl Cancel {
    /// The dialog for a run of this status; none if it cannot be canceled.
    pub(super) fn of(status: Status, title: &str, texts: &'static Texts) -> Option<Self> {
        let (means, no) = match status {
            Status::Queued => (texts.cancel_queued_means, texts.keep_waiting),
            Status::Running | Status::Cancelling => (texts.cancel_running_means, texts.keep_running),
            Status::Succeeded | Status::Failed | Status::Canceled | Status::TimedOut | Status::Rejected => {
                return None;
            }
        };
        let named = |sentence| fill(sentence, &[("title", title)]);
        Some(Self { title: named(texts.cancel_title), means, yes: named(texts.end_it), no })
    }
}

/// What rows are made from.
pub(super) struct Rows<'r> {
    pub(super) listing: &'r Listing,
    pub(super) names: &'r OwnerNames,
    /// The runs that hold leases: id and title.
    pub(super) runs: HashMap<LeaseId, (String, String)>,
    pub(super) texts: &'static Texts,
    pub(super) times: &'r TimeFormat,
}

/// Why a request is in its state.
#[derive(Default)]
struct Why {
    text: Option<String>,
    link: Option<(String, String)>,
    waits: bool,
}

impl Rows<'_> {
    pub(super) fn row(&self, entry: &RequestEntry, last_line: Option<&str>) -> Row {
        let (request, status, run) = (&entry.request.request, entry.request.status, entry.latest.as_ref());
        let why = self.why(entry, last_line);
        let took = run.and_then(|run| Some(run.completed_at()?.moment.since(run.started_at()?.moment)));
        let place = match entry.blocked {
            Some(Blocked::Position(ahead)) => Some(ahead + 1),
            _ => None,
        };
        let holds = request.resources().into_iter().map(|resource| resource.target.to_string());
        Row {
            id: request.id.to_string(),
            title: request.title.clone(),
            badge: of_request(status, self.texts),
            locked: status == RequestStatus::Running,
            place: place.filter(|_| status == RequestStatus::Queued),
            run: run.map(|run| Short::new(run.id.as_str())),
            facts: self.facts(entry),
            holds: holds.filter(|_| status == RequestStatus::Running).collect(),
            why: why.text,
            link: why.link,
            since: run.map(|run| self.times.since(last_change(run))),
            took: took.map(format_span),
            can_run: status != RequestStatus::Running,
            has_output: run.is_some_and(|run| run.started_at().is_some()),
            cancel: run.and_then(|run| Cancel::of(run.status(), &request.title, self.texts)),
            answers: status == RequestStatus::NeedsInput,
            waits: why.waits,
            execution: request.conductor().and_then(execution_of),
            order: (entry.request.created_at, took.map_or(0, |took| took.as_millis())),
        }
    }

    /// What is known of it: its attempt, and whether its process lives.
    fn facts(&self, entry: &RequestEntry) -> Vec<String> {
        let (texts, mut facts) = (self.texts, Vec::new());
        let Some(run) = &entry.latest else { return facts };
        let most = entry.request.request.retry.limit + 1;
        if most > 1 && run.started_at().is_some() {
            let values = [("n", &*run.attempt().to_string()), ("most", &*most.to_string())];
            facts.push(fill(texts.attempt_of, &values));
        }
        if matches!(run.status(), Status::Running | Status::Cancelling) && entry.blocked.is_none() {
            let command = run.process().and_then(|process| process.command);
            facts.push(match command {
                Some(command) => fill(texts.process_alive, &[("pid", &command.pid.to_string())]),
                None => texts.worker_alive.to_owned(),
            });
        }
        if let Some((lease, _)) = run.lease().filter(|_| !run.status().is_terminal()) {
            let waits = |blocker: &lockkeeper_core::waiting::Blocker| {
                blocker.leases.iter().any(|found| found.record.id == lease)
            };
            let behind =
                self.listing.waiters.iter().filter(|waiter| waiter.blockers.iter().any(waits)).count();
            if behind > 0 {
                facts.push(fill(texts.waits_behind, &[("n", &behind.to_string())]));
            }
        }
        facts
    }

    /// Why it waits, failed or asks, in one sentence.
    fn why(&self, entry: &RequestEntry, last_line: Option<&str>) -> Why {
        let texts = self.texts;
        if entry.request.status == RequestStatus::Queued
            && let Some(found) = self.listing.conflicting_leases(&entry.request.request.resources()).first()
        {
            let lease = &found.holder.lease;
            let span = self.times.since(lease.acquired_at).text;
            // People know a run by its title.
            let (owner, link) = match self.runs.get(&lease.id) {
                Some((run, title)) => (title.clone(), (format!("/runs/{run}"), Short::new(run).short)),
                None => (
                    self.names.of_owner(&lease.claim.owner),
                    (format!("/locks#lease-{}", lease.id), lease.id.to_string()),
                ),
            };
            let values = [("resource", &*found.witness), ("owner", &*owner), ("span", &*span)];
            return Why { text: Some(fill(texts.why_held, &values)), link: Some(link), waits: true };
        }
        let text = match &entry.blocked {
            Some(Blocked::Dependencies { unmet, failed }) => {
                let (text, requests) =
                    if failed.is_empty() { (texts.why_after, unmet) } else { (texts.why_never, failed) };
                let names: Vec<String> = requests.iter().map(ToString::to_string).collect();
                Some(fill(text, &[("requests", &names.join(", "))]))
            }
            Some(Blocked::Retry(at)) => Some(fill(texts.why_retry, &[("span", &self.times.until(*at).text)])),
            Some(Blocked::Position(0)) => Some(texts.why_next.to_owned()),
            Some(Blocked::Position(ahead)) => Some(fill(texts.why_place, &[("n", &ahead.to_string())])),
            Some(Blocked::Behind(ahead)) => Some(fill(texts.why_place_or_more, &[("n", &ahead.to_string())])),
            Some(Blocked::NoWorker) => Some(texts.no_worker.to_owned()),
            Some(Blocked::NoWorkerWith(labels)) => {
                let labels: Vec<&str> = labels.iter().map(|label| label.as_str()).collect();
                Some(fill(texts.no_worker_with, &[("labels", &labels.join(", "))]))
            }
            Some(Blocked::Unattended) => Some(texts.unattended.to_owned()),
            Some(Blocked::OutOfReach(None)) => Some(texts.out_of_reach.to_owned()),
            Some(Blocked::OutOfReach(Some(user))) => {
                Some(fill(texts.of_another_user, &[("user", &user.to_string())]))
            }
            Some(Blocked::TimeIsUp) => Some(texts.time_is_up.to_owned()),
            None => entry.latest.as_ref().and_then(|run| reason(run, last_line, texts)),
        };
        Why { text, ..Why::default() }
    }
}

/// Sorts rows of a list.
pub(super) fn sort(rows: &mut [Row], order: &str) {
    match order {
        "oldest" => rows.sort_by_key(|row| row.order.0),
        "title" => rows.sort_by_key(|row| row.title.to_lowercase()),
        "longest" => rows.sort_by_key(|row| std::cmp::Reverse(row.order.1)),
        _ => {}
    }
}

/// Why a run did not succeed, in a sentence, with the last line of its output.
pub(super) fn reason(run: &Run, last_line: Option<&str>, texts: &Texts) -> Option<String> {
    let code = run.reason()?;
    let sentence = reason_words(code, run.ending(), texts);
    match run.message().or(last_line) {
        Some(question) if code == Reason::NeedsInput => Some(question.to_owned()),
        Some(line) => Some(fill(texts.last_output, &[("reason", &sentence), ("line", line)])),
        None => Some(sentence),
    }
}

/// What a reason means.
pub(super) fn reason_words(reason: Reason, ending: Option<Ending>, texts: &Texts) -> String {
    match (reason, ending) {
        (Reason::ExitCode, Some(Ending::Exited(code))) => {
            fill(texts.why_exit, &[("code", &code.to_string())])
        }
        (Reason::Signal, Some(Ending::Signaled(signal))) => {
            fill(texts.why_signal, &[("signal", &signal.to_string())])
        }
        (Reason::NeedsInput, _) => texts.why_needs_input.to_owned(),
        (Reason::CommandNotStarted, _) => texts.why_not_started.to_owned(),
        (Reason::QueueTimeout, _) => texts.why_queue_timeout.to_owned(),
        (Reason::ExecutionTimeout, _) => texts.why_timeout.to_owned(),
        (Reason::UserCanceled, _) => texts.why_canceled.to_owned(),
        (Reason::Lost, _) => texts.why_lost.to_owned(),
        (Reason::WorkerSilent, _) => texts.why_silent.to_owned(),
        (Reason::LeaseLost, _) => texts.why_lease_lost.to_owned(),
        (Reason::QueueFull, _) => texts.why_queue_full.to_owned(),
        (Reason::Duplicate, _) => texts.why_duplicate.to_owned(),
        (Reason::ConflictAbort, _) => texts.why_conflict.to_owned(),
        (Reason::ExitCode | Reason::Signal, _) => texts.failed.to_owned(),
        (Reason::Marked, _) => texts.why_marked.to_owned(),
    }
}

/// When the status of a run last changed.
fn last_change(run: &Run) -> Moment {
    let stamp = match run.status() {
        Status::Queued => None,
        Status::Running | Status::Cancelling => run.started_at(),
        Status::Succeeded | Status::Failed | Status::Canceled | Status::TimedOut | Status::Rejected => {
            run.completed_at()
        }
    };
    stamp.unwrap_or(run.queued_at).moment
}
