//! `/api/stages`: executions of phases, and plans of STAGES files.

use crate::json::Json;
use axum::extract::State;
use lockkeeper_core::alert::{Counts, DOWNGRADE_SPAN, Limits, raise};
use lockkeeper_engine::Listing;
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_engine::stages::overview::{Detail, Entry, Overview, conflicts_logged};
use lockkeeper_engine::stages::{RefusedPhase, plan_phases};
use lockkeeper_engine::views::{AlertView, ExecutionView, RefusedPhaseView};
use lockkeeper_platform::load;
use lockkeeper_platform::wall_clock::WallTime;
use lockkeeper_stages::{Conditions, File, PhasePlan, PlanView};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::paging::{Paging, truncate_page};
use crate::error::{ApiError, ErrorView};
use crate::extract::{Id, Params};
use crate::stages_files;
use crate::state::AppState;

/// A page of executions.
#[derive(Serialize, ToSchema)]
pub(crate) struct ExecutionList {
    /// The executions, the latest first, as `stages report` shows them.
    executions: Vec<ExecutionView>,
    /// The latest execution, with its plan and its runs.
    latest: Option<ExecutionView>,
    /// The known STAGES files of the project.
    files: Vec<String>,
    /// How many conflicts are in the logs.
    conflicts: usize,
    /// How many downgrades there were in the last hour.
    downgrades_last_hour: usize,
    /// Counts that are above their limits.
    alerts: Vec<AlertView>,
    /// How many lines of the logs could not be parsed.
    skipped_lines: u64,
    /// The `after` of the next page; null on the last page.
    next: Option<String>,
}

/// Lists executions, the latest first.
#[utoipa::path(get, path = "/api/stages", operation_id = "list_executions", tag = "stages", params(Paging), responses(
    (status = OK, description = "Executions", body = ExecutionList),
    (status = BAD_REQUEST, description = "No such page", body = ErrorView),
    (status = NOT_FOUND, description = "`NO_SUCH_EXECUTION`: the `after` does not exist", body = ErrorView),
))]
pub(crate) async fn list(
    State(state): State<AppState>,
    Params(paging): Params<Paging>,
) -> Result<Json<ExecutionList>, ApiError> {
    let (limit, after) = (paging.limit()?, paging.after_id().map(str::to_owned));
    Ok(Json(state.blocking(move |state| listed(state, limit, after.as_deref())).await?))
}

fn listed(state: &AppState, limit: usize, after: Option<&str>) -> Result<ExecutionList, Report> {
    let (overview, listing) = read_overview(state)?;
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
    let next = truncate_page(&mut page, limit, |entry| entry.execution.id.clone());
    let latest = overview.entries.first().map(|entry| Detail::of(entry.clone(), state.runs(), &listing));
    let latest = latest.transpose()?.as_ref().map(ExecutionView::whole);
    let with_file = |view: ExecutionView| with_relative_file(state, view);
    let files = overview.entries.iter().map(|entry| entry.execution.file.as_str());
    Ok(ExecutionList {
        executions: page.into_iter().map(ExecutionView::listed).map(with_file).collect(),
        latest: latest.map(with_file),
        files: stages_files::known_files(state, files),
        conflicts: conflicts_logged(&overview)?,
        downgrades_last_hour: counts.downgrades,
        alerts: raise(&counts, &Limits::default()).iter().map(AlertView::new).collect(),
        skipped_lines: overview.skipped(),
        next,
    })
}

/// Shows an execution with its plan, conflicts and runs.
#[utoipa::path(get, path = "/api/stages/executions/{id}", operation_id = "show_execution", tag = "stages",
    params(("id" = String, Path, description = "The id of the execution")),
    responses(
        (status = OK, description = "The execution", body = ExecutionView),
        (status = BAD_REQUEST, description = "Not a text", body = ErrorView),
        (status = NOT_FOUND, description = "`NO_SUCH_EXECUTION`", body = ErrorView),
    )
)]
pub(crate) async fn show(State(state): State<AppState>, Id(id): Id) -> Result<Json<ExecutionView>, ApiError> {
    let shape = state
        .blocking(move |state| Ok(with_relative_file(state, ExecutionView::whole(&detail(state, &id)?))))
        .await?;
    Ok(Json(shape))
}

