//! Patterns over repository paths.
