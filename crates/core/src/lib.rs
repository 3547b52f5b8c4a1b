//! The rules of Lockkeeper, with no clock, file, process, environment or output of their own.

pub mod overlap;
pub mod pattern;
