//! STAGES.yml: phases of groups that work side by side, and what is done where they would collide.
//!
//! A [`File`] is read whole: what is wrong with it is listed with line and column, all at once, and what is not
//! understood is kept and told. [`plan`](File::plan) then asks the rules how a phase runs.

mod check;
pub mod encoding;
mod estimate;
mod file;
mod model;
pub mod picture;
mod place;
mod plan;
mod problem;
mod read;
mod resolve;
mod shape;

pub use estimate::span_in_words;
pub use file::{File, StagesError};
pub use lockkeeper_formats::yaml::{MAX_BYTES, MAX_DEPTH, MAX_NODES};
pub use model::{
    Agent, Autotune, Dependency, Downgrade, Endpoint, Group, Monitoring, Phase, Resolution, Response, Stages,
    Trigger, Validation,
};
pub use place::{Place, Placed, Source};
pub use plan::{Conditions, PhasePlan, SelectError};
pub use problem::{Level, Problem, UnknownKey};
pub use shape::{BondShape, CauseShape, ConflictShape, FolderShape, GroupShape, PlanShape};
