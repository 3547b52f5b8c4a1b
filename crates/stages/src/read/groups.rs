//! `parallel_groups`: phases, their groups, and who works in them.

use super::Notes;
use super::dependencies::endpoint;
use super::fields::{Entry, Fields, items};
use crate::model::{Agent, Dependency, Endpoint, Group, Phase, Stages, same_phase};
use crate::place::Placed;
use crate::problem::Problem;
use lockkeeper_formats::yaml::{Node, Value};

/// The most phases of a file.
const MAX_PHASES: usize = 500;

/// Reads phases by name, or a list whose entries name theirs.
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
                phase_content(&phase, name, stages, notes);
            }
        }
    }
}

/// `- phase: P3` with its `groups`, or one group that names its phase.
fn listed(node: &Node, path: &str, stages: &mut Stages, notes: &mut Notes) {
    let Some(mut fields) = Fields::of(node, path, notes) else { return };
    let name = fields.take(&["phase", "stage"]).and_then(|entry| notes.text(&entry));
    let name = name.unwrap_or_else(|| Placed::new("default".to_owned(), node.place));
    if let Some(groups) = fields.take(&["groups", "parallel_groups"]) {
        phase_fields(&groups, &mut fields, name, stages, notes);
        fields.finish(notes);
    } else {
        let at = phase_index(stages, name, notes);
        let group = group(fields, node, path, None, at, stages, notes);
        stages.phases[at].groups.push(group);
    }
}

/// A list of groups, a mapping with `groups` in it, or groups by their ids.
fn phase_content(entry: &Entry<'_>, name: Placed<String>, stages: &mut Stages, notes: &mut Notes) {
    if !matches!(entry.node.value, Value::Map(_)) {
        let at = phase_index(stages, name, notes);
        group_list(entry, at, stages, notes);
        return;
    }
    let Some(mut fields) = Fields::of(entry.node, &entry.path, notes) else { return };
    if let Some(groups) = fields.take(&["groups", "parallel_groups"]) {
        phase_fields(&groups, &mut fields, name, stages, notes);
        fields.finish(notes);
        return;
    }
    let at = phase_index(stages, name, notes);
    for named in fields.rest() {
        let Some(fields) = Fields::of(named.node, &named.path, notes) else { continue };
        let id = Placed::new(named.key.clone(), named.key_place);
        let group = group(fields, named.node, &named.path, Some(id), at, stages, notes);
        stages.phases[at].groups.push(group);
    }
}

fn phase_fields(
    groups: &Entry<'_>,
    fields: &mut Fields<'_>,
    name: Placed<String>,
    stages: &mut Stages,
    notes: &mut Notes,
) {
    let at = phase_index(stages, name, notes);
    limits(fields, &mut stages.phases[at], notes);
    group_list(groups, at, stages, notes);
}

/// What a file says of a whole phase.
pub(super) fn limits(fields: &mut Fields<'_>, phase: &mut Phase, notes: &mut Notes) {
    for key in ["name", "description", "reason", "note"] {
        fields.take(&[key]);
    }
    if let Some(entry) = fields.take(&["can_parallel", "parallel", "enabled", "allow_parallel"]) {
        phase.can_parallel = notes.truth(&entry).or_else(|| phase.can_parallel.take());
    }
    let spellings =
        ["max_parallel_groups", "max_groups", "max_concurrent_groups", "max_concurrent", "max_parallel"];
    if let Some(entry) = fields.take(&spellings) {
        phase.max_groups = notes.count(&entry).or_else(|| phase.max_groups.take());
    }
}

fn group_list(entry: &Entry<'_>, at: usize, stages: &mut Stages, notes: &mut Notes) {
    for (path, node) in items(entry) {
        let Some(fields) = Fields::of(node, &path, notes) else { continue };
        let group = group(fields, node, &path, None, at, stages, notes);
        stages.phases[at].groups.push(group);
    }
}

