//! View of the board: the coding agents of a repository.

use std::collections::BTreeMap;

use serde::Serialize;

/// The coding agents of a repository.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Board))]
pub struct BoardView {
    /// Whether agents are coordinated here: `lockkeeper init` was run.
    pub takes_part: bool,
    /// The agents, the one that was seen last first.
    pub agents: Vec<AgentView>,
    /// Who waits in line for a path or name, in the order of the lines.
    pub waiting: Vec<WaitingView>,
    /// The last times that a file was changed although another owner had claimed it, the newest last.
    pub incidents: Vec<String>,
    /// The last hook calls that failed and let the edit pass, the newest last.
    pub failed_open: Vec<String>,
}

/// A coding agent. Its note is text of a stranger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Agent))]
pub struct AgentView {
    /// The owner: `kind:SESSION`, and `kind:SESSION:AGENT` for a sub-agent.
    pub owner: String,
    /// The program that runs it, such as `claude`.
    pub harness: String,
    /// `works`, `rests` (its turn has ended) or `waits`.
    pub state: &'static str,
    /// When it was first seen, in seconds since 1970.
    pub since: i64,
    /// When it was last seen, in seconds since 1970.
    pub last_seen: i64,
    /// The process that runs it.
    pub pid: Option<u32>,
    /// The folder in which it works.
    pub cwd: String,
    /// What it says that it does.
    pub note: Option<String>,
    /// The paths and names that it has.
    pub claims: Vec<String>,
    /// The paths and names that it stands in line for.
    pub waits_for: Vec<String>,
    /// How often it was denied a path since it last got that path.
    pub denied: BTreeMap<String, u64>,
}

/// A place in line for one path or name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Waiting))]
pub struct WaitingView {
    /// Who waits.
    pub owner: String,
    /// The path or name.
    pub path: String,
    /// The place in line, from 1.
    pub position: usize,
    /// Since when, in seconds since 1970.
    pub since: i64,
    /// Who has it. None if only others in line are before it.
    pub held_by: Option<String>,
}