/// Reads all executions, and the leases of the same moment.
pub(crate) fn read_overview(state: &AppState) -> Result<(Overview, Listing), Report> {
    let listing = state.leases().listing()?;
    Ok((Overview::read(state.state_folder(), &listing)?, listing))
}

/// Reads one execution with its plan and runs.
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

/// Replaces the path of the file by one relative to the root.
fn with_relative_file(state: &AppState, view: ExecutionView) -> ExecutionView {
    ExecutionView { file: stages_files::shown(state, view.file.as_ref()), ..view }
}

/// Which plan.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct PlanQuery {
    /// A STAGES file of the project, relative to its root.
    #[param(example = "STAGES.yml")]
    file: String,
    /// The phase, such as `P3`; all phases by default.
    phase: Option<String>,
    /// Only these groups of the phase, separated by commas.
    groups: Option<String>,
    /// Plan for this load of the machine; its current one-minute average by default.
    #[param(minimum = 0)]
    load: Option<f64>,
}

/// One plan, or the plans of all phases.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum Planned {
    /// The plan of the only phase.
    One(Box<PlanView>),
    /// The plans of all phases.
    All {
        /// In the order of the file.
        phases: Vec<PlanView>,
        /// Phases that cannot be planned; the key is left out if there are none.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        refused: Vec<RefusedPhaseView>,
    },
}

/// Plans phases of a STAGES file: how they would run, with conflicts and reasons.
#[utoipa::path(get, path = "/api/stages/plan", operation_id = "plan_stages", tag = "stages", params(PlanQuery), responses(
    (status = OK, description = "The plan, as `stages plan` shows it", body = Planned),
    (status = BAD_REQUEST, description = "`BAD_STAGES` with `context.file`, `line` and `column`, no such phase, or not a file of the project", body = ErrorView),
    (status = NOT_FOUND, description = "`NO_SUCH_FILE`", body = ErrorView),
))]
pub(crate) async fn plan(
    State(state): State<AppState>,
    Params(query): Params<PlanQuery>,
) -> Result<Json<Planned>, ApiError> {
    let Plans { plans, refused, .. } = state.blocking(move |state| plans(state, &query)).await?;
    Ok(Json(match plans.as_slice() {
        [only] if refused.is_empty() => Planned::One(Box::new(PlanView::of(only))),
        all => Planned::All {
            phases: all.iter().map(PlanView::of).collect(),
            refused: refused.iter().map(RefusedPhaseView::of).collect(),
        },
    }))
}

/// A file and the plans of its phases.
pub(crate) struct Plans {
    pub(crate) file: File,
    pub(crate) plans: Vec<PhasePlan>,
    pub(crate) refused: Vec<RefusedPhase>,
}

/// Computes the plans.
pub(crate) fn plans(state: &AppState, query: &PlanQuery) -> Result<Plans, Report> {
    let file = stages_files::sound_file(state, &query.file)?;
    if query.load.is_some_and(|load| !load.is_finite() || load < 0.0) {
        return Err(Report::usage("that is not a load").with_hint("it is a number such as 4.0"));
    }
    let conditions = Conditions { load: query.load.or_else(load::average), ..Conditions::default() };
    let groups: Vec<String> =
        query.groups.iter().flat_map(|text| text.split(',')).map(|id| id.trim().to_owned()).collect();
    let one = |phase: &str| file.plan(phase, &groups, &conditions).map_err(Report::from);
    let (plans, refused) = plan_phases(&file, query.phase.as_deref(), one)?;
    Ok(Plans { file, plans, refused })
}
