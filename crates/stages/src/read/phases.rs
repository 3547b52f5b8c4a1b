//! Section `workflow_phase_parallel`: settings of whole phases.

use lockkeeper_formats::yaml::{Node, Value};

use super::Diagnostics;
use super::fields::{Entry, Fields, items};
use super::groups::{limits, named_groups, phase_index};
use crate::model::Stages;
use crate::place::Placed;
use crate::problem::Problem;

/// Reads a mapping from phase to settings, or to whether its groups may run at the same time.
pub(super) fn read(entry: &Entry<'_>, stages: &mut Stages, diagnostics: &mut Diagnostics) {
    match &entry.node.value {
        Value::List(_) => {
            for (path, node) in items(entry) {
                listed(node, &path, stages, diagnostics);
            }
        }
        Value::Map(_) | Value::Scalar { .. } => {
            let Some(mut fields) = Fields::of(entry.node, &entry.path, diagnostics) else { return };
            for phase in fields.rest() {
                let name = Placed::new(phase.key.clone(), phase.key_place);
                let at = phase_index(stages, name, diagnostics);
                one(phase.node, &phase.path, at, stages, diagnostics);
            }
        }
    }
}

/// Reads the name of a phase whose groups may run at the same time, or a mapping that names it.
fn listed(node: &Node, path: &str, stages: &mut Stages, diagnostics: &mut Diagnostics) {
    if let Some(name) = node.text() {
        let at = phase_index(stages, Placed::new(name.to_owned(), node.place), diagnostics);
        stages.phases[at].can_parallel = Some(Placed::new(true, node.place));
        return;
    }
    let Some(mut fields) = Fields::of(node, path, diagnostics) else { return };
    let Some(name) = fields.take(&["phase", "name", "id"]).and_then(|entry| diagnostics.text(&entry)) else {
        diagnostics.problem(Problem::error(
            "NO_PHASE",
            node.place,
            "this does not say for which phase it is",
        ));
        return;
    };
    let at = phase_index(stages, name, diagnostics);
    read_phase(fields, at, stages, diagnostics);
}

fn one(node: &Node, path: &str, at: usize, stages: &mut Stages, diagnostics: &mut Diagnostics) {
    if let Some(truth) = node.truth() {
        stages.phases[at].can_parallel = Some(Placed::new(truth, node.place));
    } else if let Some(fields) = Fields::of(node, path, diagnostics) {
        read_phase(fields, at, stages, diagnostics);
    }
}

fn read_phase(mut fields: Fields<'_>, at: usize, stages: &mut Stages, diagnostics: &mut Diagnostics) {
    limits(&mut fields, &mut stages.phases[at], diagnostics);
    if let Some(groups) = fields.take(&["groups", "parallel_groups"]) {
        named_groups(&groups, at, stages, diagnostics);
    }
    fields.take(&["agents"]);
    fields.finish(diagnostics);
}
