//! Everything that differs between operating systems, behind functions that do not.
//!
//! Linux comes first: pidfds, open-file-description locks and `/proc` make every answer exact. macOS has the same
//! locks and start times but no pidfds, other Unixes have less; each module says what is weaker there. Nothing
//! outside this folder asks which system it runs on.

pub mod anchor;
pub mod answer;
mod apple;
pub mod browser;
pub mod changes;
pub mod clock;
pub mod connection_owner;
pub mod exclusion;
pub mod exec;
mod facts;
pub mod flock;
pub mod fs;
pub mod liveness_lock;
pub mod load;
pub mod lockers;
pub mod origin;
mod pidfd;
pub mod pipe;
pub mod poll;
pub mod process;
pub mod random;
pub mod replace;
pub mod signal;
pub mod spawn;
pub mod swap;
pub mod terminal;
pub mod tree;
pub mod volume;
pub mod waker;
pub mod wall_clock;
pub mod watches;
pub mod write_lock;
