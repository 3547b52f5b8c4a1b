//! `config`: lists every setting and its source.

use lockkeeper_engine::location::LocationSource;
use lockkeeper_engine::report::{Exit, Report};
use serde_json::{Value, json};

use super::context::{Context, Globals};
use super::{Verb, print, table};

/// Show every setting and where it comes from
#[derive(clap::Args)]
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
            .collect();
        print::json(&json!({ "state": state, "state_because": source, "root": root, "settings": settings }));
        return Ok(Exit::Done);
    }
    let rows = context.config.settings().iter().map(|setting| {
        let value = setting.value.clone().unwrap_or_else(|| "(not set)".to_owned());
        vec![setting.key.to_owned(), value, setting.source.to_string(), setting.meaning.to_owned()]
    });
    print::out(&format!("state  {state}  ({source})\nroot   {root}  (paths are relative to it)\n\n"));
    print::out(&table::table(&["SETTING", "VALUE", "FROM", "MEANING"], &rows.collect::<Vec<_>>()));
    Ok(Exit::Done)
}
