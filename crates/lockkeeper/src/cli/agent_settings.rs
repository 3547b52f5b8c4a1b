//! Settings of agents, from the table `[agents]` of the settings files.

use lockkeeper_agents::{CommandName, Settings, WorkTrees};
use lockkeeper_engine::config::Config;

/// The settings of agents. Values were checked when they were read.
pub(super) fn settings(config: &Config) -> Settings {
    let usual = Settings::default();
    Settings {
        working: config.ttl("agents.working").unwrap_or(usual.working),
        resting: config.ttl("agents.resting").unwrap_or(usual.resting),
        ticket: config.ttl("ticket_ttl").unwrap_or(usual.ticket),
        work_trees: match config.text("agents.worktrees") {
            Some("deny") => WorkTrees::Deny,
            Some("ignore") => WorkTrees::Ignore,
            Some(_) | None => WorkTrees::Tell,
        },
        commands: config
            .commands()
            .iter()
            .map(|command| CommandName { pattern: command.pattern.clone(), name: command.name.clone() })
            .collect(),
    }
}
