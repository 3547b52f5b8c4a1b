//! Command execution: starts a command, supervises it, passes signals on, and stops it with its process tree.
//!
//! [`start`] gives the command a process group of its own and, if the caller has one, a share in the holder's liveness
//! lock. [`Running::supervise`] then sleeps until something happens. Nothing is polled on Linux.

mod child;
mod ending;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod guardian;
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
#[path = "exec/no_guardian.rs"]
mod guardian;
mod job;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod posix_spawn;
mod program_lookup;
mod replace;
mod running;
mod spec;
mod start;

pub use ending::Ending;
pub use guardian::{EndRecord, Guardian, GuardianLine, Note, run_guardian_if_asked};
pub use program_lookup::ProgramCache;
pub use replace::replace_process;
pub use running::{Event, Next, Running};
pub use spec::{Mode, Spec, StartError};
pub use start::{between_starts, is_command_of_another, start, start_cached};
