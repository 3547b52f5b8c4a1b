//! `workflow_phase_parallel`: what holds for a whole phase.

use super::Notes;
use super::fields::{Entry, Fields, items};
use super::groups::{limits, phase_index};
use crate::model::{Phase, Stages};
use crate::place::Placed;
use crate::problem::Problem;
use lockkeeper_formats::yaml::{Node, Value};

/// Reads settings by phase: a mapping, or just whether its groups may run side by side.
pub(super) fn read(entry: &Entry<'_>, stages: &mut Stages, notes: &mut Notes) {
    match &entry.node.value {
        Value::List(_) => {
            for (path, node) in items(entry) {
                listed(node, &path, stages, notes);
            }
        }
        Value::Map(_) | Value::Scalar { .. } => {
            let Some(mut fields) = Fields::of(entry.node, &entry.path, notes) else { return };
            for phase in fields.rest() {
                let name = Placed::new(phase.key.clone(), phase.key_place);
                let at = phase_index(stages, name, notes);
                one(phase.node, &phase.path, at, stages, notes);
            }
        }
    }
}

/// The name of a phase whose groups may run side by side, or a mapping that names it.
fn listed(node: &Node, path: &str, stages: &mut Stages, notes: &mut Notes) {
    if let Some(name) = node.text() {
        let at = phase_index(stages, Placed::new(name.to_owned(), node.place), notes);
        stages.phases[at].can_parallel = Some(Placed::new(true, node.place));
        return;
    }
    let Some(mut fields) = Fields::of(node, path, notes) else { return };
    let Some(name) = fields.take(&["phase", "name", "id"]).and_then(|entry| notes.text(&entry)) else {
        notes.problem(Problem::error("NO_PHASE", node.place, "this does not say for which phase it is"));
        return;
    };
    let at = phase_index(stages, name, notes);
    settle(fields, &mut stages.phases[at], notes);
}

fn one(node: &Node, path: &str, at: usize, stages: &mut Stages, notes: &mut Notes) {
    if let Some(truth) = node.truth() {
        stages.phases[at].can_parallel = Some(Placed::new(truth, node.place));
    } else if let Some(fields) = Fields::of(node, path, notes) {
        settle(fields, &mut stages.phases[at], notes);
    }
}

fn settle(mut fields: Fields<'_>, phase: &mut Phase, notes: &mut Notes) {
    limits(&mut fields, phase, notes);
    // Which groups it has is said by parallel_groups; here it is repeated for people.
    fields.take(&["groups", "parallel_groups", "agents"]);
    fields.finish(notes);
}
