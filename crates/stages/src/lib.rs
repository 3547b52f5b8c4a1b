//! STAGES.yml: reads and checks the file, plans its phases, and draws the plans.
//!
//! A [`File`] is always read to its end: all problems are listed at once, with line and column, and unknown keys are
//! listed too. [`plan`](File::plan) then asks the rules in `core` how the groups of a phase run.
//!
//! This crate is unstable: it has no semver promise. Programs use the crate `lockkeeper`.

mod check;
mod estimate;
mod fallback;
mod file;
pub mod json;
mod model;
pub mod picture;
mod place;
mod plan;
mod problem;
mod read;
mod resolve;
mod views;

pub use estimate::span_in_words;
pub use fallback::Fallback;
pub use file::{File, StagesError};
pub use lockkeeper_formats::yaml::{MAX_BYTES, MAX_DEPTH, MAX_NODES};
pub use model::{
    Agent, Autotune, ChecksOff, Dependency, Downgrade, Endpoint, Group, METRICS, Monitoring, Phase,
    Reduction, Resolution, Response, RuleDetails, Stages, Trigger, Validation,
};
pub use place::{Place, Placed, Source};
pub use plan::{Conditions, Forecast, PhasePlan, Predicted, SelectError};
pub use problem::{Level, Problem, UnknownKey};
pub use views::{BondView, CauseView, ConflictView, FolderView, GroupView, PlanView};
