//! Dependencies by name, made into dependencies between groups.

use super::model::{Endpoint, Stages, same_phase};
use super::place::Place;
use super::problem::Problem;

/// A group, by the places of its phase and of itself in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct At {
    pub(super) phase: usize,
    pub(super) group: usize,
}

/// The target waits for the source.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    pub(super) source: At,
    pub(super) target: At,
    pub(super) completion: bool,
    pub(super) place: Place,
}

/// Finds both ends of every dependency; those that lead nowhere are told.
pub(super) fn edges(stages: &Stages) -> (Vec<Edge>, Vec<Problem>) {
    let (mut edges, mut problems) = (Vec::new(), Vec::new());
    for dependency in &stages.dependencies {
        let mut find = |end: &Endpoint| find(stages, end).map_err(|problem| problems.push(*problem)).ok();
        let (source, target) = (find(&dependency.source), find(&dependency.target));
        let (Some(sources), Some(targets)) = (source, target) else { continue };
        let completion = dependency.wait_for_completion;
        // The end that was written out, not the group that carries a depends_on.
        let place = dependency.source.place;
        for source in sources {
            for target in &targets {
                edges.push(Edge { source, target: *target, completion, place });
            }
        }
    }
    (edges, problems)
}

/// The group of a name, or all groups of the phase of this name.
fn find(stages: &Stages, end: &Endpoint) -> Result<Vec<At>, Box<Problem>> {
    let groups = stages.phases.iter().enumerate().flat_map(|(phase, content)| {
        content.groups.iter().enumerate().map(move |(group, found)| (At { phase, group }, found))
    });
    // An id may have a dot in it that does not stand between a phase and a group.
    let whole = end.phase.as_ref().map(|phase| [phase.as_str(), end.name.as_str()]);
    let by_id = |id: &str| -> bool {
        id == end.name
            || whole.is_some_and(|[phase, name]| {
                id.strip_prefix(phase).and_then(|rest| rest.get(1..)).is_some_and(|rest| rest == name)
            })
    };
    let in_phase = |at: &At| match &end.phase {
        Some(phase) => same_phase(&stages.phases[at.phase].name.value, phase),
        None => true,
    };
    let named: Vec<At> = groups.filter(|(_, group)| by_id(&group.id.value)).map(|(at, _)| at).collect();
    let exact: Vec<At> = named.iter().copied().filter(in_phase).collect();
    let found = if exact.is_empty() { named } else { exact };
    match found.as_slice() {
        [one] => Ok(vec![*one]),
        [] if end.phase.is_none() => whole_phase(stages, end),
        [] => Err(unknown(stages, end)),
        [first, ..] if found.iter().all(|at| at.phase == first.phase) => Ok(vec![*first]),
        [..] => Err(Box::new(
            Problem::error("AMBIGUOUS_GROUP", end.place, format!("`{}` is in several phases", end.name))
                .with_hint(format!(
                    "name the phase too: {}.{}",
                    stages.phases[found[0].phase].name.value, end.name
                )),
        )),
    }
}

fn whole_phase(stages: &Stages, end: &Endpoint) -> Result<Vec<At>, Box<Problem>> {
    let phase = stages.phases.iter().position(|phase| same_phase(&phase.name.value, &end.name));
    let Some(phase) = phase else { return Err(unknown(stages, end)) };
    Ok((0..stages.phases[phase].groups.len()).map(|group| At { phase, group }).collect())
}

fn unknown(stages: &Stages, end: &Endpoint) -> Box<Problem> {
    let name = match &end.phase {
        Some(phase) => format!("{phase}.{}", end.name),
        None => end.name.clone(),
    };
    let ids = || stages.phases.iter().flat_map(|phase| &phase.groups).map(|group| group.id.value.as_str());
    let near = ids().min_by_key(|id| distance(id, &end.name)).filter(|id| distance(id, &end.name) <= 3);
    let hint = match near {
        Some(id) => format!("is it `{id}`?"),
        None => "dependencies name groups, or whole phases, of this file".to_owned(),
    };
    let message = format!("there is no group or phase `{name}`");
    Box::new(Problem::error("UNKNOWN_GROUP", end.place, message).with_hint(hint))
}

/// How many characters have to be changed, added or left out.
fn distance(a: &str, b: &str) -> usize {
    if a.len() > 200 || b.len() > 200 {
        return usize::MAX;
    }
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, left) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, right) in b.iter().enumerate() {
            let kept = diagonal + usize::from(left != *right);
            diagonal = row[j + 1];
            row[j + 1] = kept.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
