//! What is checked and recorded about a plan before its first group starts.

use lockkeeper_core::conflict::{Action, Group};
use lockkeeper_core::id::RunId;
use lockkeeper_core::plan::{Bond, Cause};
use lockkeeper_core::request::Request;
use lockkeeper_formats::group::Folders;
use lockkeeper_platform::wall_clock::WallTime;
use lockkeeper_stages::PhasePlan;

use super::{GroupLocks, Options};
use crate::conflicts;
use crate::runs::new_id;
use crate::stages::StageError;
use crate::stages::agents::{commands, request_id};
use crate::work::Worker;

/// Records the request of each agent with a run that is rejected, so that lists and the board show what the rule forbade.
pub(super) fn reject_all(worker: &Worker, plan: &PhasePlan, options: &Options) -> Result<(), StageError> {
    // Without commands there are no requests. The rule is the better reason to report.
    let Ok(agents) = commands(plan, options.template.as_ref()) else { return Ok(()) };
    let id: RunId = new_id("EX", worker.runs().now().unix_micros)?;
    for (index, (group, agents)) in plan.groups.iter().zip(&agents).enumerate() {
        for (number, agent) in agents.iter().enumerate() {
            let request = Request {
                title: format!("{}: {}", group.id.value, agent.agent),
                locks: group.id.value.parse().into_iter().collect(),
                paths: group.conflict_paths.iter().map(|path| path.value.clone()).collect(),
                ..Request::new(
                    request_id(id.as_str(), index, number),
                    agent.command.clone(),
                    options.dir.clone(),
                )
            };
            worker.runs().reject(&request, &plan.plan.reason)?;
        }
    }
    Ok(())
}

/// The names of the locks of all groups, in this folder.
pub(super) fn group_locks(plan: &PhasePlan, folders: Folders) -> Result<GroupLocks, StageError> {
    let ids = plan.groups.iter().map(|group| {
        let id = &group.id.value;
        id.parse().map_err(|source| StageError::GroupLockName { group: id.clone(), source })
    });
    Ok(GroupLocks { ids: ids.collect::<Result<_, _>>()?, folders })
}

/// The lines about the conflicts of the plan for the conflict log.
pub(super) fn conflict_lines(plan: &PhasePlan) -> Vec<conflicts::Line> {
    let groups: Vec<Group> = plan
        .groups
        .iter()
        .map(|group| Group {
            id: group.id.value.clone(),
            paths: group.conflict_paths.iter().map(|path| path.value.clone()).collect(),
        })
        .collect();
    conflicts::lines(&plan.phase, &groups, &plan.rules, &plan.findings, WallTime::now())
}

/// How many groups wait for another one because a rule says `queue_execution`.
pub(super) fn queued_groups(plan: &PhasePlan) -> u64 {
    let by_queue = |bond: &Bond| match bond.cause {
        Cause::Conflict(index) => plan
            .findings
            .conflicts
            .get(index)
            .is_some_and(|conflict| conflict.ruling.action == Action::QueueExecution),
        Cause::Completion | Cause::Beginning | Cause::Folder(_) | Cause::Phase => false,
    };
    plan.plan.steps.iter().filter(|step| step.after.iter().any(by_queue)).count() as u64
}
