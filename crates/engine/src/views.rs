//! JSON views: the types in which every front end shows leases, requests, runs, events, the queue and stages.
//!
//! The commands print a view with `--json`, the HTTP API answers with it, the event stream sends it, and with the feature
//! `openapi` the API document describes it. A view has no secret in it. The names and the order of its fields are public.

mod bulk;
mod conflict;
mod lease;
mod queue;
mod request;
mod run;
#[cfg(feature = "stages")]
mod stages;
mod stats;

pub use bulk::{ChangedView, RefusedView};
pub use conflict::PatternConflictView;
pub use lease::{AlertView, HolderView, LeaseView, ObstacleView, ResourceView, TicketView, obstacles};
pub use queue::{AutoRunView, PassedOverView, QueueRunView};
pub use request::{LatestRun, RequestView, Seconds};
pub use run::{Because, BlockedView, EventView, RunListItem, RunView, time};
#[cfg(feature = "stages")]
pub use stages::{AgentRunView, DowngradeView, ExecutionView, GroupRunView, SessionView};
pub use stats::{SpreadView, StatsView, TitleStatsView};
