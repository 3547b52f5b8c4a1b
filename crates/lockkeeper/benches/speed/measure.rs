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
    /// Whether more is better, so that the ratio must be at least the limit.
    pub more_is_better: bool,
}

impl Row {
    /// Two times; ours may take `limit` times as long.
    pub fn times(what: impl Into<String>, ours: Duration, bare: Duration, limit: f64) -> Self {
        let (ours, bare) = (ours.as_secs_f64() * 1e6, bare.as_secs_f64() * 1e6);
        Self { what: what.into(), ours, bare, unit: "µs", limit: Some(limit), more_is_better: false }
    }

    /// Two rates or shares; ours must be at least `limit` times the other.
    pub fn at_least(what: impl Into<String>, ours: f64, bare: f64, unit: &'static str, limit: f64) -> Self {
        Self { what: what.into(), ours, bare, unit, limit: Some(limit), more_is_better: true }
    }

    /// A count that may be at most `limit` times the other.
    pub fn at_most(what: impl Into<String>, ours: f64, bare: f64, unit: &'static str, limit: f64) -> Self {
        Self { what: what.into(), ours, bare, unit, limit: Some(limit), more_is_better: false }
    }

    pub fn holds(&self) -> bool {
        let ratio = self.ours / self.bare;
        self.limit.is_none_or(|limit| if self.more_is_better { ratio >= limit } else { ratio <= limit })
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.more_is_better { "≥" } else { "≤" };
        let limit = self.limit.map_or(String::new(), |limit| format!("{sign} {limit}"));
        let verdict = if self.holds() { "" } else { "  MISSED" };
        let (ours, bare) =
            (format!("{:.1} {}", self.ours, self.unit), format!("{:.1} {}", self.bare, self.unit));
        write!(
            f,
            "{:<52} {ours:>12} {bare:>12} {:>8.2} {limit:>8}{verdict}",
            self.what,
            self.ours / self.bare
        )
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
