//! A request in a list: its state, what is known of it, why it waits or failed, and what a person can do.

use std::collections::HashMap;

use lockkeeper_core::id::{LeaseId, RequestId};
use lockkeeper_core::request::{Request, RequestStatus};
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
/// How many leases that a run waits for are named.
const MAX_HELD: usize = 20;

/// A row.
pub(super) struct Row {
    pub(super) id: String,
    /// Whether a user chose the id. Then it is shown: commands take it.
    pub(super) is_id_chosen: bool,
    pub(super) title: String,
    pub(super) badge: Badge,
    pub(super) locked: bool,
    /// Its place in the queue, from 1.
    pub(super) place: Option<u64>,
    pub(super) run: Option<Short>,
    pub(super) facts: Vec<String>,
    pub(super) holds: Vec<String>,
    pub(super) why: Option<Why>,
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
    pub(super) yes: &'static str,
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
        Some(Self { title: fill(texts.cancel_title, &[("title", title)]), means, yes: texts.cancel_yes, no })
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

/// Why a request is in its state: a sentence, with links between its beginning and its end.
pub(super) struct Why {
    pub(super) before: String,
    pub(super) links: Vec<Link>,
    pub(super) after: &'static str,
}

/// A link with a short text and a whole one.
pub(super) struct Link {
    pub(super) href: String,
    pub(super) short: String,
    pub(super) whole: String,
}

impl Why {
    fn plain(text: String) -> Self {
        Self { before: text, links: Vec::new(), after: "" }
    }
}

impl Link {
    /// A link to a request.
    pub(super) fn to_request(id: &RequestId) -> Self {
        let short = if is_chosen(id) { id.to_string() } else { Short::new(id.as_str()).short };
        Self { href: format!("/requests/{id}"), short, whole: id.to_string() }
    }
}

/// Whether a user chose the id of a request.
fn is_chosen(id: &RequestId) -> bool {
    short_id(id.as_str()) == id.as_str()
}

/// The runs that hold leases, with their titles: who waits for such a lease gets a link to its run.
pub(super) fn runs_by_lease<'r>(
    runs: impl Iterator<Item = (&'r Run, &'r Request)>,
) -> HashMap<LeaseId, (String, String)> {
    let held = |(run, request): (&Run, &Request)| {
        Some((run.lease()?.0, (run.id.to_string(), request.title.clone())))
    };
    runs.filter_map(held).collect()
}

impl Rows<'_> {
    pub(super) fn row(&self, entry: &RequestEntry, last_line: Option<&str>) -> Row {
        let (request, status, run) = (&entry.request.request, entry.request.status, entry.latest.as_ref());
        let held = (status == RequestStatus::Queued).then(|| self.held(request).next()).flatten();
        let waits = held.is_some();
        let why = held.or_else(|| self.why(entry, last_line));
        let took = run.and_then(|run| Some(run.completed_at()?.moment.since(run.started_at()?.moment)));
        let place = match entry.blocked {
            Some(Blocked::Position(ahead)) => Some(ahead + 1),
            _ => None,
        };
        let holds = request.resources().into_iter().map(|resource| resource.target.to_string());
        Row {
            id: request.id.to_string(),
            is_id_chosen: is_chosen(&request.id),
            title: request.title.clone(),
            badge: of_request(status, self.texts),
            locked: status == RequestStatus::Running,
            place: place.filter(|_| status == RequestStatus::Queued),
            run: run.map(|run| Short::new(run.id.as_str())),
            facts: self.facts(entry),
            holds: holds.filter(|_| status == RequestStatus::Running).collect(),
            why,
            since: run.map(|run| self.times.since(last_change(run))),
            took: took.map(format_span),
            can_run: status != RequestStatus::Running,
            has_output: run.is_some_and(|run| run.started_at().is_some()),
            cancel: run.and_then(|run| Cancel::of(run.status(), &request.title, self.texts)),
            answers: status == RequestStatus::NeedsInput,
            waits,
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
            let behind = self
                .listing
                .waiters
                .iter()
                .filter(|waiter| !waiter.verdict.is_free())
                .filter(|waiter| waiter.blockers.iter().any(waits))
                .count();
            if behind > 0 {
                facts.push(fill(texts.waits_behind, &[("n", &behind.to_string())]));
            }
        }
        facts
    }

    /// Why it waits, failed or asks, in one sentence.
    fn why(&self, entry: &RequestEntry, last_line: Option<&str>) -> Option<Why> {
        match &entry.blocked {
            Some(blocked) => Some(self.blocked(blocked)),
            None => reason(entry.latest.as_ref()?, last_line, self.texts).map(Why::plain),
        }
    }

    /// All reasons for which a run has not started.
    pub(super) fn whys(&self, request: &Request, blocked: &Blocked) -> Vec<Why> {
        self.held(request).take(MAX_HELD).chain([self.blocked(blocked)]).collect()
    }

    /// The leases of others that a request waits for.
    fn held(&self, request: &Request) -> impl Iterator<Item = Why> {
        self.listing.conflicting_leases(&request.resources()).into_iter().map(|found| {
            let lease = &found.holder.lease;
            let span = self.times.since(lease.acquired_at).text;
            // People know a run by its title.
            let (owner, link) = match self.runs.get(&lease.id) {
                Some((run, title)) => {
                    let Short { short, whole } = Short::new(run);
                    (title.clone(), Link { href: format!("/runs/{run}"), short, whole })
                }
                None => {
                    let id = lease.id.to_string();
                    let href = format!("/locks#lease-{id}");
                    (self.names.of_owner(&lease.claim.owner), Link { href, short: id.clone(), whole: id })
                }
            };
            let values = [("resource", &*found.witness), ("owner", &*owner), ("span", &*span)];
            let before = fill(self.texts.why_held, &values) + " ";
            Why { before, links: vec![link], after: "" }
        })
    }

    fn blocked(&self, blocked: &Blocked) -> Why {
        let texts = self.texts;
        Why::plain(match blocked {
            Blocked::Dependencies { unmet, failed } => {
                let (text, requests) =
                    if failed.is_empty() { (texts.why_after, unmet) } else { (texts.why_never, failed) };
                let (before, after) = text.split_once("{requests}").unwrap_or((text, ""));
                let links = requests.iter().map(Link::to_request).collect();
                return Why { before: before.to_owned(), links, after };
            }
            Blocked::Retry(at) => fill(texts.why_retry, &[("span", &self.times.until(*at).text)]),
            Blocked::Position(0) => texts.why_next.to_owned(),
            Blocked::Position(ahead) => fill(texts.why_place, &[("n", &ahead.to_string())]),
            Blocked::Behind(ahead) => fill(texts.why_place_or_more, &[("n", &ahead.to_string())]),
            Blocked::NoWorker => texts.no_worker.to_owned(),
            Blocked::NoWorkerWith(labels) => {
                let labels: Vec<&str> = labels.iter().map(|label| label.as_str()).collect();
                fill(texts.no_worker_with, &[("labels", &labels.join(", "))])
            }
            Blocked::Unattended => texts.unattended.to_owned(),
            Blocked::OutOfReach(None) => texts.out_of_reach.to_owned(),
            Blocked::OutOfReach(Some(user)) => fill(texts.of_another_user, &[("user", &user.to_string())]),
            Blocked::TimeIsUp => texts.time_is_up.to_owned(),
        })
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
