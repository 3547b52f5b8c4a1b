//! Activity page: the latest runs and events.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use lockkeeper_core::run::{EventKind, Reason, Status};
use lockkeeper_engine::runs::{RunEntry, RunFilter, StoredEvent};
use lockkeeper_platform::wall_clock::WallTime;

use super::request_row::{Short, reason, reason_words};
use super::status::{Badge, of_run, of_run_of};
use super::texts::{Texts, fill};
use super::times::{TimeFormat, TimePoint};
use super::{Layout, render};
use crate::error::ApiError;
use crate::state::AppState;

/// How many runs and events are shown.
const MAX_ROWS: usize = 100;

#[derive(Template)]
#[template(path = "activity.html")]
struct Page {
    layout: Layout,
    now: i64,
    runs: Vec<RunRow>,
    events: Vec<EventRow>,
}

/// A row of the table of runs.
pub(super) struct RunRow {
    pub(super) id: Short,
    pub(super) request: String,
    pub(super) title: String,
    pub(super) badge: Badge,
    pub(super) attempt: u32,
    pub(super) queued: TimePoint,
    pub(super) took: Option<String>,
    pub(super) reason: Option<String>,
}

impl RunRow {
    pub(super) fn new(entry: &RunEntry, texts: &'static Texts, times: &TimeFormat) -> Self {
        let run = &entry.run;
        let took = run.completed_at().zip(run.started_at());
        Self {
            id: Short::new(run.id.as_str()),
            request: run.request.to_string(),
            title: entry.request.request.title.clone(),
            badge: of_run_of(run, &entry.request, texts),
            attempt: run.attempt(),
            queued: times.since(run.queued_at.moment),
            took: took.map(|(end, start)| lockkeeper_core::time::format_span(end.moment.since(start.moment))),
            reason: reason(run, None, texts),
        }
    }
}

/// A row of the table of events.
pub(super) struct EventRow {
    /// In UTC.
    pub(super) at: String,
    /// In milliseconds since 1970.
    pub(super) millis: i64,
    pub(super) run: Short,
    pub(super) request: String,
    pub(super) kind: String,
    pub(super) to: String,
    pub(super) message: Option<String>,
    /// Whether the message is what another part wrote, in whatever language.
    pub(super) is_reported: bool,
}

impl EventRow {
    /// The row in a language. Words that a newer program wrote stay as they are.
    pub(super) fn new(event: &StoredEvent, texts: &'static Texts) -> Self {
        let kind = EventKind::ALL.iter().position(|kind| kind.as_str() == event.kind);
        let status = event.to.parse().ok().map(|status: Status| of_run(status, texts).text.to_owned());
        let in_words = |code: &String| {
            let reason = Reason::ALL.into_iter().find(|reason| reason.as_str() == code);
            match reason {
                // The status says it, and the code itself is not part of an event.
                Some(Reason::ExitCode | Reason::Signal) => None,
                Some(reason) => Some(reason_words(reason, None, texts)),
                None => Some(code.clone()),
            }
        };
        let retry = event.message.as_ref().and_then(|message| retry_in(message, texts));
        Self {
            at: WallTime::from_micros(event.at).to_string(),
            millis: event.at.div_euclid(1_000),
            run: Short::new(event.id.run.as_str()),
            request: event.request.clone(),
            kind: kind.map_or_else(|| event.kind.clone(), |kind| texts.event_kinds[kind].to_owned()),
            to: status.unwrap_or_else(|| event.to.clone()),
            is_reported: event.message.is_some() && retry.is_none(),
            message: retry
                .or_else(|| event.message.clone())
                .or_else(|| event.reason.as_ref().and_then(in_words)),
        }
    }
}

/// `attempt 1 of 3: the next in 2s`, as the rules write it into an event, in the words of the page; none for other messages.
fn retry_in(message: &str, texts: &Texts) -> Option<String> {
    let (attempt, span) = message.strip_prefix("attempt ")?.split_once(": the next in ")?;
    let (number, most) = attempt.split_once(" of ")?;
    let attempt = fill(texts.attempt_of, &[("n", number), ("most", most)]);
    let next = fill(texts.why_retry, &[("span", span)]);
    Some(fill(texts.last_output, &[("reason", &attempt), ("line", &next)]))
}

pub(super) async fn page(State(state): State<AppState>, layout: Layout) -> Result<Response, ApiError> {
    let (runs, events) = state
        .blocking(|state| {
            let runs = state.runs().entries(&RunFilter { limit: MAX_ROWS, ..RunFilter::default() })?;
            Ok((runs, state.runs().latest_events(MAX_ROWS)?))
        })
        .await?;
    let (texts, times) = (layout.texts, TimeFormat::new(state.runs().now().moment));
    let page = Page {
        now: times.now(),
        runs: runs.iter().map(|entry| RunRow::new(entry, texts, &times)).collect(),
        events: events.iter().rev().map(|event| EventRow::new(event, texts)).collect(),
        layout: layout.at("/runs"),
    };
    render(&page)
}
