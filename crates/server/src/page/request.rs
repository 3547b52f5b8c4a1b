//! Page of one request: its fields and its runs.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use lockkeeper_core::id::RequestId;
use lockkeeper_core::request::RequestStatus;
use lockkeeper_engine::report::Report;
use lockkeeper_engine::runs::RunFilter;
use lockkeeper_engine::stages::execution_of;
use lockkeeper_engine::views::shown_command_line;

use super::activity::RunRow;
use super::status::{Badge, of_request};
use super::times::TimeFormat;
use super::{Layout, render};
use crate::error::ApiError;
use crate::extract::Id;
use crate::state::AppState;

/// How many runs are shown.
const MAX_ROWS: usize = 100;

#[derive(Template)]
#[template(path = "request.html")]
struct Page {
    layout: Layout,
    now: i64,
    id: String,
    title: String,
    badge: Badge,
    locked: bool,
    command: String,
    dir: String,
    holds: Vec<String>,
    after: Vec<String>,
    priority: i32,
    /// The execution of stages that it belongs to.
    execution: Option<String>,
    runs: Vec<RunRow>,
}

pub(super) async fn page(
    State(state): State<AppState>,
    Id(id): Id,
    layout: Layout,
) -> Result<Response, ApiError> {
    let id: RequestId = id.parse().map_err(Report::from)?;
    let (entry, runs) = state
        .blocking(move |state| {
            let entry = state.runs().request(&id)?;
            let filter = RunFilter { request: Some(id), limit: MAX_ROWS, ..RunFilter::default() };
            Ok((entry, state.runs().entries(&filter)?))
        })
        .await?;
    let (texts, times) = (layout.texts, TimeFormat::new(state.runs().now().moment));
    let request = &entry.request.request;
    let page = Page {
        now: times.now(),
        id: request.id.to_string(),
        title: request.title.clone(),
        badge: of_request(entry.request.status, texts),
        locked: entry.request.status == RequestStatus::Running,
        command: shown_command_line(&request.command),
        dir: request.dir.clone(),
        holds: request.resources().iter().map(|resource| resource.target.to_string()).collect(),
        after: request.after.iter().map(ToString::to_string).collect(),
        priority: request.priority.get(),
        execution: request.conductor().and_then(execution_of),
        runs: runs.iter().map(|entry| RunRow::new(entry, texts, &times)).collect(),
        layout: layout.at("/"),
    };
    render(&page)
}
