//! Conflict graph of a plan, as a drawing and as a table for screen readers.

use lockkeeper_stages::picture::{Figure, Mark};
use lockkeeper_stages::{ConflictView, FolderView, PlanView};

use super::texts::Texts;

/// Plans with more groups are not drawn.
const MAX_GROUPS: usize = 60;
/// How many conflicts are drawn and listed. The API has all of them.
const MAX_CONFLICTS: usize = 200;

/// The conflicts of a plan, ready for the template.
pub(super) struct ConflictGraph {
    /// Prefix of the ids in the drawing.
    pub(super) name: String,
    /// The drawing as SVG; none when it would be too large.
    pub(super) figure: Option<String>,
    pub(super) conflicts: Vec<ConflictView>,
    /// How many conflicts are not shown.
    pub(super) left_out: usize,
    pub(super) folders: Vec<FolderView>,
    /// Prefix of the links to the groups; none when groups have no pages.
    pub(super) href: Option<&'static str>,
}

impl ConflictGraph {
    /// Draws a plan. `marks` are the states of its groups.
    pub(super) fn new(plan: &PlanView, name: String, texts: &Texts, marks: &[Mark<'_>]) -> Self {
        Self::in_columns(plan, name, texts, marks, &[])
    }

    /// Draws a plan with titles for its columns.
    pub(super) fn in_columns(
        plan: &PlanView,
        name: String,
        texts: &Texts,
        marks: &[Mark<'_>],
        columns: &[&str],
    ) -> Self {
        let title = format!("{} {}", texts.conflict_graph, plan.phase);
        let figure = Figure { name: &name, title: title.trim(), labels: &texts.drawing, columns, marks };
        let fits = plan.groups.len() <= MAX_GROUPS && plan.conflicts.len() <= MAX_CONFLICTS;
        let figure = fits.then(|| figure.draw(plan));
        let conflicts = plan.conflicts.iter().take(MAX_CONFLICTS).cloned().collect();
        let left_out = plan.conflicts.len().saturating_sub(MAX_CONFLICTS);
        Self { name, figure, conflicts, left_out, folders: plan.same_dir.clone(), href: None }
    }

    /// What the nodes of the graph are: requests or groups.
    pub(super) fn sides(&self, texts: &'static Texts) -> &'static str {
        if self.href.is_some() { texts.requests } else { texts.groups }
    }
}

/// The colour class of a severity.
pub(super) fn tone(severity: &str) -> &'static str {
    match severity {
        "FATAL" => "bad",
        "MAJOR" => "warn",
        _ => "info",
    }
}

/// The colour class of a mode.
pub(super) fn mode_tone(mode: &str) -> &'static str {
    match mode {
        "DIRECT" | "PARALLEL" => "good",
        "ABORT" => "bad",
        _ => "warn",
    }
}

/// The name of a rule, or the text for no rule.
pub(super) fn rule<'r>(rule: &'r Option<String>, texts: &'r Texts) -> &'r str {
    rule.as_deref().unwrap_or(texts.no_rule)
}
