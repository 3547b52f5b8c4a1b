//! Doctor page: every check, and what to do.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use lockkeeper_engine::doctor::{Check, Pass, Status};

use super::{Layout, render};
use crate::error::ApiError;
use crate::state::AppState;

#[derive(Template)]
#[template(path = "doctor.html")]
struct Page {
    layout: Layout,
    status: &'static str,
    tone: &'static str,
    checks: Vec<Row>,
}

struct Row {
    id: &'static str,
    status: &'static str,
    tone: &'static str,
    title: &'static str,
    detail: String,
    fix: Option<String>,
}

pub(super) async fn page(State(state): State<AppState>, layout: Layout) -> Result<Response, ApiError> {
    let diagnosis = state.blocking(|state| Ok(state.examine(Pass::Quick))).await?;
    let mut checks: Vec<&Check> = diagnosis.checks.iter().collect();
    // Failed checks first.
    checks.sort_by_key(|check| std::cmp::Reverse(check.status));
    let (status, tone) = badge(diagnosis.status());
    render(&Page {
        layout: layout.at("/doctor"),
        status,
        tone,
        checks: checks.into_iter().map(Row::new).collect(),
    })
}

impl Row {
    fn new(check: &Check) -> Self {
        let (status, tone) = badge(check.status);
        Self {
            id: check.id,
            status,
            tone,
            title: check.title,
            detail: check.detail.clone(),
            fix: check.fix.clone(),
        }
    }
}

const fn badge(status: Status) -> (&'static str, &'static str) {
    match status {
        Status::Pass => ("PASS", "good"),
        Status::Warn => ("WARN", "warn"),
        Status::Fail => ("FAIL", "bad"),
    }
}
