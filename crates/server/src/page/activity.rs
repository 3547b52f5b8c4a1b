//! Activity page: the latest runs and events.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use lockkeeper_engine::runs::{RunEntry, RunFilter, StoredEvent};
use lockkeeper_platform::wall_clock::WallTime;

use super::request_row::{Short, reason};
use super::status::{Badge, of_run};
use super::texts::Texts;
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
            badge: of_run(run.status(), texts),
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
}

impl EventRow {
    pub(super) fn new(event: &StoredEvent) -> Self {
        Self {
            at: WallTime::from_micros(event.at).to_string(),
            millis: event.at.div_euclid(1_000),
            run: Short::new(event.id.run.as_str()),
            request: event.request.clone(),
            kind: event.kind.clone(),
            to: event.to.clone(),
            message: event.message.clone().or_else(|| event.reason.clone()),
        }
    }
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
        events: events.iter().rev().map(EventRow::new).collect(),
        layout: layout.at("/runs"),
    };
    render(&page)
}
