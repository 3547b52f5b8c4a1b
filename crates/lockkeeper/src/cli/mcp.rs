//! `mcp`: serves the tools for agents over standard input and output, until the input ends.

use std::path::Path;

use lockkeeper_agents::{McpOptions, Settings, serve_mcp};
use lockkeeper_engine::config::{Config, Inputs};
use lockkeeper_engine::location::LocationSource;
use lockkeeper_engine::report::{Exit, Report};

use super::Verb;
use super::agent_settings::settings;
use super::context::{Context, Globals};

/// Serve the tools for agents over MCP, on stdin and stdout
#[derive(clap::Args)]
#[command(after_help = "Example, as an agent starts it:\n  lockkeeper mcp\n\n\
    Agents start this command by themselves once it is in their settings, where `lockkeeper init` puts it. Its tools: board, check, claim, \
    commit, hand_over, note, release, wait, why.")]
pub(super) struct Args {}

impl Verb for Args {
    const NAME: &'static str = "mcp";

    fn run(self, globals: &Globals) -> Result<Exit, Report> {
        let context = Context::new(globals)?;
        let is_named = context.location.source == LocationSource::Named;
        let options = McpOptions {
            state: is_named.then(|| context.location.state.clone()),
            cwd: context.cwd,
            variable,
            settings: settings_of,
        };
        serve_mcp(options).map_err(|error| Report::machine(&error))?;
        Ok(Exit::Done)
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The settings of a project. If they cannot be read, the defaults hold: the claims matter more than their times.
fn settings_of(root: &Path) -> Settings {
    let config = Config::load(&Inputs { root, variable: &variable, flags: &[] });
    config.map_or_else(|_| Settings::default(), |config| settings(&config))
}
