//! Labels of pictures, in one language.

use std::fmt::Display;

/// The words of one language; `{}` stands for a number or a text.
#[derive(Clone, Copy, Debug)]
pub struct Labels {
    /// The name of a wave, with its number.
    pub wave: &'static str,
    /// The name of the column if nothing runs.
    pub nothing_runs: &'static str,
    /// One agent.
    pub one_agent: &'static str,
    /// Several agents.
    pub agents: &'static str,
    /// An estimate.
    pub about: &'static str,
    /// The number of paths that are not shown.
    pub more: &'static str,
    /// The path that two groups match.
    pub both_match: &'static str,
}

impl Labels {
    /// The English labels.
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

/// Fills the value into a label.
pub(super) fn filled(label: &str, value: impl Display) -> String {
    label.replace("{}", &value.to_string())
}
