//! The page of one run: where it is, who holds what for it, what happened, and what it wrote.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use lockkeeper_core::id::RunId;
use lockkeeper_core::run::Status;

use super::super::api::log::{Part, window};
use super::super::extract::Id;
use super::super::failure::Failure;
use super::super::site::Site;
use super::activity::Happened;
use super::spans::{Face, Point};
use super::status::{Badge, of_run};
use super::{Frame, draw};
use lockkeeper_engine::report::Report;
use lockkeeper_platform::clock;

/// So many bytes of the output are shown.
const WINDOW: usize = 64 * 1024;

#[derive(Template)]
#[template(path = "run.html")]
struct Page {
    frame: Frame,
    now: i64,
    id: String,
    request: String,
    title: String,
    command: String,
    badge: Badge,
    locked: bool,
    attempt: u32,
    worker: Option<String>,
    pid: Option<u32>,
    lease: Option<String>,
    holder: Option<Holder>,
    exit_code: Option<u8>,
    reason: Option<String>,
    message: Option<String>,
    queued: Point,
    started: Option<Point>,
    ended: Option<Point>,
    is_open: bool,
    events: Vec<Happened>,
    log: String,
    log_from: u64,
    log_to: u64,
    log_size: u64,
}

/// Who holds what for the run.
struct Holder {
    owner: String,
    resources: Vec<String>,
    heartbeat: Point,
}

pub(super) async fn page(State(site): State<Site>, Id(id): Id, frame: Frame) -> Result<Response, Failure> {
    let id: RunId = id.parse().map_err(Report::from)?;
    let (view, log, lease) = site
        .consult(move |site| {
            let view = site.runs().show(&id)?;
            let log = window(site, &id, &Part::end(), WINDOW)?;
            let lease = match view.run.lease {
                Some((lease, _)) => site.leases().lease(lease)?,
                None => None,
            };
            Ok((view, log, lease))
        })
        .await?;
    let (words, face) = (frame.words, Face::new(clock::now()));
    let (run, request) = (&view.run, &view.request.request);
    let (log, [log_from, log_to, log_size]) = log.into_text();
    let page = Page {
        now: face.now(),
        id: run.id.to_string(),
        request: run.request.to_string(),
        title: request.title.clone(),
        command: request.command.join(" "),
        badge: of_run(run.status, words),
        locked: matches!(run.status, Status::Running | Status::Cancelling),
        attempt: run.attempt,
        worker: run.worker.as_ref().map(ToString::to_string),
        pid: run.process.and_then(|process| process.command).map(|command| command.pid),
        lease: run.lease.map(|(lease, token)| format!("{lease} ({} {token})", words.token)),
        holder: lease.map(|lease| Holder {
            owner: lease.claim.owner.to_string(),
            resources: lease.claim.targets().map(ToString::to_string).collect(),
            heartbeat: face.since(lease.heartbeat_at),
        }),
        exit_code: run.ending.map(|ending| ending.exit_code()),
        reason: run.reason.map(|reason| reason.to_string()),
        message: run.message.clone(),
        queued: face.since(run.queued_at.moment),
        started: run.started_at.map(|at| face.since(at.moment)),
        ended: run.completed_at.map(|at| face.since(at.moment)),
        is_open: !run.status.is_terminal(),
        events: view.events.iter().rev().map(Happened::new).collect(),
        log,
        log_from,
        log_to,
        log_size,
        frame: frame.at("/runs"),
    };
    draw(&page)
}
