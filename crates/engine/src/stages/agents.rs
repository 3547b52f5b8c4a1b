//! Commands of agents: from the STAGES.yml, or from the template of `--agent-command`.

use lockkeeper_core::id::RequestId;
use lockkeeper_stages::{Group, PhasePlan};
use thiserror::Error;

use crate::runs::template::Template;

/// The command of one agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentCommand {
    /// The agent's name.
    pub agent: String,
    /// The task in words.
    pub task: Option<String>,
    /// The program and its arguments.
    pub command: Vec<String>,
}

/// An agent has no command: neither its own, nor its group's, nor a template.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("agent `{agent}` of group `{group}` has no command")]
pub struct NoCommand {
    /// Which group.
    pub group: String,
    /// Which agent.
    pub agent: String,
}

/// The commands of each group, by its index in the plan.
pub(super) fn commands(
    plan: &PhasePlan,
    template: Option<&Template>,
) -> Result<Vec<Vec<AgentCommand>>, NoCommand> {
    plan.groups.iter().map(|group| of_group(&plan.phase, group, template)).collect()
}

fn of_group(phase: &str, group: &Group, template: Option<&Template>) -> Result<Vec<AgentCommand>, NoCommand> {
    let id = &group.id.value;
    let filled = |agent: &str, task: &str| {
        template.map(|template| {
            template.fill(&[("agent", agent), ("task", task), ("group", id), ("phase", phase)])
        })
    };
    if group.agents.is_empty() {
        let task = group.name.as_deref().unwrap_or(id);
        let command = group.command.clone().or_else(|| filled(id, task));
        let command = command.ok_or_else(|| NoCommand { group: id.clone(), agent: id.clone() })?;
        return Ok(vec![AgentCommand { agent: id.clone(), task: group.name.clone(), command }]);
    }
    let mut commands = Vec::new();
    for agent in &group.agents {
        let name = &agent.name.value;
        let task = agent.task.as_deref().unwrap_or(name);
        let own = agent.command.clone().or_else(|| group.command.clone());
        let command = own.or_else(|| filled(name, task));
        let command = command.ok_or_else(|| NoCommand { group: id.clone(), agent: name.clone() })?;
        commands.push(AgentCommand { agent: name.clone(), task: agent.task.clone(), command });
    }
    Ok(commands)
}

/// The request id of an agent. It is the same each time that the execution is resumed.
pub(super) fn request_id(execution: &str, group: usize, agent: usize) -> RequestId {
    let id = format!("{execution}.{}.{}", group + 1, agent + 1);
    id.parse().expect("letters, digits, dots and dashes are an id")
}

/// A short fingerprint of commands (FNV-1a): equal commands have equal ones, in every version of this program.
pub(super) fn digest(agents: &[AgentCommand]) -> String {
    let words = agents.iter().flat_map(|agent| agent.command.iter().map(String::as_str).chain(["\u{1}"]));
    let bytes = words.flat_map(|word| word.bytes().chain([0]));
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{hash:016x}")
}
