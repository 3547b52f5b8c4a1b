//! The words in pictures.

use std::fmt::Display;

/// The words of one language; `{}` stands for a number or a text.
#[derive(Clone, Copy, Debug)]
pub struct Labels {
    /// Over groups that can run together, with their number.
    pub wave: &'static str,
    /// Over groups of which none runs.
    pub nothing_runs: &'static str,
    /// In a group with one agent.
    pub one_agent: &'static str,
    /// In a group with more.
    pub agents: &'static str,
    /// Before an estimate.
    pub about: &'static str,
    /// For paths that have no room.
    pub more: &'static str,
    /// Before the path that two groups share.
    pub both_match: &'static str,
}

impl Labels {
    /// In English.
    pub const ENGLISH: Self = Self {
        wave: "wave {}",
        nothing_runs: "nothing runs",
        one_agent: "1 agent",
        agents: "{} agents",
        about: "about {}",
        more: "and {} more",
        both_match: "both match {}",
    };
}

/// A label with what it is about.
pub(super) fn filled(label: &str, value: impl Display) -> String {
    label.replace("{}", &value.to_string())
}
