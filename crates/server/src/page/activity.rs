//! The page of activity: the latest runs, and the latest events.

use askama::Template;
use axum::extract::State;
use axum::response::Response;

use super::super::failure::Failure;
use super::super::site::Site;
use super::spans::{Face, Point};
use super::status::{Badge, of_run};
use super::words::Words;
use super::{Frame, draw};
use lockkeeper_engine::runs::RunEntry;
use lockkeeper_platform::clock;
use lockkeeper_platform::wall_clock::WallTime;
use lockkeeper_store::runs::{Filter, StoredEvent};

/// So many runs and events are shown.
const MOST: usize = 100;

#[derive(Template)]
#[template(path = "activity.html")]
struct Page {
    frame: Frame,
    now: i64,
    runs: Vec<Line>,
    events: Vec<Happened>,
}

/// A run in a list.
pub(super) struct Line {
    pub(super) id: String,
    pub(super) request: String,
    pub(super) title: String,
    pub(super) badge: Badge,
    pub(super) attempt: u32,
    pub(super) queued: Point,
    pub(super) took: Option<String>,
    pub(super) reason: Option<String>,
}

impl Line {
    pub(super) fn new(entry: &RunEntry, words: &'static Words, face: &Face) -> Self {
        let run = &entry.run;
        let took = run.completed_at.zip(run.started_at);
        Self {
            id: run.id.to_string(),
            request: run.request.to_string(),
            title: entry.request.request.title.clone(),
            badge: of_run(run.status, words),
            attempt: run.attempt,
            queued: face.since(run.queued_at.moment),
            took: took.map(|(end, start)| lockkeeper_core::time::format_span(end.moment.since(start.moment))),
            reason: run.reason.map(|reason| reason.to_string()),
        }
    }
}

/// An event in a list.
pub(super) struct Happened {
    pub(super) at: String,
    pub(super) run: String,
    pub(super) request: String,
    pub(super) kind: String,
    pub(super) to: String,
    pub(super) message: Option<String>,
}

impl Happened {
    pub(super) fn new(event: &StoredEvent) -> Self {
        Self {
            at: WallTime::from_micros(event.at).to_string(),
            run: event.id.run.to_string(),
            request: event.request.clone(),
            kind: event.kind.clone(),
            to: event.to.clone(),
            message: event.message.clone().or_else(|| event.reason.clone()),
        }
    }
}

pub(super) async fn page(State(site): State<Site>, frame: Frame) -> Result<Response, Failure> {
    let (runs, events) = site
        .consult(|site| {
            let runs = site.runs().entries(&Filter { limit: MOST, ..Filter::default() })?;
            let events = site.runs().store().read(|tables| {
                let before = tables.last_position()?.saturating_sub(MOST as u64);
                tables.events_after(before, MOST)
            })?;
            Ok((runs, events))
        })
        .await?;
    let (words, face) = (frame.words, Face::new(clock::now()));
    let page = Page {
        now: face.now(),
        runs: runs.iter().map(|entry| Line::new(entry, words, &face)).collect(),
        events: events.iter().rev().map(Happened::new).collect(),
        frame: frame.at("/runs"),
    };
    draw(&page)
}
