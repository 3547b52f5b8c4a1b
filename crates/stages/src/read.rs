//! From the tree to the model: one file a section. What is wrong is noted, and reading goes on.

mod dependencies;
mod downgrades;
mod fields;
mod groups;
mod phases;
mod rules;
mod settings;
mod values;

use super::model::Stages;
use super::place::{Place, Source};
use super::problem::{Problem, UnknownKey};
use fields::Fields;
use lockkeeper_formats::yaml::{self, Node};

/// What came of reading a file.
#[derive(Debug, Default)]
pub(super) struct Reading {
    pub(super) stages: Stages,
    pub(super) problems: Vec<Problem>,
    pub(super) unknown: Vec<UnknownKey>,
}

/// Reads a whole file. A text that is not YAML gives an empty model and one problem.
pub(super) fn read(source: &Source) -> Reading {
    let mut notes = Notes::default();
    let stages = match yaml::compose(source) {
        Ok(Some(root)) => sections(&root, &mut notes),
        Ok(None) => Stages::default(),
        Err(error) => {
            notes.problems.push(error.into());
            return Reading { problems: notes.problems, ..Reading::default() };
        }
    };
    if stages.phases.is_empty() && !notes.problems.iter().any(|problem| problem.code == "SHAPE") {
        let place = Place { line: 1, column: 1, width: 1 };
        notes.problem(
            Problem::error("NO_GROUPS", place, "there are no parallel_groups, so there is nothing to plan")
                .with_hint("name a phase under parallel_groups, and its groups with their conflict_paths"),
        );
    }
    Reading { stages, problems: notes.problems, unknown: notes.unknown }
}

fn sections(root: &Node, notes: &mut Notes) -> Stages {
    let Some(mut fields) = Fields::of(root, "", notes) else { return Stages::default() };
    let mut stages = Stages::default();
    // What people write for people.
    for key in ["version", "name", "title", "description", "metadata", "last_updated", "author"] {
        fields.take(&[key]);
    }
    if let Some(entry) = fields.take(&["parallel_groups", "groups", "stages"]) {
        groups::read(&entry, &mut stages, notes);
    }
    if let Some(entry) = fields.take(&["workflow_phase_parallel", "phase_parallel", "phases"]) {
        phases::read(&entry, &mut stages, notes);
    }
    if let Some(entry) = fields.take(&["dependencies", "group_dependencies"]) {
        dependencies::read(&entry, &mut stages, notes);
    }
    if let Some(entry) = fields.take(&["conflict_detection", "conflicts"]) {
        rules::read(&entry, &mut stages, notes);
    }
    if let Some(entry) = fields.take(&["downgrade_rules", "downgrade"]) {
        downgrades::read(&entry, &mut stages, notes);
    }
    settings::read(&mut fields, &mut stages, notes);
    fields.finish(notes);
    stages
}

/// What is noted on the way.
#[derive(Debug, Default)]
pub(super) struct Notes {
    problems: Vec<Problem>,
    unknown: Vec<UnknownKey>,
}

impl Notes {
    fn problem(&mut self, problem: Problem) {
        self.problems.push(problem);
    }

    /// Notes a problem unless there is one of its code already.
    fn problem_once(&mut self, problem: Problem) {
        if self.problems.iter().all(|known| known.code != problem.code) {
            self.problems.push(problem);
        }
    }

    /// The value is not of the kind that stands here.
    fn shape(&mut self, node: &Node, path: &str, wanted: &str) {
        let found = node.text().map_or_else(|| node.kind().to_owned(), |_| format!("`{}`", node.summary()));
        let message = format!("{path} has to be {wanted}, and is {found}");
        self.problems.push(Problem::error("SHAPE", node.place, message));
    }
}
