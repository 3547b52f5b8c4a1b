//! Agents page: the board of coding agents, with what each works on, waits for and was denied.

use std::time::Duration;

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use lockkeeper_core::time::format_span;
use lockkeeper_engine::views::{AgentView, BoardView, WaitingView};
use lockkeeper_platform::wall_clock::epoch_seconds;

use super::texts::Texts;
use super::times::TimePoint;
use super::{Layout, render};
use crate::api::agents::board;
use crate::error::ApiError;
use crate::state::AppState;

/// How many agents and waiters are shown. The API has all of them.
const MAX_ROWS: usize = 200;
/// How many files of one agent are shown.
const MAX_FILES: usize = 12;
/// A part of an owner that is longer than this is cut.
const MAX_PART: usize = 12;

#[derive(Template)]
#[template(path = "agents.html")]
struct Page {
    layout: Layout,
    now: i64,
    takes_part: bool,
    /// How many agents are in which state. States that nobody is in are left out.
    counts: Vec<(usize, &'static str)>,
    agents: Vec<Agent>,
    agents_left_out: usize,
    waiting: Vec<Waiting>,
    waiting_left_out: usize,
    incident: Option<String>,
    failed_open: Option<String>,
}

/// An owner: cut for display, complete in the tooltip.
struct Owner {
    short: String,
    whole: String,
}

struct Agent {
    owner: Owner,
    is_below: bool,
    harness: String,
    state: &'static str,
    tone: &'static str,
    seen: TimePoint,
    note: Option<String>,
    files: Vec<String>,
    files_left_out: usize,
    waits_for: Vec<Waiting>,
    denied: Vec<(String, u64)>,
    denied_left_out: usize,
}

struct Waiting {
    path: String,
    owner: Owner,
    holder: Option<Owner>,
    position: usize,
    since: TimePoint,
}

pub(super) async fn page(State(state): State<AppState>, layout: Layout) -> Result<Response, ApiError> {
    let BoardView { takes_part, mut agents, waiting, incidents, failed_open } = board(&state).await?;
    let (texts, now) = (layout.texts, epoch_seconds());
    let count = |state: &str| agents.iter().filter(|agent| agent.state == state).count();
    let counts = [
        (count("works"), texts.agent_works),
        (count("waits"), texts.agent_waits),
        (count("rests"), texts.agent_rests),
    ];
    let counts = counts.into_iter().filter(|(count, _)| *count > 0).collect();
    // Agents that wait come first, then those that work. Within a state, the agent that was seen last comes first.
    agents.sort_by_key(|agent| match agent.state {
        "waits" => 0,
        "works" => 1,
        _ => 2,
    });
    let page = Page {
        now: now.saturating_mul(1000),
        takes_part,
        counts,
        agents_left_out: agents.len().saturating_sub(MAX_ROWS),
        agents: agents.into_iter().take(MAX_ROWS).map(|one| Agent::new(one, &waiting, texts, now)).collect(),
        waiting_left_out: waiting.len().saturating_sub(MAX_ROWS),
        waiting: waiting.iter().take(MAX_ROWS).map(|one| Waiting::new(one, now)).collect(),
        incident: incidents.last().cloned(),
        failed_open: failed_open.last().cloned(),
        layout: layout.at("/agents"),
    };
    render(&page)
}

impl Owner {
    /// Sessions have long random ids: eight letters tell them apart.
    fn new(whole: &str) -> Self {
        let part = |part: &str| match part.chars().count() {
            0..=MAX_PART => part.to_owned(),
            _ => format!("{}…", part.chars().take(8).collect::<String>()),
        };
        let short = whole.split(':').map(part).collect::<Vec<_>>().join(":");
        Self { short, whole: whole.to_owned() }
    }
}

impl Agent {
    fn new(agent: AgentView, waiting: &[WaitingView], texts: &Texts, now: i64) -> Self {
        let (state, tone) = match agent.state {
            "works" => (texts.agent_works, "info"),
            "waits" => (texts.agent_waits, "warn"),
            _ => (texts.agent_rests, ""),
        };
        let own = waiting.iter().filter(|one| one.owner == agent.owner).take(MAX_FILES);
        let (files, denied) = (agent.claims.len(), agent.denied.len());
        Self {
            owner: Owner::new(&agent.owner),
            is_below: agent.owner.split(':').count() > 2,
            harness: agent.harness,
            state,
            tone,
            seen: ago(agent.last_seen, now),
            note: agent.note.filter(|note| !note.is_empty()),
            files: agent.claims.into_iter().take(MAX_FILES).collect(),
            files_left_out: files.saturating_sub(MAX_FILES),
            waits_for: own.map(|one| Waiting::new(one, now)).collect(),
            denied: agent.denied.into_iter().take(MAX_FILES).collect(),
            denied_left_out: denied.saturating_sub(MAX_FILES),
        }
    }
}

impl Waiting {
    fn new(waiting: &WaitingView, now: i64) -> Self {
        Self {
            path: waiting.path.clone(),
            owner: Owner::new(&waiting.owner),
            holder: waiting.held_by.as_deref().map(Owner::new),
            position: waiting.position,
            since: ago(waiting.since, now),
        }
    }
}

/// A time in the past, in seconds since 1970.
fn ago(at: i64, now: i64) -> TimePoint {
    let span = u64::try_from(now.saturating_sub(at)).unwrap_or(0);
    let text = if span == 0 { "0s".to_owned() } else { format_span(Duration::from_secs(span)) };
    TimePoint { at: at.saturating_mul(1000), text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_short_for_the_eye_and_whole_in_the_title() {
        let owner = Owner::new("claude:9f2c1a7e-0000-4000-8000-000000000000:a17");
        assert_eq!(owner.short, "claude:9f2c1a7e…:a17");
        assert_eq!(Owner::new("person:ann").short, "person:ann");
        assert_eq!(Owner::new("").short, "");
    }
}
