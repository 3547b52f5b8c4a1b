//! The page of one request: what it is, and every run of it.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use lockkeeper_core::id::RequestId;
use lockkeeper_core::request::RequestStatus;

use super::super::extract::Id;
use super::super::failure::Failure;
use super::super::site::Site;
use super::activity::Line;
use super::spans::Face;
use super::status::{Badge, of_request};
use super::{Frame, draw};
use lockkeeper_engine::report::Report;
use lockkeeper_engine::stages::execution_of;
use lockkeeper_platform::clock;
use lockkeeper_store::runs::Filter;

/// So many runs are shown.
const MOST: usize = 100;

#[derive(Template)]
#[template(path = "request.html")]
struct Page {
    frame: Frame,
    now: i64,
    id: String,
    title: String,
    badge: Badge,
    locked: bool,
    command: String,
    dir: String,
    holds: Vec<String>,
    after: Vec<String>,
    /// The execution of stages that it is a part of.
    execution: Option<String>,
    runs: Vec<Line>,
}

pub(super) async fn page(State(site): State<Site>, Id(id): Id, frame: Frame) -> Result<Response, Failure> {
    let id: RequestId = id.parse().map_err(Report::from)?;
    let (entry, runs) = site
        .consult(move |site| {
            let entry = site.runs().request(&id)?;
            let filter = Filter { request: Some(id), limit: MOST, ..Filter::default() };
            Ok((entry, site.runs().entries(&filter)?))
        })
        .await?;
    let (words, face) = (frame.words, Face::new(clock::now()));
    let request = &entry.request.request;
    let page = Page {
        now: face.now(),
        id: request.id.to_string(),
        title: request.title.clone(),
        badge: of_request(entry.request.status, words),
        locked: entry.request.status == RequestStatus::Running,
        command: request.command.join(" "),
        dir: request.dir.clone(),
        holds: request.resources().iter().map(|resource| resource.target.to_string()).collect(),
        after: request.after.iter().map(ToString::to_string).collect(),
        execution: request.conductor().and_then(execution_of),
        runs: runs.iter().map(|entry| Line::new(entry, words, &face)).collect(),
        frame: frame.at("/"),
    };
    draw(&page)
}
