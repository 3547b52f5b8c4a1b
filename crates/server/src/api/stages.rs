//! `/api/stages`: phases of groups that were executed, and how one would be.

use axum::Json;
use axum::extract::State;
use lockkeeper_core::alert::{Counts, DOWNGRADE_SPAN, Limits, raise};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::paging::{Paging, beyond};
use crate::error::{ApiError, ErrorView};
use crate::extract::{Id, Params};
use crate::stages_files;
use crate::state::AppState;
use lockkeeper_engine::Listing;
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_engine::stages::overview::{Detail, Entry, Overview, conflicts_logged};
use lockkeeper_engine::views::{AlertView, ExecutionView};
use lockkeeper_platform::load;
use lockkeeper_platform::wall_clock::WallTime;
use lockkeeper_stages::{Conditions, File, PhasePlan, PlanShape};

/// What was executed.
#[derive(Serialize, ToSchema)]
pub(crate) struct Executions {
    /// The latest first; each as `stages report` shows it.
    executions: Vec<ExecutionView>,
    /// The latest of all with its plan and its runs.
    latest: Option<ExecutionView>,
    /// The STAGES files of the project that are known.
    files: Vec<String>,
    /// How many conflicts the logs have.
    conflicts: usize,
    /// How often rules answered within an hour.
    downgrades_last_hour: usize,
    /// What deserves somebody's attention.
    alerts: Vec<AlertView>,
    /// Lines of the logs that are none.
    skipped_lines: u64,
    /// Where the next page begins.
    next: Option<String>,
}

/// Executions of phases, the latest first.
#[utoipa::path(get, path = "/api/stages", operation_id = "list_executions", tag = "stages", params(Paging), responses(
    (status = OK, description = "Executions", body = Executions),
    (status = BAD_REQUEST, description = "No such page", body = ErrorView),
    (status = NOT_FOUND, description = "`NO_SUCH_EXECUTION` to go on after", body = ErrorView),
))]
pub(crate) async fn list(
    State(state): State<AppState>,
    Params(paging): Params<Paging>,
) -> Result<Json<Executions>, ApiError> {
    let (limit, after) = (paging.limit()?, paging.after_id().map(str::to_owned));
    Ok(Json(state.blocking(move |state| listed(state, limit, after.as_deref())).await?))
}

fn listed(state: &AppState, limit: usize, after: Option<&str>) -> Result<Executions, Report> {
    let (overview, listing) = look(state)?;
    let hour_ago = WallTime::now().before(DOWNGRADE_SPAN);
    let counts = Counts { downgrades: overview.downgrades_since(hour_ago), ..Counts::default() };
    let from = match after {
        Some(after) => {
            let place = overview.entries.iter().position(|entry| entry.execution.id == after);
            place.ok_or_else(|| unknown(after))? + 1
        }
        None => 0,
    };
    let mut page: Vec<&Entry> = overview.entries.iter().skip(from).take(limit + 1).collect();
    let next = beyond(&mut page, limit, |entry| entry.execution.id.clone());
    let latest = overview.entries.first().map(|entry| Detail::of(entry.clone(), state.runs(), &listing));
    let latest = latest.transpose()?.as_ref().map(ExecutionView::whole);
    let named = |shape: ExecutionView| named(state, shape);
    let files = overview.entries.iter().map(|entry| entry.execution.file.as_str());
    Ok(Executions {
        executions: page.into_iter().map(ExecutionView::listed).map(named).collect(),
        latest: latest.map(named),
        files: stages_files::known_files(state, files),
        conflicts: conflicts_logged(&overview)?,
        downgrades_last_hour: counts.downgrades,
        alerts: raise(&counts, &Limits::default()).iter().map(AlertView::new).collect(),
        skipped_lines: overview.skipped(),
        next,
    })
}

/// One execution with its plan, conflicts and runs.
#[utoipa::path(get, path = "/api/stages/executions/{id}", operation_id = "show_execution", tag = "stages",
    params(("id" = String, Path, description = "The execution's id")),
    responses(
        (status = OK, description = "The execution", body = ExecutionView),
        (status = BAD_REQUEST, description = "Not text", body = ErrorView),
        (status = NOT_FOUND, description = "`NO_SUCH_EXECUTION`", body = ErrorView),
    )
)]
pub(crate) async fn show(State(state): State<AppState>, Id(id): Id) -> Result<Json<ExecutionView>, ApiError> {
    let shape =
        state.blocking(move |state| Ok(named(state, ExecutionView::whole(&detail(state, &id)?)))).await?;
    Ok(Json(shape))
}

