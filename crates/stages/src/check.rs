//! Semantic checks: duplicate names, impossible numbers, and cycles of dependencies.

use std::collections::{BTreeSet, HashMap, HashSet};

use lockkeeper_core::id::Name;
use lockkeeper_core::plan::{Cycle, Dependency, find_cycle};

use super::model::{Group, Phase, Stages};
use super::problem::Problem;
use super::resolve::{Edge, Edges, GroupIndex, edges};

/// The code of the only error without which a plan would be possible: a file may make it a warning.
pub(super) const MORE_THAN_AGENTS: &str = "MORE_THAN_AGENTS";

/// The most cycles that are reported. To find more would take long, and nobody fixes them all at once.
const MAX_CYCLES: usize = 20;

/// Checks the content of a file.
pub(super) fn check(stages: &Stages) -> Vec<Problem> {
    let mut problems = Vec::new();
    unique_groups(stages, &mut problems);
    for phase in &stages.phases {
        check_phase(stages, phase, &mut problems);
    }
    check_rules(stages, &mut problems);
    check_dependencies(stages, &mut problems);
    check_settings(stages, &mut problems);
    problems
}

fn unique_groups(stages: &Stages, problems: &mut Vec<Problem>) {
    let mut seen: HashMap<&str, (usize, usize)> = HashMap::new();
    for (place, phase) in stages.phases.iter().enumerate() {
        for group in &phase.groups {
            let id = &group.id;
            if let Err(error) = id.value.parse::<Name>() {
                problems.push(
                    Problem::error("BAD_GROUP_ID", id.place, error.to_string()).with_hint(error.hint()),
                );
            }
            match seen.get(id.value.as_str()) {
                Some((known, line)) if *known == place => {
                    let message = format!("there are two groups `{}`, the other in line {line}", id.value);
                    problems.push(
                        Problem::error("DUPLICATE_GROUP", id.place, message)
                            .with_hint("locks, logs and dependencies use the id: give each group its own"),
                    );
                }
                Some(_) if group.reference => {}
                Some((known, line)) => {
                    let other = &stages.phases[*known].name.value;
                    let message = format!("`{}` is also a group of {other}, in line {line}", id.value);
                    problems.push(
                        Problem::warning("SAME_GROUP_ID", id.place, message)
                            .with_hint("they share their lock, and a dependency has to name the phase too"),
                    );
                }
                None => {
                    seen.insert(&id.value, (place, id.place.line));
                }
            }
        }
    }
}

fn check_phase(stages: &Stages, phase: &Phase, problems: &mut Vec<Problem>) {
    for group in &phase.groups {
        check_group(group, phase.groups.len(), problems);
    }
    if let Some(most) = phase.max_groups.as_ref().filter(|most| most.value == 0) {
        problems.push(Problem::error("ZERO", most.place, "with no group at a time, nothing would ever run"));
    }
    let agents: usize = phase.groups.iter().map(|group| group.agents.len()).sum();
    let limits = [
        (stages.validation.max_groups, phase.groups.len(), "groups"),
        (stages.validation.max_agents, agents, "agents"),
    ];
    for (limit, count, what) in limits {
        if let Some(limit) = limit.filter(|limit| (count as u64) > *limit) {
            let message = format!("{} has {count} {what}, and validation allows {limit}", phase.name.value);
            problems.push(Problem::warning("TOO_MANY", phase.name.place, message));
        }
    }
}

fn check_group(group: &Group, in_phase: usize, problems: &mut Vec<Problem>) {
    let id = &group.id;
    if let Some(most) = &group.max_concurrent {
        let agents = group.agents.len() as u64;
        if most.value == 0 {
            problems.push(Problem::error(
                "ZERO",
                most.place,
                "with no agent at a time, nothing would ever run",
            ));
        } else if agents > 0 && most.value > agents {
            let message = format!("`{}` has {agents} agents, and max_concurrent is {}", id.value, most.value);
            problems.push(
                Problem::error(MORE_THAN_AGENTS, most.place, message)
                    .with_hint("more than all of them cannot work at a time: lower it, add agents, or say `severity: WARNING` \
                        of the check max_concurrent_valid"),
            );
        }
    }
    if group.agents.is_empty() && group.command.is_none() {
        let message = format!("`{}` has neither agents nor a command, so nothing would run", id.value);
        problems.push(Problem::warning("NOTHING_TO_RUN", id.place, message));
    }
    if group.conflict_paths.is_empty() && in_phase > 1 {
        let message = format!("`{}` has no conflict_paths, so it conflicts with nothing", id.value);
        problems.push(
            Problem::warning("NO_PATHS", id.place, message)
                .with_hint("say what it may touch, such as \"src/api/**\""),
        );
    }
    let mut names = BTreeSet::new();
    for agent in group.agents.iter().filter(|agent| !names.insert(agent.name.value.as_str())) {
        let message = format!("`{}` is in this group twice", agent.name.value);
        problems.push(Problem::warning("DUPLICATE_AGENT", agent.name.place, message));
    }
}

