//! Lock files in the formats of other programs, so that theirs and ours exclude each other.

pub mod group;
pub mod registry;
