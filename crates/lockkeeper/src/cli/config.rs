//! `config`: lists the files of settings, and every setting with its source.

use lockkeeper_engine::config::CommandSetting;
use lockkeeper_engine::location::LocationSource;
use lockkeeper_engine::report::{Exit, Report};
use serde_json::{Value, json};

use super::context::{Context, Globals};
use super::{Verb, print, table};

/// What an entry of `[agents.commands]` is for.
const MEANING: &str = "the name that is held while an agent runs such a command";

/// Show the files of settings, and every setting with where it comes from
#[derive(clap::Args)]
#[command(after_help = "Example:\n  lockkeeper config\n\n\
    Later sources win: the default, the user's file, the project's file, the environment, the flag.")]
pub(super) struct Args {}

impl Verb for Args {
    const NAME: &'static str = "config";

    fn run(self, globals: &Globals) -> Result<Exit, Report> {
        run(&Context::new(globals)?)
    }
}

fn run(context: &Context) -> Result<Exit, Report> {
    let source = match context.location.source {
        LocationSource::Named => "named",
        LocationSource::Git => "inside the git folder",
        LocationSource::Found => "found here or above",
        LocationSource::Here => "would be made here",
    };
    let state = context.location.state.display().to_string();
    let root = context.location.root.display().to_string();
    if context.json {
        let settings: Vec<Value> = context
            .config
            .settings()
            .iter()
            .map(|setting| {
                json!({ "key": setting.key, "value": setting.value, "source": setting.source.to_string(), "meaning": setting.meaning })
            })
            .chain(context.config.commands().iter().map(|command| {
                json!({ "key": key_of(command), "value": command.name.as_str(), "source": command.source.to_string(), "meaning": MEANING })
            }))
            .collect();
        let files = context.config.files().iter();
        let files: Vec<Value> = files
            .map(|file| json!({ "of": file.of, "path": file.path.display().to_string(), "exists": file.exists }))
            .collect();
        print::json(&json!({
            "state": state, "state_because": source, "root": root, "files": files, "settings": settings,
        }));
        return Ok(Exit::Done);
    }
    let rows = context.config.settings().iter().map(|setting| {
        let value = setting.value.clone().unwrap_or_else(|| "(not set)".to_owned());
        vec![setting.key.to_owned(), value, setting.source.to_string(), setting.meaning.to_owned()]
    });
    let commands = context.config.commands().iter().map(|command| {
        let name = command.name.to_string();
        vec![table::plain(&key_of(command)), name, command.source.to_string(), MEANING.to_owned()]
    });
    let rows = rows.chain(commands);
    let mut head = format!("state    {state}  ({source})\nroot     {root}  (paths are relative to it)\n");
    for file in context.config.files() {
        let is_there = if file.exists { "" } else { "  (not there)" };
        head.push_str(&format!(
            "{:<8} {}{is_there}\n",
            file.of,
            table::plain(&file.path.display().to_string())
        ));
    }
    print::out(&format!("{head}\n"));
    print::out(&table::list(&["SETTING", "VALUE", "FROM", "MEANING"], &rows.collect::<Vec<_>>()));
    Ok(Exit::Done)
}

/// The key of a pattern, as TOML writes it.
fn key_of(command: &CommandSetting) -> String {
    format!("agents.commands.{:?}", command.pattern)
}
