//! `stages check`: lists all errors, warnings and unknown keys of a file.

use lockkeeper_engine::messages::{Language, Phrases};
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_stages::File;
use lockkeeper_stages::json::check_to_json;

use super::{load, problems};
use crate::cli::context::Context;
use crate::cli::{print, table};

#[derive(clap::Args)]
pub(super) struct Args {
    /// The STAGES.yml, or - for stdin
    #[arg(value_name = "FILE")]
    file: String,
    /// Count warnings and unknown keys as errors
    #[arg(long)]
    strict: bool,
}

pub(super) fn run(context: &Context, args: &Args) -> Result<Exit, Report> {
    let file = load(&args.file)?;
    let is_valid = file.errors().next().is_none();
    let is_strictly_valid = file.problems.is_empty() && file.unknown.is_empty();
    let passed = if args.strict { is_strictly_valid } else { is_valid };
    if context.json {
        let mut value = check_to_json(&file);
        value["valid"] = passed.into();
        print::json(&value);
    } else {
        let english = Phrases::load(Language::En);
        for problem in &file.problems {
            print::data(&problems::render(&file, problem, &english));
        }
        for key in &file.unknown {
            print::data(&problems::unknown(&file, key, &english));
        }
        print::data(&summary(&file));
    }
    Ok(if passed { Exit::Done } else { Exit::Usage })
}

fn summary(file: &File) -> String {
    let counted =
        |count: usize, one: &str, many: &str| format!("{count} {}", if count == 1 { one } else { many });
    let stages = &file.stages;
    let groups: usize = stages.phases.iter().map(|phase| phase.groups.len()).sum();
    let content = [
        counted(stages.phases.len(), "phase", "phases"),
        counted(groups, "group", "groups"),
        counted(stages.dependencies.len(), "dependency", "dependencies"),
        counted(stages.rules.len(), "rule", "rules"),
        counted(stages.downgrades.len(), "downgrade rule", "downgrade rules"),
    ];
    let found = [
        counted(file.errors().count(), "error", "errors"),
        counted(file.warnings().count(), "warning", "warnings"),
        counted(file.unknown.len(), "unknown key", "unknown keys"),
    ];
    format!("{}: {}; {}", table::plain(&file.name), content.join(", "), found.join(", "))
}
