//! The page of stages: what was executed, what can be planned, and which open requests collide.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use lockkeeper_core::alert::{Counts, DOWNGRADE_SPAN, Limits, raise};

use super::super::api::stages::look;
use super::super::failure::Failure;
use super::super::project;
use super::super::site::Site;
use super::collisions::{Collisions, mode_tone, rule, tone};
use super::open_requests::open_requests;
use super::spans::{Face, Point};
use super::status::{Badge, of_execution, of_group};
use super::words::Words;
use super::{Frame, draw};
use lockkeeper_engine::report::Report;
use lockkeeper_engine::stages::overview::{Entry, ExecutionState};
use lockkeeper_platform::clock;
use lockkeeper_platform::wall_clock::WallTime;
use lockkeeper_stages::span_in_words;

/// The page shows so many; the API has all of them.
const MOST: usize = 50;

#[derive(Template)]
#[template(path = "stages.html")]
struct Page {
    frame: Frame,
    now: i64,
    alert: bool,
    rows: Vec<Row>,
    has_more: bool,
    files: Vec<String>,
    requests: Option<Collisions>,
}

struct Row {
    id: String,
    phase: String,
    file: String,
    mode: Option<String>,
    badge: Badge,
    groups: Vec<(String, Badge)>,
    started: Point,
    took: Option<String>,
    speed_up: Option<String>,
}

pub(super) async fn page(State(site): State<Site>, frame: Frame) -> Result<Response, Failure> {
    draw(&site.consult(move |site| made(site, frame)).await?)
}

fn made(site: &Site, frame: Frame) -> Result<Page, Report> {
    let (overview, _) = look(site)?;
    let (words, face) = (frame.words, Face::new(clock::now()));
    let downgrades = overview.downgrades_since(WallTime::now().before(DOWNGRADE_SPAN));
    let counts = Counts { downgrades, ..Counts::default() };
    let entries = overview.entries.iter().take(MOST);
    let files = overview.entries.iter().map(|entry| entry.execution.file.as_str());
    Ok(Page {
        now: face.now(),
        alert: !raise(&counts, &Limits::default()).is_empty(),
        rows: entries.map(|entry| Row::new(entry, site, words, &face)).collect(),
        has_more: overview.entries.len() > MOST,
        files: project::known_files(site, files),
        requests: open_requests(site, words)?,
        frame: frame.at("/stages"),
    })
}

impl Row {
    fn new(entry: &Entry, site: &Site, words: &'static Words, face: &Face) -> Self {
        let (execution, session) = (&entry.execution, &entry.session);
        let is_running = entry.state == ExecutionState::Running;
        let groups = execution.groups.iter().map(|id| {
            let bar = session.groups.iter().rev().find(|bar| bar.group == *id);
            let status = bar.map_or("WAITING", |bar| match bar.ended_at {
                None if !is_running => "INTERRUPTED",
                Some(_) | None => bar.status.as_str(),
            });
            (id.clone(), of_group(status, words))
        });
        Self {
            id: execution.id.clone(),
            phase: execution.phase.clone(),
            file: project::shown(site, execution.file.as_ref()),
            mode: session.mode.clone(),
            badge: of_execution(entry.state, words),
            groups: groups.collect(),
            started: face.since_time(WallTime::from_micros(execution.started_at)),
            took: session.wall.filter(|_| !is_running).map(span_in_words),
            speed_up: session.speed_up().filter(|_| !is_running).map(|times| format!("{times:.1}×")),
        }
    }
}