fn check_rules(stages: &Stages, problems: &mut Vec<Problem>) {
    let mut seen: HashMap<&str, usize> = HashMap::new();
    for rule in &stages.rules {
        let name = rule.value.name.as_str();
        if let Some(line) = seen.get(name) {
            let message = format!("there are two rules `{name}`, the other in line {line}");
            let problem = Problem::error("DUPLICATE_RULE", rule.place, message);
            problems
                .push(problem.with_hint("plans name the rule of each conflict: give each rule its own name"));
        } else {
            seen.insert(name, rule.place.line);
        }
        if rule.value.paths.is_empty() {
            let message = format!("rule `{name}` has no paths, so it never applies");
            problems.push(Problem::warning("NO_PATHS", rule.place, message));
        }
    }
}

fn check_dependencies(stages: &Stages, problems: &mut Vec<Problem>) {
    let Edges { edges: mut left, problems: unresolved, dangling: _ } = edges(stages);
    problems.extend(unresolved);
    // Feedback for an earlier phase orders nothing within this execution.
    for edge in left.extract_if(.., |edge| edge.source.phase > edge.target.phase && !edge.completion) {
        let (source, target) = (name(stages, edge.source), name(stages, edge.target));
        let message = format!("`{target}` runs before `{source}`, so it cannot wait for its beginning");
        let problem = Problem::warning("FEEDBACK", edge.place, message);
        problems.push(
            problem
                .with_hint("it has no effect on the order; run the earlier phase again to use the feedback"),
        );
    }
    let places: Vec<GroupIndex> = (0..stages.phases.len())
        .flat_map(|phase| {
            (0..stages.phases[phase].groups.len()).map(move |group| GroupIndex { phase, group })
        })
        .collect();
    let number: HashMap<GroupIndex, usize> =
        places.iter().enumerate().map(|(number, at)| (*at, number)).collect();
    // Each cycle is one problem. Its edges are removed before the next search.
    for _ in 0..MAX_CYCLES {
        let dependencies: Vec<Dependency> = left
            .iter()
            .map(|edge| Dependency {
                source: number[&edge.source],
                target: number[&edge.target],
                completion: edge.completion,
            })
            .collect();
        let Some(Cycle(cycle)) = find_cycle(places.len(), &dependencies) else { break };
        let around: Vec<GroupIndex> = cycle.iter().map(|number| places[*number]).collect();
        let next = around.iter().cycle().skip(1);
        let arrows: HashSet<(GroupIndex, GroupIndex)> = around.iter().copied().zip(next.copied()).collect();
        let on_cycle: Vec<bool> =
            left.iter().map(|edge| arrows.contains(&(edge.source, edge.target))).collect();
        let Some(first) = left.iter().zip(&on_cycle).find_map(|(edge, on)| on.then_some(edge)) else {
            break;
        };
        problems.push(cycle_problem(stages, first, &around));
        let mut keep = on_cycle.iter().map(|on| !on);
        left.retain(|_| keep.next().unwrap_or(true));
    }
    for edge in left.iter().filter(|edge| edge.source.phase > edge.target.phase) {
        let (source, target) = (name(stages, edge.source), name(stages, edge.target));
        let [early, late] = [edge.target, edge.source].map(|at| stages.phases[at.phase].name.value.as_str());
        let message = format!("`{target}` cannot wait for `{source}`: {early} runs before {late}");
        problems.push(
            Problem::error("BACKWARDS", edge.place, message)
                .with_hint("the target waits for the source: are they swapped?"),
        );
    }
}

fn cycle_problem(stages: &Stages, edge: &Edge, around: &[GroupIndex]) -> Problem {
    let names: Vec<String> = around.iter().map(|at| format!("`{}`", name(stages, *at))).collect();
    if let [only] = names.as_slice() {
        return Problem::error("CYCLE", edge.place, format!("{only} waits for itself"));
    }
    let message = format!("these wait for each other in a circle: {} → {}", names.join(" → "), names[0]);
    Problem::error("CYCLE", edge.place, message)
        .with_hint("none of them could ever begin: leave one of the waits out")
}

fn name(stages: &Stages, at: GroupIndex) -> &str {
    &stages.phases[at.phase].groups[at.group].id.value
}

fn check_settings(stages: &Stages, problems: &mut Vec<Problem>) {
    if let Some(tune) = &stages.autotune {
        let wrong = match () {
            () if tune.value.min == 0 => Some("autotune needs at least one group at a time"),
            () if tune.value.min > tune.value.max => Some("autotune has a min above its max"),
            () if tune.value.step == 0 || tune.value.decrease_step == 0 => {
                Some("autotune in steps of 0 never changes anything")
            }
            () => None,
        };
        problems.extend(wrong.map(|message| Problem::error("BAD_AUTOTUNE", tune.place, message)));
    }
}
