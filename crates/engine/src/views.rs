//! JSON views: the types in which every front end shows leases, agents, requests, runs, events, the queue and stages.
//!
//! The commands print a view with `--json`, the HTTP API answers with it, the event stream sends it, and with the feature
//! `openapi` the API document describes it. A view has no secret in it. The names and the order of its fields are public.

mod board;
mod bulk;
mod command_line;
mod conflict;
mod host;
mod lease;
#[cfg(feature = "stages")]
mod overview;
mod queue;
mod request;
mod run;
#[cfg(feature = "stages")]
mod stages;
mod stats;

pub use board::{AgentView, BoardView, WaitingView};
pub use bulk::{ChangedView, RefusedView};
pub use command_line::shown_command_line;
pub use conflict::PatternConflictView;
pub use host::HostView;
pub use lease::{AlertView, HolderView, LeaseView, ObstacleView, ResourceView, TicketView, obstacles};
#[cfg(feature = "stages")]
pub use overview::{AttentionView, OverviewView, RequestCountsView, RequestItem, RequestSummaryView};
pub use queue::{AutoRunView, PassedOverView, QueueRunView, QueueStopView};
pub use request::{LatestRun, RequestView, Seconds};
pub use run::{Because, BlockedView, EventView, RunListItem, RunView, time};
#[cfg(feature = "stages")]
pub use stages::{AgentRunView, DowngradeView, ExecutionView, GroupRunView, RefusedPhaseView, SessionView};
pub use stats::{SpreadView, StatsView, TitleStatsView};
