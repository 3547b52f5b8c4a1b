//! `/api/stages`: phases of groups that were executed, and how one would be.

use axum::Json;
use axum::extract::State;
use lockkeeper_core::alert::{Counts, DOWNGRADE_SPAN, Limits, raise};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::super::extract::{Id, Params};
use super::super::failure::{ErrorShape, Failure};
use super::super::project;
use super::super::site::Site;
use super::paging::{Paging, beyond};
use lockkeeper_engine::Listing;
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_engine::shape::alert_to_json;
use lockkeeper_engine::stages::overview::{Detail, Entry, Overview, conflicts_logged};
use lockkeeper_engine::stages::shape::ExecutionShape;
use lockkeeper_platform::load;
use lockkeeper_platform::wall_clock::WallTime;
use lockkeeper_stages::{Conditions, File, PhasePlan, PlanView};

/// What was executed.
#[derive(Serialize, ToSchema)]
pub(crate) struct Executions {
    /// The latest first; each as `stages report` shows it.
    executions: Vec<ExecutionShape>,
    /// The latest of all with its plan and its runs.
    latest: Option<ExecutionShape>,
    /// The STAGES files of the project that are known.
    files: Vec<String>,
    /// How many conflicts the logs have.
    conflicts: usize,
    /// How often rules answered within an hour.
    downgrades_last_hour: usize,
    /// What deserves somebody's attention.
    #[schema(value_type = Vec<Object>)]
    alerts: Vec<Value>,
    /// Lines of the logs that are none.
    skipped_lines: u64,
    /// Where the next page begins.
    next: Option<String>,
}

/// Executions of phases, the latest first.
#[utoipa::path(get, path = "/api/stages", operation_id = "list_executions", tag = "stages", params(Paging), responses(
    (status = OK, description = "Executions", body = Executions),
    (status = BAD_REQUEST, description = "No such page", body = ErrorShape),
    (status = NOT_FOUND, description = "`NO_SUCH_EXECUTION` to go on after", body = ErrorShape),
))]
pub(crate) async fn list(
    State(site): State<Site>,
    Params(paging): Params<Paging>,
) -> Result<Json<Executions>, Failure> {
    let (limit, after) = (paging.limit()?, paging.after_id().map(str::to_owned));
    Ok(Json(site.consult(move |site| listed(site, limit, after.as_deref())).await?))
}

fn listed(site: &Site, limit: usize, after: Option<&str>) -> Result<Executions, Report> {
    let (overview, listing) = look(site)?;
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
    let latest = overview.entries.first().map(|entry| Detail::of(entry.clone(), site.runs(), &listing));
    let latest = latest.transpose()?.as_ref().map(ExecutionShape::whole);
    let named = |shape: ExecutionShape| named(site, shape);
    let files = overview.entries.iter().map(|entry| entry.execution.file.as_str());
    Ok(Executions {
        executions: page.into_iter().map(ExecutionShape::listed).map(named).collect(),
        latest: latest.map(named),
        files: project::known_files(site, files),
        conflicts: conflicts_logged(&overview)?,
        downgrades_last_hour: counts.downgrades,
        alerts: raise(&counts, &Limits::default()).iter().map(alert_to_json).collect(),
        skipped_lines: overview.skipped(),
        next,
    })
}

/// One execution with its plan, conflicts and runs.
#[utoipa::path(get, path = "/api/stages/executions/{id}", operation_id = "show_execution", tag = "stages",
    params(("id" = String, Path, description = "The execution's id")),
    responses(
        (status = OK, description = "The execution", body = ExecutionShape),
        (status = BAD_REQUEST, description = "Not text", body = ErrorShape),
        (status = NOT_FOUND, description = "`NO_SUCH_EXECUTION`", body = ErrorShape),
    )
)]
pub(crate) async fn show(State(site): State<Site>, Id(id): Id) -> Result<Json<ExecutionShape>, Failure> {
    let shape = site.consult(move |site| Ok(named(site, ExecutionShape::whole(&detail(site, &id)?)))).await?;
    Ok(Json(shape))
}

/// Everything that was executed, and what is held at the same moment.
pub(crate) fn look(site: &Site) -> Result<(Overview, Listing), Report> {
    let listing = site.leases().listing()?;
    Ok((Overview::read(site.state_folder(), &listing)?, listing))
}

/// One execution with everything around it.
pub(crate) fn detail(site: &Site, id: &str) -> Result<Detail, Report> {
    let listing = site.leases().listing()?;
    let entry = Entry::find(site.state_folder(), id, &listing)?.ok_or_else(|| unknown(id))?;
    Ok(Detail::of(entry, site.runs(), &listing)?)
}

fn unknown(id: &str) -> Report {
    let message = format!("there is no execution `{}`", id.escape_debug());
    Report::new(Exit::Usage, "NO_SUCH_EXECUTION", message)
        .with_hint("/api/stages lists them")
        .with_context("execution_id", id)
}

/// With its file as people know it.
fn named(site: &Site, shape: ExecutionShape) -> ExecutionShape {
    ExecutionShape { file: project::shown(site, shape.file.as_ref()), ..shape }
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
    One(Box<PlanView>),
    /// Of all phases.
    All {
        /// In the order of the file.
        phases: Vec<PlanView>,
    },
}

/// How phases of a STAGES file would run, with conflicts and reasons.
#[utoipa::path(get, path = "/api/stages/plan", operation_id = "plan_stages", tag = "stages", params(Wanted), responses(
    (status = OK, description = "The plan, as `stages plan` shows it", body = Planned),
    (status = BAD_REQUEST, description = "`BAD_STAGES` with `context.file`, `line` and `column`, no such phase, or not a file of the project", body = ErrorShape),
    (status = NOT_FOUND, description = "`NO_SUCH_FILE`", body = ErrorShape),
))]
pub(crate) async fn plan(
    State(site): State<Site>,
    Params(wanted): Params<Wanted>,
) -> Result<Json<Planned>, Failure> {
    let mut plans = site.consult(move |site| Ok(plans(site, &wanted)?.1)).await?;
    Ok(Json(match plans.pop() {
        Some(only) if plans.is_empty() => Planned::One(Box::new(PlanView::of(&only))),
        last => Planned::All { phases: plans.iter().chain(last.as_ref()).map(PlanView::of).collect() },
    }))
}

/// Plans what is wanted.
pub(crate) fn plans(site: &Site, wanted: &Wanted) -> Result<(File, Vec<PhasePlan>), Report> {
    let file = project::sound_file(site, &wanted.file)?;
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
