//! Section `parallel_groups`: phases, their groups, and their agents.

use lockkeeper_formats::yaml::{Node, Value};

use super::Diagnostics;
use super::dependencies::endpoint;
use super::fields::{Entry, Fields, items};
use crate::model::{Agent, Dependency, Endpoint, Group, Phase, Stages, same_phase};
use crate::place::Placed;
use crate::problem::Problem;

/// The most phases of a file.
const MAX_PHASES: usize = 500;

/// Reads a mapping from phase to groups, or a list whose items name their phase.
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
                phase_content(&phase, name, stages, diagnostics);
            }
        }
    }
}

/// Reads `- phase: P3` with its `groups`, or one group that names its phase.
fn listed(node: &Node, path: &str, stages: &mut Stages, diagnostics: &mut Diagnostics) {
    let Some(mut fields) = Fields::of(node, path, diagnostics) else { return };
    let name = fields.take(&["phase", "stage"]).and_then(|entry| diagnostics.text(&entry));
    let name = name.unwrap_or_else(|| Placed::new("default".to_owned(), node.place));
    if let Some(groups) = fields.take(&["groups", "parallel_groups"]) {
        phase_fields(&groups, &mut fields, name, stages, diagnostics);
        fields.finish(diagnostics);
    } else {
        let at = phase_index(stages, name, diagnostics);
        let group = group(fields, node, path, None, at, stages, diagnostics);
        stages.phases[at].groups.push(group);
    }
}

/// Reads a list of groups, a mapping with `groups` in it, or a mapping from id to group.
fn phase_content(
    entry: &Entry<'_>,
    name: Placed<String>,
    stages: &mut Stages,
    diagnostics: &mut Diagnostics,
) {
    if !matches!(entry.node.value, Value::Map(_)) {
        let at = phase_index(stages, name, diagnostics);
        group_list(entry, at, stages, diagnostics);
        return;
    }
    let Some(mut fields) = Fields::of(entry.node, &entry.path, diagnostics) else { return };
    if let Some(groups) = fields.take(&["groups", "parallel_groups"]) {
        phase_fields(&groups, &mut fields, name, stages, diagnostics);
        fields.finish(diagnostics);
        return;
    }
    let at = phase_index(stages, name, diagnostics);
    for named in fields.rest() {
        let Some(fields) = Fields::of(named.node, &named.path, diagnostics) else { continue };
        let id = Placed::new(named.key.clone(), named.key_place);
        let group = group(fields, named.node, &named.path, Some(id), at, stages, diagnostics);
        stages.phases[at].groups.push(group);
    }
}

fn phase_fields(
    groups: &Entry<'_>,
    fields: &mut Fields<'_>,
    name: Placed<String>,
    stages: &mut Stages,
    diagnostics: &mut Diagnostics,
) {
    let at = phase_index(stages, name, diagnostics);
    limits(fields, &mut stages.phases[at], diagnostics);
    group_list(groups, at, stages, diagnostics);
}

/// Reads the settings of a whole phase.
pub(super) fn limits(fields: &mut Fields<'_>, phase: &mut Phase, diagnostics: &mut Diagnostics) {
    for key in ["name", "description", "reason", "note"] {
        fields.take(&[key]);
    }
    if let Some(entry) = fields.take(&["can_parallel", "parallel", "enabled", "allow_parallel"]) {
        phase.can_parallel = diagnostics.truth(&entry).or_else(|| phase.can_parallel.take());
    }
    let spellings =
        ["max_parallel_groups", "max_groups", "max_concurrent_groups", "max_concurrent", "max_parallel"];
    if let Some(entry) = fields.take(&spellings) {
        phase.max_groups = diagnostics.count(&entry).or_else(|| phase.max_groups.take());
    }
}

/// Reads the groups of `workflow_phase_parallel.P3.parallel_groups`. A group that the phase has already is only named there. A
/// group of which only the id is given, and which another phase defines, runs in this phase, too.
pub(super) fn named_groups(entry: &Entry<'_>, at: usize, stages: &mut Stages, diagnostics: &mut Diagnostics) {
    for (path, node) in items(entry) {
        let id = match node.text() {
            Some(id) => Some(Placed::new(id.to_owned(), node.place)),
            None => id_alone(node),
        };
        let Some(id) = id else {
            let Some(fields) = Fields::of(node, &path, diagnostics) else { continue };
            let dependencies = stages.dependencies.len();
            let group = group(fields, node, &path, None, at, stages, diagnostics);
            let known = stages.phases[at].groups.iter().find(|known| known.id.value == group.id.value);
            match known.map(|known| known.id.place.line) {
                None => stages.phases[at].groups.push(group),
                Some(line) => {
                    stages.dependencies.truncate(dependencies);
                    let id = &group.id;
                    let message = format!(
                        "`{}` is defined in line {line} already, so this definition has no effect",
                        id.value
                    );
                    let hint = format!("change the one in line {line}, or give this group an id of its own");
                    diagnostics.problem(Problem::warning("NO_EFFECT", id.place, message).with_hint(hint));
                }
            }
            continue;
        };
        if stages.phases[at].groups.iter().any(|group| group.id.value == id.value) {
            continue;
        }
        let mut elsewhere = stages.phases.iter().flat_map(|phase| &phase.groups);
        match elsewhere.find(|group| group.id.value == id.value).cloned() {
            Some(found) => stages.phases[at].groups.push(Group { id, reference: true, ..found }),
            None => {
                let message = format!("there is no group `{}`", id.value);
                let hint = "define it under parallel_groups, or give it agents and conflict_paths here";
                diagnostics.problem(Problem::warning("UNDEFINED_GROUP", id.place, message).with_hint(hint));
            }
        }
    }
}

