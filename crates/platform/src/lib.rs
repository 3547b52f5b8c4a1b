//! Operating system interface: everything that differs between systems, behind functions that do not.
//!
//! Linux comes first: pidfds, open-file-description locks and `/proc` make every answer exact. macOS has the same
//! locks and start times but no pidfds. Other Unixes have less. Each module says what is weaker there. Code outside
//! this crate never asks which system it runs on.
//!
//! This crate is unstable: it has no semver promise. Programs use the crate `lockkeeper`.

pub mod access;
pub mod answer;
pub mod browser;
pub mod changes;
pub mod clock;
pub mod connection_owner;
pub mod exec;
pub mod flock;
pub mod folder;
pub mod fs;
pub mod holder_process;
pub mod liveness_lock;
pub mod load;
pub mod lock_holders;
pub mod lock_probe;
mod macos;
pub mod nested;
pub mod origin;
mod pidfd;
pub mod pipe;
pub mod poll;
pub mod process;
pub mod process_description;
mod process_table;
pub mod random;
pub mod rename_exchange;
pub mod runtime_folder;
pub mod signal;
pub mod sqlite_path;
pub mod terminal;
mod thread_timer;
pub mod tree;
pub mod volume;
pub mod waker;
pub mod wall_clock;
pub mod watches;
pub mod write_lock;
