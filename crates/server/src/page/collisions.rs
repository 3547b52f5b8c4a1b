//! Who collides with whom: the drawing, and the same as a table for those who do not see it.

use super::words::Words;
use lockkeeper_stages::picture::{Figure, Mark};
use lockkeeper_stages::{ConflictView, FolderView, PlanView};

/// More groups than this are not drawn.
const MOST_GROUPS: usize = 60;
/// More conflicts than this are neither drawn nor listed; the API has all of them.
const MOST_CONFLICTS: usize = 200;

/// The conflicts of a plan.
pub(super) struct Collisions {
    /// What ids of the drawing begin with.
    pub(super) name: String,
    /// The drawing, which is markup; none where it would be too large.
    pub(super) figure: Option<String>,
    pub(super) conflicts: Vec<ConflictView>,
    /// How many conflicts are not shown.
    pub(super) left_out: usize,
    pub(super) folders: Vec<FolderView>,
    /// Where the groups have pages of their own, what their addresses begin with.
    pub(super) href: Option<&'static str>,
}

impl Collisions {
    /// Draws a plan; `marks` say how its groups stand.
    pub(super) fn new(plan: &PlanView, name: String, words: &Words, marks: &[Mark<'_>]) -> Self {
        Self::in_columns(plan, name, words, marks, &[])
    }

    /// Draws a plan whose columns are called like this.
    pub(super) fn in_columns(
        plan: &PlanView,
        name: String,
        words: &Words,
        marks: &[Mark<'_>],
        columns: &[&str],
    ) -> Self {
        let title = format!("{} {}", words.conflict_graph, plan.phase);
        let figure = Figure { name: &name, title: title.trim(), labels: &words.drawing, columns, marks };
        let fits = plan.groups.len() <= MOST_GROUPS && plan.conflicts.len() <= MOST_CONFLICTS;
        let figure = fits.then(|| figure.draw(plan));
        let conflicts = plan.conflicts.iter().take(MOST_CONFLICTS).cloned().collect();
        let left_out = plan.conflicts.len().saturating_sub(MOST_CONFLICTS);
        Self { name, figure, conflicts, left_out, folders: plan.same_dir.clone(), href: None }
    }

    /// What those are who collide.
    pub(super) fn sides(&self, words: &'static Words) -> &'static str {
        if self.href.is_some() { words.requests } else { words.groups }
    }
}

/// The tone of a severity.
pub(super) fn tone(severity: &str) -> &'static str {
    match severity {
        "FATAL" => "bad",
        "MAJOR" => "warn",
        _ => "info",
    }
}

/// The tone of a mode.
pub(super) fn mode_tone(mode: &str) -> &'static str {
    match mode {
        "DIRECT" | "PARALLEL" => "good",
        "ABORT" => "bad",
        _ => "warn",
    }
}

/// What counts where no rule does.
pub(super) fn rule<'r>(rule: &'r Option<String>, words: &'r Words) -> &'r str {
    rule.as_deref().unwrap_or(words.no_rule)
}