/// Finds a phase, or makes it. Beyond [`MAX_PHASES`] all is put into the last one, and told.
pub(super) fn phase_index(stages: &mut Stages, name: Placed<String>, notes: &mut Notes) -> usize {
    let known = stages.phases.iter().position(|phase| same_phase(&phase.name.value, &name.value));
    if let Some(at) = known {
        return at;
    }
    if stages.phases.len() >= MAX_PHASES {
        let message = format!("there are more than {MAX_PHASES} phases");
        notes.problem_once(Problem::error("TOO_LARGE", name.place, message));
        return stages.phases.len() - 1;
    }
    stages.phases.push(Phase { name, groups: Vec::new(), can_parallel: None, max_groups: None });
    stages.phases.len() - 1
}

fn group(
    mut fields: Fields<'_>,
    node: &Node,
    path: &str,
    known_id: Option<Placed<String>>,
    phase: usize,
    stages: &mut Stages,
    notes: &mut Notes,
) -> Group {
    let written = fields.take(&["group_id", "id", "group"]).and_then(|entry| notes.text(&entry));
    let name = fields.take(&["name", "title"]).and_then(|entry| notes.text(&entry));
    fields.take(&["description"]);
    let id = written.or(known_id).or_else(|| name.clone()).unwrap_or_else(|| {
        let problem = Problem::error("NO_GROUP_ID", node.place, format!("{path} has no group_id"));
        notes.problem(problem.with_hint("give it one: locks, logs and dependencies go by it"));
        let phase = &stages.phases[phase];
        Placed::new(format!("{}-{}", phase.name.value, phase.groups.len() + 1), node.place)
    });
    let agents = fields.take(&["agents", "workers"]).map(|entry| agents(&entry, notes)).unwrap_or_default();
    let can_parallel = fields.take(&["can_parallel", "parallel"]).and_then(|entry| notes.truth(&entry));
    let can_parallel = can_parallel.unwrap_or_else(|| Placed::new(true, id.place));
    let max_concurrent =
        fields.take(&["max_concurrent", "max_parallel"]).and_then(|entry| notes.count(&entry));
    let paths = fields.take(&["conflict_paths", "paths", "files"]);
    let conflict_paths = paths.map(|entry| notes.patterns(&entry)).unwrap_or_default();
    let estimate = fields.take(&["estimated_time", "estimated_duration", "estimate", "duration"]);
    let estimated_time = estimate.and_then(|entry| notes.span(&entry));
    let command = notes.command(&mut fields);
    if let Some(entry) = fields.take(&["depends_on", "dependencies", "needs", "after"]) {
        let phase = stages.phases[phase].name.value.clone();
        let (name, whole) = (id.value.clone(), format!("{phase}.{}", id.value));
        let target = Endpoint { phase: Some(phase), name, whole, place: id.place };
        for source in notes.texts(&entry) {
            let source = endpoint(&source);
            stages.dependencies.push(Dependency {
                source,
                target: target.clone(),
                wait_for_completion: true,
            });
        }
    }
    fields.finish(notes);
    Group {
        id,
        name: name.map(|name| name.value),
        agents,
        can_parallel,
        max_concurrent,
        conflict_paths,
        command,
        estimated_time,
    }
}

/// Agents as names, or as mappings that say more.
fn agents(entry: &Entry<'_>, notes: &mut Notes) -> Vec<Agent> {
    let mut agents = Vec::new();
    for (path, node) in items(entry) {
        if let Some(name) = node.text() {
            let name = Placed::new(name.to_owned(), node.place);
            agents.push(Agent { name, task: None, estimated_time: None, command: None });
            continue;
        }
        let Some(mut fields) = Fields::of(node, &path, notes) else { continue };
        let name = fields.take(&["name", "agent", "id"]).and_then(|entry| notes.text(&entry));
        let name = name.unwrap_or_else(|| {
            notes.problem(Problem::error("NO_AGENT_NAME", node.place, format!("{path} has no name")));
            Placed::new(format!("agent-{}", agents.len() + 1), node.place)
        });
        let task = fields.take(&["task", "description", "prompt"]).and_then(|entry| notes.text(&entry));
        let estimate = fields.take(&["estimated_time", "estimated_duration", "estimate", "duration"]);
        let estimated_time = estimate.and_then(|entry| notes.span(&entry));
        let command = notes.command(&mut fields);
        fields.finish(notes);
        agents.push(Agent { name, task: task.map(|task| task.value), estimated_time, command });
    }
    agents
}
