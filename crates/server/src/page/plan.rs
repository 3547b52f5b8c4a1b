//! Plan page: how the phases of a STAGES file would run now, and why.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use lockkeeper_engine::messages::Messages;
use lockkeeper_engine::stages::RefusedPhase;
use lockkeeper_stages::{PhasePlan, PlanView, span_in_words};

use super::conflict_graph::{ConflictGraph, mode_tone, rule, tone};
use super::texts::Texts;
use super::{Layout, render};
use crate::api::stages::{PlanQuery, Plans, plans};
use crate::error::ApiError;
use crate::extract::Params;
use crate::state::AppState;

#[derive(Template)]
#[template(path = "plan.html")]
struct Page {
    layout: Layout,
    file: String,
    phases: Vec<Phase>,
    refused: Vec<Refused>,
}

/// A phase that cannot be planned.
struct Refused {
    name: String,
    title: String,
    /// In English.
    detail: String,
}

struct Phase {
    name: String,
    mode: String,
    reason: String,
    /// How long it would take, and how long one by one; none when no group runs.
    about: Option<(String, String)>,
    conflicts: ConflictGraph,
}

pub(super) async fn page(
    State(state): State<AppState>,
    Params(query): Params<PlanQuery>,
    layout: Layout,
) -> Result<Response, ApiError> {
    let Plans { file, plans, refused } = state.blocking(move |state| plans(state, &query)).await?;
    let messages = Messages::load();
    let refused = refused.into_iter().map(|RefusedPhase { phase, report }| {
        let title = report.message_in(layout.language, &messages).map(|message| message.title.clone());
        Refused { name: phase, title: title.unwrap_or_default(), detail: report.to_string() }
    });
    let refused = refused.collect();
    let phases = plans.iter().enumerate().map(|(place, plan)| Phase::new(plan, place, layout.texts));
    render(&Page { phases: phases.collect(), refused, file: file.name, layout: layout.at("/stages") })
}

impl Phase {
    fn new(planned: &PhasePlan, place: usize, texts: &Texts) -> Self {
        let shape = PlanView::of(planned);
        let (length, work) = (planned.plan.length, planned.work());
        Self {
            about: (!shape.waves.is_empty()).then(|| (span_in_words(length), span_in_words(work))),
            conflicts: ConflictGraph::new(&shape, format!("phase-{}", place + 1), texts, &[]),
            name: shape.phase,
            mode: shape.mode,
            reason: shape.reason,
        }
    }
}
