//! Page of the machines that have workers.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use lockkeeper_engine::runs::Host;

use super::times::{TimeFormat, TimePoint};
use super::{Layout, render};
use crate::error::ApiError;
use crate::state::AppState;

#[derive(Template)]
#[template(path = "hosts.html")]
struct Page {
    layout: Layout,
    now: i64,
    hosts: Vec<Row>,
}

struct Row {
    host: Host,
    heard: Option<TimePoint>,
}

pub(super) async fn page(State(state): State<AppState>, layout: Layout) -> Result<Response, ApiError> {
    let (hosts, now) = state.blocking(|state| Ok((state.runs().hosts()?, state.runs().now().moment))).await?;
    let times = TimeFormat::new(now);
    let row = |host: Host| Row { heard: host.silent_for.map(|silent| times.since(now.before(silent))), host };
    let hosts = hosts.into_iter().map(row).collect();
    render(&Page { layout: layout.at("/hosts"), now: times.now(), hosts })
}
