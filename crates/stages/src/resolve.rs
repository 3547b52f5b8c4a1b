//! Name resolution: turns dependencies between names into edges between groups.

use std::collections::HashMap;

use super::model::{Endpoint, Stages, same_phase};
use super::place::Place;
use super::problem::Problem;

/// The most edges between groups, after whole phases are expanded.
const MAX_EDGES: usize = 200_000;

/// The most unknown names for which a similar name is proposed.
const MAX_PROPOSALS: usize = 20;

/// The index of a phase, and of a group in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct GroupIndex {
    pub(super) phase: usize,
    pub(super) group: usize,
}

/// The target waits for the source.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    pub(super) source: GroupIndex,
    pub(super) target: GroupIndex,
    pub(super) completion: bool,
    pub(super) place: Place,
}

/// A group that waits for something that does not exist.
#[derive(Clone, Debug)]
pub(super) struct Dangling {
    pub(super) target: GroupIndex,
    /// Why it cannot be planned.
    pub(super) problem: Problem,
}

/// All dependencies between groups.
#[derive(Clone, Debug, Default)]
pub(super) struct Edges {
    pub(super) edges: Vec<Edge>,
    pub(super) problems: Vec<Problem>,
    pub(super) dangling: Vec<Dangling>,
}

/// Finds both ends of every dependency. An unknown name is a problem. Only the groups that wait for it cannot be planned.
pub(super) fn edges(stages: &Stages) -> Edges {
    let directory = Directory::new(stages);
    let Edges { mut edges, mut problems, mut dangling } = Edges::default();
    for dependency in &stages.dependencies {
        let mut find = |end: &Endpoint| match directory.find(end, problems.len() < MAX_PROPOSALS) {
            Ok(found) => Ok(found),
            Err(problem) => {
                problems.push((*problem).clone());
                Err(*problem)
            }
        };
        let (source, target) = (find(&dependency.source), find(&dependency.target));
        let (sources, targets) = match (source, target) {
            (Ok(sources), Ok(targets)) => (sources, targets),
            (Err(problem), Ok(targets)) => {
                dangling
                    .extend(targets.into_iter().map(|target| Dangling { target, problem: problem.clone() }));
                continue;
            }
            // The target was not found, so nothing waits.
            (_, Err(_)) => continue,
        };
        // The position of the source, which the author wrote. The target of a depends_on is the group itself.
        let place = dependency.source.place;
        if edges.len() + sources.len() * targets.len() > MAX_EDGES {
            let message = format!("these are more than {MAX_EDGES} dependencies, with whole phases expanded");
            problems.push(Problem::error("TOO_LARGE", place, message));
            break;
        }
        let completion = dependency.wait_for_completion;
        for source in sources {
            edges.extend(targets.iter().map(|target| Edge { source, target: *target, completion, place }));
        }
    }
    Edges { edges, problems, dangling }
}

/// The groups by their ids.
struct Directory<'a> {
    stages: &'a Stages,
    groups: HashMap<&'a str, Vec<GroupIndex>>,
}

impl<'a> Directory<'a> {
    fn new(stages: &'a Stages) -> Self {
        let mut groups: HashMap<&str, Vec<GroupIndex>> = HashMap::new();
        for (phase, content) in stages.phases.iter().enumerate() {
            for (group, found) in content.groups.iter().enumerate() {
                groups.entry(&found.id.value).or_default().push(GroupIndex { phase, group });
            }
        }
        // A phase that only names a group does not make its name ambiguous.
        for places in groups.values_mut().filter(|places| places.len() > 1) {
            places.sort_by_key(|at| stages.phases[at.phase].groups[at.group].reference);
        }
        Self { stages, groups }
    }

    /// The group of a name, or all groups of the phase of this name.
    fn find(&self, end: &Endpoint, propose: bool) -> Result<Vec<GroupIndex>, Box<Problem>> {
        let named = |id: &str| self.groups.get(id).map_or(&[][..], Vec::as_slice);
        let in_phase = |at: &&GroupIndex| {
            end.phase
                .as_ref()
                .is_some_and(|phase| same_phase(&self.stages.phases[at.phase].name.value, phase))
        };
        let qualified = named(&end.name).iter().find(in_phase);
        match (qualified, named(&end.whole)) {
            (Some(at), _) => Ok(vec![*at]),
            (None, [only]) => Ok(vec![*only]),
            (None, []) => self.whole_phase(end).ok_or_else(|| self.unknown(end, propose)),
            // Twice in one phase: another check reports that.
            (None, [first, rest @ ..])
                if rest.iter().all(|at| at.phase == first.phase || self.is_reference(*at)) =>
            {
                Ok(vec![*first])
            }
            (None, [first, ..]) => Err(Box::new(self.ambiguous(end, *first))),
        }
    }

    fn is_reference(&self, at: GroupIndex) -> bool {
        self.stages.phases[at.phase].groups[at.group].reference
    }

    fn whole_phase(&self, end: &Endpoint) -> Option<Vec<GroupIndex>> {
        let phase = self.stages.phases.iter().position(|phase| same_phase(&phase.name.value, &end.whole))?;
        Some((0..self.stages.phases[phase].groups.len()).map(|group| GroupIndex { phase, group }).collect())
    }

    fn ambiguous(&self, end: &Endpoint, first: GroupIndex) -> Problem {
        let phase = &self.stages.phases[first.phase].name.value;
        Problem::error("AMBIGUOUS_GROUP", end.place, format!("`{}` is in several phases", end.whole))
            .with_hint(format!("name the phase too: {phase}.{}", end.whole))
    }

    fn unknown(&self, end: &Endpoint, propose: bool) -> Box<Problem> {
        let ids = || self.groups.keys().filter(|id| propose && id.len() <= 64).take(1_000);
        let near =
            if end.name.len() <= 64 { ids().min_by_key(|id| (distance(id, &end.name), **id)) } else { None };
        // A third of the characters may be wrong.
        let is_close = |id: &str| distance(id, &end.name) * 3 <= end.name.chars().count();
        let hint = match near {
            Some(id) if is_close(id) => format!("is it `{id}`?"),
            Some(id) => {
                format!("dependencies name groups, or whole phases, of this file; the nearest name is `{id}`")
            }
            None => "dependencies name groups, or whole phases, of this file".to_owned(),
        };
        let message = format!("there is no group or phase `{}`", end.whole);
        Box::new(Problem::warning("UNKNOWN_GROUP", end.place, message).with_hint(hint))
    }
}

/// Returns the Levenshtein distance: how many characters have to be changed, added or removed.
fn distance(a: &str, b: &str) -> usize {
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