/// The id of a mapping that has nothing else.
fn id_alone(node: &Node) -> Option<Placed<String>> {
    let Value::Map(map) = &node.value else { return None };
    let [(key, value)] = map.as_slice() else { return None };
    let is_id = key.text().is_some_and(|key| matches!(key, "group_id" | "id" | "group"));
    let id = value.text().filter(|_| is_id)?;
    Some(Placed::new(id.to_owned(), value.place))
}

fn group_list(entry: &Entry<'_>, at: usize, stages: &mut Stages, diagnostics: &mut Diagnostics) {
    for (path, node) in items(entry) {
        let Some(fields) = Fields::of(node, &path, diagnostics) else { continue };
        let group = group(fields, node, &path, None, at, stages, diagnostics);
        stages.phases[at].groups.push(group);
    }
}

/// Finds a phase, or adds it. After [`MAX_PHASES`] phases everything goes to the last one, with one problem.
pub(super) fn phase_index(stages: &mut Stages, name: Placed<String>, diagnostics: &mut Diagnostics) -> usize {
    let known = stages.phases.iter().position(|phase| same_phase(&phase.name.value, &name.value));
    if let Some(at) = known {
        return at;
    }
    if stages.phases.len() >= MAX_PHASES {
        let message = format!("there are more than {MAX_PHASES} phases");
        diagnostics.problem_once(Problem::error("TOO_LARGE", name.place, message));
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
    diagnostics: &mut Diagnostics,
) -> Group {
    let written = fields.take(&["group_id", "id", "group"]).and_then(|entry| diagnostics.text(&entry));
    let name = fields.take(&["name", "title"]).and_then(|entry| diagnostics.text(&entry));
    fields.take(&["description"]);
    let id = written.or(known_id).or_else(|| name.clone()).unwrap_or_else(|| {
        let problem = Problem::error("NO_GROUP_ID", node.place, format!("{path} has no group_id"));
        diagnostics.problem(problem.with_hint("give it one: locks, logs and dependencies use it"));
        let phase = &stages.phases[phase];
        Placed::new(format!("{}-{}", phase.name.value, phase.groups.len() + 1), node.place)
    });
    let enabled = fields.take(&["enabled"]).and_then(|entry| diagnostics.truth(&entry));
    let Agents { agents, left_out } =
        fields.take(&["agents", "workers"]).map(|entry| agents(&entry, diagnostics)).unwrap_or_default();
    let has_work = !agents.is_empty() || left_out == 0;
    let can_parallel = fields.take(&["can_parallel", "parallel"]).and_then(|entry| diagnostics.truth(&entry));
    let can_parallel = can_parallel.unwrap_or_else(|| Placed::new(true, id.place));
    let max_concurrent =
        fields.take(&["max_concurrent", "max_parallel"]).and_then(|entry| diagnostics.count(&entry));
    let paths = fields.take(&["conflict_paths", "paths", "files"]);
    let conflict_paths = paths.map(|entry| diagnostics.patterns(&entry)).unwrap_or_default();
    let estimated_time = diagnostics.estimate(&mut fields);
    let command = diagnostics.command(&mut fields);
    if let Some(entry) = fields.take(&["depends_on", "dependencies", "needs", "after"]) {
        let phase = stages.phases[phase].name.value.clone();
        let (name, whole) = (id.value.clone(), format!("{phase}.{}", id.value));
        let target = Endpoint { phase: Some(phase), name, whole, place: id.place };
        for source in diagnostics.texts(&entry) {
            let source = endpoint(&source);
            stages.dependencies.push(Dependency {
                source,
                target: target.clone(),
                wait_for_completion: true,
            });
        }
    }
    fields.finish(diagnostics);
    Group {
        id,
        name: name.map(|name| name.value),
        agents,
        can_parallel,
        max_concurrent,
        conflict_paths,
        command,
        estimated_time,
        enabled: has_work && enabled.is_none_or(|truth| truth.value),
        reference: false,
    }
}

/// The agents of a group, without those that say `enabled: false`.
#[derive(Default)]
struct Agents {
    agents: Vec<Agent>,
    left_out: usize,
}

/// Reads agents as names, or as mappings with more fields.
fn agents(entry: &Entry<'_>, diagnostics: &mut Diagnostics) -> Agents {
    let (mut agents, mut left_out) = (Vec::new(), 0);
    for (path, node) in items(entry) {
        if let Some(name) = node.text() {
            let name = Placed::new(name.to_owned(), node.place);
            agents.push(Agent { name, task: None, estimated_time: None, command: None });
            continue;
        }
        let Some(mut fields) = Fields::of(node, &path, diagnostics) else { continue };
        let name = fields.take(&["name", "agent", "id"]).and_then(|entry| diagnostics.text(&entry));
        let name = name.unwrap_or_else(|| {
            diagnostics.problem(Problem::error("NO_AGENT_NAME", node.place, format!("{path} has no name")));
            Placed::new(format!("agent-{}", agents.len() + 1), node.place)
        });
        let task = fields.take(&["task", "description", "prompt"]).and_then(|entry| diagnostics.text(&entry));
        let estimated_time = diagnostics.estimate(&mut fields);
        let command = diagnostics.command(&mut fields);
        let enabled = fields.take(&["enabled"]).and_then(|entry| diagnostics.truth(&entry));
        fields.finish(diagnostics);
        if enabled.is_some_and(|truth| !truth.value) {
            left_out += 1;
            continue;
        }
        agents.push(Agent { name, task: task.map(|task| task.value), estimated_time, command });
    }
    Agents { agents, left_out }
}
