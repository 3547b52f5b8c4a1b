//! Running a command on somebody's behalf: started, watched, signalled and ended with its whole tree.
//!
//! [`start`] gives the command a process group of its own and, if there is one, a share in the holder's proof of life.
//! [`Running::supervise`] then sleeps until something happens; nothing is looked at on a timer.

mod ending;
mod find;
mod job;
mod running;
mod spec;

pub use ending::Ending;
pub use find::Finder;
pub use running::{Event, Next, Running};
pub use spec::{Mode, Spec, StartError, between_starts, is_command_of_another, start, start_found};
