//! `conflicts rules`: the parsed rules of a STAGES.yml.

use lockkeeper_core::conflict::Action;
use lockkeeper_core::pattern::Pattern;
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_stages::json::rule_to_json;
use serde_json::{Value, json};

use crate::cli::context::Context;
use crate::cli::{print, stages, table};

#[derive(clap::Args)]
pub(super) struct Args {
    /// The STAGES.yml, or - for stdin
    #[arg(value_name = "FILE")]
    file: String,
}

pub(super) fn run(context: &Context, args: &Args) -> Result<Exit, Report> {
    let stages = stages::load_valid(context, &args.file)?.stages;
    let mut rules: Vec<_> = stages.rules.iter().map(|rule| &rule.value).collect();
    // The order in which they are tried.
    rules.sort_by_key(|rule| (std::cmp::Reverse(rule.action.strategy()), rule.priority));
    let default = stages.resolution.default_strategy.map_or(Action::DowngradeToSerial, |action| action.value);
    if context.json {
        let rules: Vec<Value> = rules.into_iter().map(rule_to_json).collect();
        print::json(&json!({ "rules": rules, "default_strategy": default.as_str() }));
        return Ok(Exit::Done);
    }
    let rows: Vec<Vec<String>> = rules
        .iter()
        .map(|rule| {
            let paths: Vec<&str> = rule.paths.iter().map(Pattern::as_str).collect();
            vec![
                table::plain(&rule.name),
                rule.severity.to_string(),
                rule.action.to_string(),
                rule.priority.to_string(),
                table::plain(&paths.join(" ")),
            ]
        })
        .collect();
    print::out(&table::table(&["RULE", "SEVERITY", "ACTION", "PRIORITY", "PATHS"], &rows));
    print::talk(&format!("what no rule covers: {default}"));
    Ok(Exit::Done)
}
