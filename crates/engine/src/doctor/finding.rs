//! What one check finds: how bad it is, in words, with the way out, and what was put away.

use std::error::Error;

use lockkeeper_core::alert::Alert;
use lockkeeper_core::run::Reason;

use lockkeeper_formats::aiflow;

/// More than this of one kind is counted, not named.
const MOST_NAMED: usize = 5;

/// How a check ended; the later, the worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Status {
    /// All is well.
    Pass,
    /// Locks hold, but something wants attention.
    Warn,
    /// Locks cannot be relied on, or somebody can never go on.
    Fail,
}

impl Status {
    /// The word that people and programs see.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Pass => "PASS",
            Self::Warn => "WARN",
            Self::Fail => "FAIL",
        }
    }
}

/// Something stale that the full pass put away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// Whose format it was of: `lease`, `swarm`, `group`, `aiflow`, `leftover` or `run`.
    pub format: &'static str,
    /// What it was.
    pub what: String,
    /// Why it was stale.
    pub why: String,
}

impl Recovered {
    /// Says that a run of which nothing lives was ended.
    pub(super) fn run(what: String, why: String) -> Self {
        Self { format: RUN, what, why }
    }

    /// The code under which reports tell of it.
    pub fn reason_code(&self) -> &'static str {
        if self.format == RUN { Reason::Lost.as_str() } else { aiflow::Recovered::REASON_CODE }
    }
}

/// Runs are no locks, so they have a code of their own.
const RUN: &str = "run";

/// The answer of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Its stable name.
    pub id: &'static str,
    /// What it makes sure of.
    pub title: &'static str,
    /// How it ended.
    pub status: Status,
    /// What was seen.
    pub detail: String,
    /// What to do, unless all is well.
    pub fix: Option<String>,
    /// What was put away.
    pub recovered: Vec<Recovered>,
}

/// What a check found, before it has a name.
#[derive(Debug)]
pub(super) struct Finding {
    status: Status,
    detail: Vec<String>,
    fixes: Vec<String>,
    recovered: Vec<Recovered>,
    pub(super) alerts: Vec<Alert>,
}

impl Finding {
    /// All is well, as far as nothing is added.
    pub(super) fn pass(detail: impl Into<String>) -> Self {
        let detail = vec![detail.into()];
        Self { status: Status::Pass, detail, fixes: Vec::new(), recovered: Vec::new(), alerts: Vec::new() }
    }

    /// Something wants attention.
    pub(super) fn warn(detail: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::pass("").and(Status::Warn, detail, fix)
    }

    /// Locks cannot be relied on.
    pub(super) fn fail(detail: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::pass("").and(Status::Fail, detail, fix)
    }

    /// Adds trouble; the worst counts, what was well is not told beside it, and nothing is told twice.
    #[must_use]
    pub(super) fn and(mut self, status: Status, detail: impl Into<String>, fix: impl Into<String>) -> Self {
        if self.status == Status::Pass {
            self.detail.clear();
        }
        self.status = self.status.max(status);
        for (list, text) in [(&mut self.detail, detail.into()), (&mut self.fixes, fix.into())] {
            if !list.contains(&text) {
                list.push(text);
            }
        }
        self
    }

    /// Adds what was put away.
    #[must_use]
    pub(super) fn with_recovered(mut self, recovered: Vec<Recovered>) -> Self {
        self.recovered.extend(recovered);
        self
    }

    /// Adds the alerts that it is about.
    #[must_use]
    pub(super) fn with_alerts(mut self, alerts: Vec<Alert>) -> Self {
        self.alerts.extend(alerts);
        self
    }

    pub(super) fn into_check(self, id: &'static str, title: &'static str) -> Check {
        let detail = some_of(self.detail.into_iter(), "; ");
        let fix = Some(some_of(self.fixes.into_iter(), "; ")).filter(|fix| !fix.is_empty());
        Check { id, title, status: self.status, detail, fix, recovered: self.recovered }
    }
}

/// The first few, and how many more there are.
pub(super) fn some_of(items: impl ExactSizeIterator<Item = String>, between: &str) -> String {
    let more = items.len().saturating_sub(MOST_NAMED);
    let mut named: Vec<String> = items.take(MOST_NAMED).collect();
    if more > 0 {
        named.push(format!("and {more} more"));
    }
    named.join(between)
}

/// An error with its causes, in one line.
pub(super) fn told(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        // A transparent error repeats its cause word for word.
        if !text.ends_with(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_counts_and_each_fix_is_told_once() {
        let finding = Finding::pass("well").and(Status::Fail, "a", "do x").and(Status::Warn, "b", "do x");
        let check = finding.into_check("id", "title");
        assert_eq!((check.status, check.detail.as_str()), (Status::Fail, "a; b"));
        assert_eq!(check.fix.as_deref(), Some("do x"));
        assert_eq!(Finding::pass("well").into_check("id", "title").fix, None);
        assert!(Status::Pass < Status::Warn && Status::Warn < Status::Fail);
    }

    #[test]
    fn a_long_list_is_counted() {
        let list = |count: usize| some_of((0..count).map(|number| number.to_string()), ", ");
        assert_eq!((list(0).as_str(), list(5).as_str()), ("", "0, 1, 2, 3, 4"));
        assert_eq!(list(1000), "0, 1, 2, 3, 4, and 995 more");
    }
}
