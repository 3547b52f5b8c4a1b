//! Result of one check: a status, a description, how to fix it, and what the full pass recovered.

use std::error::Error;

use lockkeeper_core::alert::Alert;
use lockkeeper_core::run::Reason;
use lockkeeper_formats::aiflow;

use crate::messages::{Phrases, Sentence};

/// A list names this many items and counts the others.
const MOST_NAMED: usize = 5;

/// The status of a check, from best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Status {
    /// No problem was found.
    Pass,
    /// Locks work, but something needs attention.
    Warn,
    /// Locks cannot be relied on, or a deadlock exists.
    Fail,
}

impl Status {
    /// The status as it is printed, also in JSON.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Pass => "PASS",
            Self::Warn => "WARN",
            Self::Fail => "FAIL",
        }
    }
}

/// A stale lock that the full pass removed, or a lost run that it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// The format: `lease`, `swarm`, `group`, `aiflow`, `leftover` or `run`.
    pub format: &'static str,
    /// The lock or the run, in words.
    pub what: String,
    /// Why it was stale.
    pub why: String,
}

impl Recovered {
    /// A lost run that was ended.
    pub(super) fn run(what: String, why: String) -> Self {
        Self { format: RUN, what, why }
    }

    /// The reason code in reports and in JSON.
    pub fn reason_code(&self) -> &'static str {
        if self.format == RUN { Reason::Lost.as_str() } else { aiflow::Recovered::REASON_CODE }
    }
}

/// A run is not a lock, so it has another reason code.
const RUN: &str = "run";

/// The result of one check, with its id and title.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The id. It never changes.
    pub id: &'static str,
    /// What is true when the check passes.
    pub title: &'static str,
    /// Pass, warn or fail.
    pub status: Status,
    /// What the check observed.
    pub detail: String,
    /// How to fix it; none when the check passes.
    pub fix: Option<String>,
    /// The problems, in no language yet.
    pub problems: Vec<Sentence>,
    /// How to fix them, in no language yet.
    pub fixes: Vec<Sentence>,
    /// What the full pass recovered.
    pub recovered: Vec<Recovered>,
}

impl Check {
    /// The title in a language: a statement if the check passes, its negation if it warns or fails.
    pub fn title_in(&self, phrases: &Phrases) -> String {
        let title = match self.title.strip_suffix(" asks before each edit") {
            Some(agent) => phrases.fill("check.agent", &[("agent", agent)]),
            None => phrases.fill(&format!("check.{}", self.id), &[]),
        };
        match self.status {
            Status::Pass => title,
            Status::Warn | Status::Fail => phrases.fill("doctor.not_so", &[("title", &title)]),
        }
    }
}

/// The result of one check, without its id and title.
#[derive(Debug)]
pub(super) struct Finding {
    status: Status,
    /// What a check that passes observed.
    observed: String,
    problems: Vec<Sentence>,
    fixes: Vec<Sentence>,
    recovered: Vec<Recovered>,
    pub(super) alerts: Vec<Alert>,
}

impl Finding {
    /// No problem, until [`Finding::and`] adds one.
    pub(super) fn pass(detail: impl Into<String>) -> Self {
        Self {
            status: Status::Pass,
            observed: detail.into(),
            problems: Vec::new(),
            fixes: Vec::new(),
            recovered: Vec::new(),
            alerts: Vec::new(),
        }
    }

    /// One problem: something needs attention.
    pub(super) fn warn(detail: impl Into<Sentence>, fix: impl Into<Sentence>) -> Self {
        Self::pass("").and(Status::Warn, detail, fix)
    }

    /// One problem: locks cannot be relied on.
    pub(super) fn fail(detail: impl Into<Sentence>, fix: impl Into<Sentence>) -> Self {
        Self::pass("").and(Status::Fail, detail, fix)
    }

    /// Adds a problem. The worst status wins. The first problem replaces the text of the passed check, and equal texts
    /// are kept once.
    #[must_use]
    pub(super) fn and(
        mut self,
        status: Status,
        detail: impl Into<Sentence>,
        fix: impl Into<Sentence>,
    ) -> Self {
        self.status = self.status.max(status);
        for (list, sentence) in [(&mut self.problems, detail.into()), (&mut self.fixes, fix.into())] {
            if !list.contains(&sentence) {
                list.push(sentence);
            }
        }
        self
    }

    /// Adds what the full pass recovered.
    #[must_use]
    pub(super) fn with_recovered(mut self, recovered: Vec<Recovered>) -> Self {
        self.recovered.extend(recovered);
        self
    }

    /// Adds alerts.
    #[must_use]
    pub(super) fn with_alerts(mut self, alerts: Vec<Alert>) -> Self {
        self.alerts.extend(alerts);
        self
    }

    /// Names the check. Reports and JSON have the sentences in English.
    pub(super) fn into_check(self, id: &'static str, title: &'static str, english: &Phrases) -> Check {
        let Self { status, observed, problems, fixes, recovered, .. } = self;
        let in_english = |list: &[Sentence]| first_few(list.iter().map(|one| english.put(one)), "; ");
        let detail = if status == Status::Pass { observed } else { in_english(&problems) };
        let fix = Some(in_english(&fixes)).filter(|fix| !fix.is_empty());
        Check { id, title, status, detail, fix, problems, fixes, recovered }
    }
}

/// Joins the first few items and says how many more there are.
pub(super) fn first_few(items: impl ExactSizeIterator<Item = String>, between: &str) -> String {
    let more = items.len().saturating_sub(MOST_NAMED);
    let mut named: Vec<String> = items.take(MOST_NAMED).collect();
    if more > 0 {
        named.push(format!("and {more} more"));
    }
    named.join(between)
}

/// An error and its causes in one line.
pub(super) fn with_causes(error: &dyn Error) -> String {
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
    use crate::messages::Language;

    #[test]
    fn the_worst_counts_and_each_fix_is_told_once() {
        let finding = Finding::pass("well").and(Status::Fail, "a", "do x").and(Status::Warn, "b", "do x");
        let english = Phrases::load(Language::En);
        let check = finding.into_check("id", "title", &english);
        assert_eq!((check.status, check.detail.as_str()), (Status::Fail, "a; b"));
        assert_eq!(check.fix.as_deref(), Some("do x"));
        assert_eq!(Finding::pass("well").into_check("id", "title", &english).fix, None);
        assert!(Status::Pass < Status::Warn && Status::Warn < Status::Fail);
    }

    #[test]
    fn a_long_list_is_counted() {
        let list = |count: usize| first_few((0..count).map(|number| number.to_string()), ", ");
        assert_eq!((list(0).as_str(), list(5).as_str()), ("", "0, 1, 2, 3, 4"));
        assert_eq!(list(1000), "0, 1, 2, 3, 4, and 995 more");
    }
}
