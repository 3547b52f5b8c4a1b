//! Reader: turns the YAML tree into the model, with one module for each section. It records problems and goes on.

mod dependencies;
mod downgrades;
mod fields;
mod groups;
mod phases;
mod rules;
mod settings;
mod triggers;
mod tuning;
mod values;

use lockkeeper_formats::yaml::{self, Node};

use super::model::Stages;
use super::place::{Place, Source};
use super::problem::{Problem, UnknownKey};
use fields::Fields;

/// Sections that people read, and programs do not: they are known and have no effect.
const PROSE: [&str; 10] = [
    "version",
    "name",
    "title",
    "description",
    "metadata",
    "last_updated",
    "author",
    "usage_examples",
    "performance_estimates",
    "best_practices",
];

/// The result of reading a file.
#[derive(Debug, Default)]
pub(super) struct Reading {
    pub(super) stages: Stages,
    pub(super) problems: Vec<Problem>,
    pub(super) unknown: Vec<UnknownKey>,
}

/// Reads a whole file. If the text is not YAML, the model is empty and there is one problem.
pub(super) fn read(source: &Source) -> Reading {
    let mut diagnostics = Diagnostics::default();
    let stages = match yaml::compose(source) {
        Ok(Some(root)) => sections(&root, &mut diagnostics),
        Ok(None) => Stages::default(),
        Err(error) => {
            diagnostics.problems.push(error.into());
            return Reading { problems: diagnostics.problems, ..Reading::default() };
        }
    };
    if stages.phases.is_empty() && !diagnostics.problems.iter().any(|problem| problem.code == "SHAPE") {
        let place = Place { line: 1, column: 1, width: 1 };
        diagnostics.problem(
            Problem::error("NO_GROUPS", place, "there are no parallel_groups, so there is nothing to plan")
                .with_hint("name a phase under parallel_groups, and its groups with their conflict_paths"),
        );
    }
    Reading { stages, problems: diagnostics.problems, unknown: diagnostics.unknown }
}

fn sections(root: &Node, diagnostics: &mut Diagnostics) -> Stages {
    let Some(mut fields) = Fields::of(root, "", diagnostics) else { return Stages::default() };
    let mut stages = Stages::default();
    // Keys for people.
    for key in PROSE {
        fields.take(&[key]);
    }
    if let Some(entry) = fields.take(&["parallel_groups", "groups", "stages"]) {
        groups::read(&entry, &mut stages, diagnostics);
    }
    if let Some(entry) = fields.take(&["workflow_phase_parallel", "phase_parallel", "phases"]) {
        phases::read(&entry, &mut stages, diagnostics);
    }
    if let Some(entry) = fields.take(&["dependencies", "group_dependencies"]) {
        dependencies::read(&entry, &mut stages, diagnostics);
    }
    if let Some(entry) = fields.take(&["conflict_detection", "conflicts"]) {
        rules::read(&entry, &mut stages, diagnostics);
    }
    if let Some(entry) = fields.take(&["downgrade_rules", "downgrade"]) {
        downgrades::read(&entry, &mut stages, diagnostics);
    }
    settings::read(&mut fields, &mut stages, diagnostics);
    downgrades::fill_delays(&mut stages);
    fields.finish(diagnostics);
    stages
}

/// The problems and unknown keys that were found so far.
#[derive(Debug, Default)]
pub(super) struct Diagnostics {
    problems: Vec<Problem>,
    unknown: Vec<UnknownKey>,
}

impl Diagnostics {
    fn problem(&mut self, problem: Problem) {
        self.problems.push(problem);
    }

    /// Records a problem unless there is one with the same code already.
    fn problem_once(&mut self, problem: Problem) {
        if self.problems.iter().all(|known| known.code != problem.code) {
            self.problems.push(problem);
        }
    }

    /// Records that a value has the wrong type.
    fn wrong_type(&mut self, node: &Node, path: &str, wanted: &str) {
        let found = node.text().map_or_else(|| node.kind().to_owned(), |_| format!("`{}`", node.summary()));
        let message = format!("{path} has to be {wanted}, and is {found}");
        self.problems.push(Problem::error("SHAPE", node.place, message));
    }
}
