//! Stages page: executions, files that can be planned, and open requests that conflict.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use lockkeeper_core::alert::{Counts, DOWNGRADE_SPAN, Limits, raise};
use lockkeeper_engine::report::Report;
use lockkeeper_engine::stages::overview::{Entry, ExecutionState};
use lockkeeper_platform::clock;
use lockkeeper_platform::wall_clock::WallTime;
use lockkeeper_stages::span_in_words;

use super::conflict_graph::{ConflictGraph, mode_tone, rule, tone};
use super::request_conflicts::request_conflicts;
use super::status::{Badge, of_execution, of_group};
use super::texts::Texts;
use super::times::{TimeFormat, TimePoint};
use super::{Layout, render};
use crate::api::stages::read_overview;
use crate::error::ApiError;
use crate::stages_files;
use crate::state::AppState;

/// How many executions are shown. The API has all of them.
const MAX_ROWS: usize = 50;

#[derive(Template)]
#[template(path = "stages.html")]
struct Page {
    layout: Layout,
    now: i64,
    alert: bool,
    rows: Vec<Row>,
    has_more: bool,
    files: Vec<String>,
    requests: Option<ConflictGraph>,
}

struct Row {
    id: String,
    phase: String,
    file: String,
    mode: Option<String>,
    badge: Badge,
    groups: Vec<(String, Badge)>,
    started: TimePoint,
    took: Option<String>,
    speed_up: Option<String>,
}

pub(super) async fn page(State(state): State<AppState>, layout: Layout) -> Result<Response, ApiError> {
    render(&state.blocking(move |state| build_page(state, layout)).await?)
}

fn build_page(state: &AppState, layout: Layout) -> Result<Page, Report> {
    let (overview, _) = read_overview(state)?;
    let (texts, times) = (layout.texts, TimeFormat::new(clock::now()));
    let downgrades = overview.downgrades_since(WallTime::now().before(DOWNGRADE_SPAN));
    let counts = Counts { downgrades, ..Counts::default() };
    let entries = overview.entries.iter().take(MAX_ROWS);
    let files = overview.entries.iter().map(|entry| entry.execution.file.as_str());
    Ok(Page {
        now: times.now(),
        alert: !raise(&counts, &Limits::default()).is_empty(),
        rows: entries.map(|entry| Row::new(entry, state, texts, &times)).collect(),
        has_more: overview.entries.len() > MAX_ROWS,
        files: stages_files::known_files(state, files),
        requests: request_conflicts(state, texts)?,
        layout: layout.at("/stages"),
    })
}

impl Row {
    fn new(entry: &Entry, state: &AppState, texts: &'static Texts, times: &TimeFormat) -> Self {
        let (execution, session) = (&entry.execution, &entry.session);
        let is_running = entry.state == ExecutionState::Running;
        let groups = execution.groups.iter().map(|id| {
            let bar = session.groups.iter().rev().find(|bar| bar.group == *id);
            let status = bar.map_or("WAITING", |bar| match bar.ended_at {
                None if !is_running => "INTERRUPTED",
                Some(_) | None => bar.status.as_str(),
            });
            (id.clone(), of_group(status, texts))
        });
        Self {
            id: execution.id.clone(),
            phase: execution.phase.clone(),
            file: stages_files::shown(state, execution.file.as_ref()),
            mode: session.mode.clone(),
            badge: of_execution(entry.state, texts),
            groups: groups.collect(),
            started: times.since_time(WallTime::from_micros(execution.started_at)),
            took: session.wall.filter(|_| !is_running).map(span_in_words),
            speed_up: session.speed_up().filter(|_| !is_running).map(|times| format!("{times:.1}×")),
        }
    }
}