/// Everything that was executed, and what is held at the same moment.
pub(crate) fn look(state: &AppState) -> Result<(Overview, Listing), Report> {
    let listing = state.leases().listing()?;
    Ok((Overview::read(state.state_folder(), &listing)?, listing))
}

/// One execution with everything around it.
pub(crate) fn detail(state: &AppState, id: &str) -> Result<Detail, Report> {
    let listing = state.leases().listing()?;
    let entry = Entry::find(state.state_folder(), id, &listing)?.ok_or_else(|| unknown(id))?;
    Ok(Detail::of(entry, state.runs(), &listing)?)
}

fn unknown(id: &str) -> Report {
    let message = format!("there is no execution `{}`", id.escape_debug());
    Report::new(Exit::Usage, "NO_SUCH_EXECUTION", message)
        .with_hint("/api/stages lists them")
        .with_context("execution_id", id)
}

/// With its file as people know it.
fn named(state: &AppState, shape: ExecutionView) -> ExecutionView {
    ExecutionView { file: stages_files::shown(state, shape.file.as_ref()), ..shape }
}

/// What is to be planned.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Wanted {
    /// A STAGES file of the project, from its root.
    #[param(example = "STAGES.yml")]
    file: String,
    /// The phase, such as `P3`; all of them if not said.
    phase: Option<String>,
    /// Only these groups of it, with commas between.
    groups: Option<String>,
    /// Plan for this load; the machine's one-minute average if not said.
    #[param(minimum = 0)]
    load: Option<f64>,
}

/// One plan, or those of all phases.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum Planned {
    /// Of the one phase that was asked for, or that there is.
    One(Box<PlanShape>),
    /// Of all phases.
    All {
        /// In the order of the file.
        phases: Vec<PlanShape>,
    },
}

/// How phases of a STAGES file would run, with conflicts and reasons.
#[utoipa::path(get, path = "/api/stages/plan", operation_id = "plan_stages", tag = "stages", params(Wanted), responses(
    (status = OK, description = "The plan, as `stages plan` shows it", body = Planned),
    (status = BAD_REQUEST, description = "`BAD_STAGES` with `context.file`, `line` and `column`, no such phase, or not a file of the project", body = ErrorView),
    (status = NOT_FOUND, description = "`NO_SUCH_FILE`", body = ErrorView),
))]
pub(crate) async fn plan(
    State(state): State<AppState>,
    Params(wanted): Params<Wanted>,
) -> Result<Json<Planned>, ApiError> {
    let mut plans = state.blocking(move |state| Ok(plans(state, &wanted)?.1)).await?;
    Ok(Json(match plans.pop() {
        Some(only) if plans.is_empty() => Planned::One(Box::new(PlanShape::of(&only))),
        last => Planned::All { phases: plans.iter().chain(last.as_ref()).map(PlanShape::of).collect() },
    }))
}

/// Plans what is wanted.
pub(crate) fn plans(state: &AppState, wanted: &Wanted) -> Result<(File, Vec<PhasePlan>), Report> {
    let file = stages_files::sound_file(state, &wanted.file)?;
    if wanted.load.is_some_and(|load| !load.is_finite() || load < 0.0) {
        return Err(Report::usage("that is not a load").with_hint("it is a number such as 4.0"));
    }
    let conditions = Conditions { load: wanted.load.or_else(load::average), ..Conditions::default() };
    let groups: Vec<String> =
        wanted.groups.iter().flat_map(|text| text.split(',')).map(|id| id.trim().to_owned()).collect();
    let one = |phase: &str| file.plan(phase, &groups, &conditions).map_err(Report::from);
    let plans = match &wanted.phase {
        Some(phase) => vec![one(phase)?],
        None => file.stages.phases.iter().map(|phase| one(&phase.name.value)).collect::<Result<_, _>>()?,
    };
    Ok((file, plans))
}
