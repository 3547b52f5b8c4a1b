//! Page of one execution: its groups and their runs, the conflict graph, and a time chart.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use lockkeeper_engine::OwnerNames;
use lockkeeper_engine::stages::overview::{Detail, ExecutionState, GroupView};
use lockkeeper_platform::clock;
use lockkeeper_platform::wall_clock::WallTime;
use lockkeeper_stages::picture::{Chart, Mark};
use lockkeeper_stages::span_in_words;

use super::conflict_graph::{ConflictGraph, mode_tone, rule, tone};
use super::status::{Badge, of_execution, of_group, of_run, of_view};
use super::texts::Texts;
use super::times::{TimeFormat, TimePoint};
use super::{Layout, render};
use crate::api::stages::detail;
use crate::error::ApiError;
use crate::extract::Id;
use crate::stages_files;
use crate::state::AppState;

#[derive(Template)]
#[template(path = "execution.html")]
struct Page {
    layout: Layout,
    now: i64,
    id: String,
    phase: String,
    file: String,
    can_plan: bool,
    mode: Option<String>,
    reason: Option<String>,
    badge: Badge,
    is_running: bool,
    started: TimePoint,
    /// How long it took, and how long it would have taken one by one.
    took: Option<(String, String)>,
    speed_up: Option<String>,
    waited: Option<String>,
    stopped: Option<String>,
    downgrades: Vec<Downgrade>,
    groups: Vec<Row>,
    conflicts: Option<ConflictGraph>,
    chart: Option<String>,
}

/// A rule that made groups run one after the other.
struct Downgrade {
    /// In milliseconds since 1970.
    millis: i64,
    /// In UTC.
    at: String,
    rule: String,
    action: String,
}

struct Row {
    id: String,
    name: Option<String>,
    badge: Badge,
    /// When it started; none unless it is running.
    since: Option<TimePoint>,
    took: Option<String>,
    why: Option<String>,
    runs: Vec<(String, String, Badge)>,
}

pub(super) async fn page(
    State(state): State<AppState>,
    Id(id): Id,
    layout: Layout,
) -> Result<Response, ApiError> {
    let (detail, names, file, can_plan) = state
        .blocking(move |state| {
            let detail = detail(state, &id)?;
            let file = detail.entry.execution.file.as_str();
            let can_plan = !stages_files::known_files(state, [file].into_iter()).is_empty();
            let file = stages_files::shown(state, file.as_ref());
            let names = OwnerNames::of(&state.leases().listing()?, state.root());
            Ok((detail, names, file, can_plan))
        })
        .await?;
    let (texts, times) = (layout.texts, TimeFormat::new(clock::now()));
    let (execution, session) = (&detail.entry.execution, &detail.entry.session);
    let is_running = detail.entry.state == ExecutionState::Running;
    let ended = |span: Option<std::time::Duration>| span.filter(|_| !is_running).map(span_in_words);
    let page = Page {
        now: times.now(),
        id: execution.id.clone(),
        phase: execution.phase.clone(),
        file,
        can_plan,
        mode: session.mode.clone(),
        reason: detail.plan.as_ref().map(|plan| plan.reason.clone()),
        badge: of_execution(detail.entry.state, texts),
        is_running,
        started: times.since_time(WallTime::from_micros(execution.started_at)),
        took: ended(session.wall).zip(ended(session.serial)),
        speed_up: session.speed_up().filter(|_| !is_running).map(|times| format!("{times:.1}×")),
        waited: ended(session.waited),
        stopped: session.stopped.clone().filter(|_| !is_running),
        downgrades: session
            .downgrades
            .iter()
            .map(|(at, rule, action)| Downgrade {
                millis: at.as_micros().div_euclid(1_000),
                at: at.to_string(),
                rule: rule.clone(),
                action: action.clone(),
            })
            .collect(),
        groups: detail.groups.iter().map(|view| Row::new(view, &detail, &names, texts, &times)).collect(),
        conflicts: conflicts(&detail, texts),
        chart: chart(&detail, texts),
        layout: layout.at("/stages"),
    };
    render(&page)
}

impl Row {
    fn new(
        view: &GroupView,
        detail: &Detail,
        names: &OwnerNames,
        texts: &'static Texts,
        times: &TimeFormat,
    ) -> Self {
        let planned =
            detail.plan.iter().flat_map(|plan| &plan.groups).find(|group| group.group_id == view.id);
        let bar = view.bar.as_ref();
        let is_going = view.status() == "STARTED";
        let runs = view
            .runs
            .iter()
            .map(|(agent, run)| (agent.clone(), run.id.to_string(), of_run(run.status(), texts)));
        Self {
            id: view.id.clone(),
            name: planned.and_then(|group| group.name.clone()),
            badge: of_view(view, texts),
            since: bar.filter(|_| is_going).map(|bar| times.since_time(bar.began_at)),
            took: bar
                .filter(|bar| bar.status != "SKIPPED")
                .and_then(|bar| Some(span_in_words(bar.ended_at?.since(bar.began_at)))),
            why: view.waits_for.as_ref().or_else(|| bar?.reason.as_ref()).map(|why| names.in_text(why)),
            runs: runs.collect(),
        }
    }
}

/// The conflict graph of the plan that it started with, with the current states of its groups.
fn conflicts(detail: &Detail, texts: &'static Texts) -> Option<ConflictGraph> {
    let plan = detail.plan.as_ref()?;
    let marks = plan.groups.iter().map(|group| {
        let view = detail.groups.iter().rev().find(|view| view.id == group.group_id);
        let badge = view.map_or_else(|| of_group("WAITING", texts), |view| of_view(view, texts));
        Mark { tone: badge.tone, text: badge.text }
    });
    let marks: Vec<Mark<'_>> = marks.collect();
    Some(ConflictGraph::new(plan, "plan".to_owned(), texts, &marks))
}

fn chart(detail: &Detail, texts: &'static Texts) -> Option<String> {
    let is_running = detail.entry.state == ExecutionState::Running;
    let now = is_running.then(WallTime::now);
    let mut bars = detail.entry.session.bars(now, |status| of_group(status, texts).text);
    let waits = |id: &str| detail.groups.iter().any(|view| view.id == id && view.waits_for.is_some());
    for bar in bars.iter_mut().filter(|bar| bar.status == "STARTED" && waits(bar.label)) {
        (bar.status, bar.word) = ("WAITING", texts.waits);
    }
    (!bars.is_empty()).then(|| Chart::of(&bars).draw(texts.over_time))
}
