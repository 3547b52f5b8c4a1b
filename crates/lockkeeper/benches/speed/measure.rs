//! Rows of the report, and the ways to measure.

use std::fmt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// One comparison: ours, the bare thing, and what their ratio may be at the most.
pub struct Row {
    pub what: String,
    pub ours: f64,
    pub bare: f64,
    pub unit: &'static str,
    pub limit: Option<f64>,
    pub goal: Goal,
}

/// How the ratio is compared with the limit.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Goal {
    AtMost,
    AtLeast,
    /// Ours is exactly the other number: a count.
    Exactly,
}

impl Row {
    /// Two times; ours may take `limit` times as long.
    pub fn times(what: impl Into<String>, ours: Duration, bare: Duration, limit: f64) -> Self {
        let (ours, bare) = (ours.as_secs_f64() * 1e6, bare.as_secs_f64() * 1e6);
        Self { what: what.into(), ours, bare, unit: "µs", limit: Some(limit), goal: Goal::AtMost }
    }

    /// Two rates or shares; ours must be at least `limit` times the other.
    pub fn at_least(what: impl Into<String>, ours: f64, bare: f64, unit: &'static str, limit: f64) -> Self {
        Self { what: what.into(), ours, bare, unit, limit: Some(limit), goal: Goal::AtLeast }
    }

    /// A count that may be at most `limit` times the other.
    pub fn at_most(what: impl Into<String>, ours: f64, bare: f64, unit: &'static str, limit: f64) -> Self {
        Self { what: what.into(), ours, bare, unit, limit: Some(limit), goal: Goal::AtMost }
    }

    /// A count that has to be this number.
    pub fn exactly(what: impl Into<String>, ours: usize, expected: usize) -> Self {
        let (ours, bare) = (ours as f64, expected as f64);
        Self { what: what.into(), ours, bare, unit: "", limit: Some(1.0), goal: Goal::Exactly }
    }

    pub fn holds(&self) -> bool {
        let Some(limit) = self.limit else { return true };
        match self.goal {
            Goal::AtMost => self.ours / self.bare <= limit,
            Goal::AtLeast => self.ours / self.bare >= limit,
            Goal::Exactly => self.ours == self.bare,
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = match self.goal {
            Goal::AtMost => "≤",
            Goal::AtLeast => "≥",
            Goal::Exactly => "=",
        };
        let ratio = if self.bare == 0.0 { String::new() } else { format!("{:.2}", self.ours / self.bare) };
        let limit = self.limit.map_or(String::new(), |limit| format!("{sign} {limit}"));
        let verdict = if self.holds() { "" } else { "  MISSED" };
        let (ours, bare) =
            (format!("{:.1} {}", self.ours, self.unit), format!("{:.1} {}", self.bare, self.unit));
        write!(f, "{:<52} {ours:>12} {bare:>12} {ratio:>8} {limit:>8}{verdict}", self.what)
    }
}

/// The middle one.
pub fn median(mut samples: Vec<Duration>) -> Duration {
    samples.sort();
    samples[samples.len() / 2]
}

/// Medians of several things that take turns.
pub fn alternate<const N: usize>(rounds: usize, mut things: [&mut dyn FnMut(); N]) -> [Duration; N] {
    let mut samples: [Vec<Duration>; N] = std::array::from_fn(|_| Vec::with_capacity(rounds));
    for _ in 0..rounds {
        for (thing, samples) in things.iter_mut().zip(&mut samples) {
            let started = Instant::now();
            thing();
            samples.push(started.elapsed());
        }
    }
    samples.map(median)
}

/// The program that is measured: the release build. Cargo names it to the benches of its own crate only.
pub fn lockkeeper() -> PathBuf {
    option_env!("CARGO_BIN_EXE_lockkeeper").unwrap_or("lockkeeper").into()
}

/// A quiet command.
pub fn quiet(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Runs a command that must succeed.
pub fn run(command: &mut Command) {
    let status = command.status().expect("the command starts");
    assert!(status.success(), "{command:?}: {status}");
}
