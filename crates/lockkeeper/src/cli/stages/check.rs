//! `stages check`: everything that is wrong with a file, at once.

use lockkeeper::report::{Exit, Report};
use lockkeeper::stages::encoding::check_to_json;
use lockkeeper::stages::{File, Weight};

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
    let sound = file.errors().next().is_none();
    let strictly_sound = file.problems.is_empty() && file.unknown.is_empty();
    let passed = if args.strict { strictly_sound } else { sound };
    if context.json {
        let mut value = check_to_json(&file);
        value["valid"] = passed.into();
        print::json(&value);
    } else {
        for problem in &file.problems {
            print::data(&problems::render(&file, problem));
        }
        for key in &file.unknown {
            let (path, value) = (table::plain(&key.path), table::plain(&key.value));
            print::data(&format!(
                "unknown key: {}:{}: {path} ({value})",
                table::plain(&file.name),
                key.place
            ));
        }
        print::data(&summary(&file));
    }
    Ok(if passed { Exit::Done } else { Exit::Usage })
}

fn summary(file: &File) -> String {
    let counted = |count: usize, what: &str| match count {
        1 => format!("1 {what}"),
        _ => format!(
            "{count} {}",
            if let Some(stem) = what.strip_suffix('y') { format!("{stem}ies") } else { format!("{what}s") }
        ),
    };
    let stages = &file.stages;
    let groups: usize = stages.phases.iter().map(|phase| phase.groups.len()).sum();
    let warnings = file.problems.iter().filter(|problem| problem.weight == Weight::Warning).count();
    let content = [
        counted(stages.phases.len(), "phase"),
        counted(groups, "group"),
        counted(stages.dependencies.len(), "dependency"),
        counted(stages.rules.len(), "rule"),
        counted(stages.downgrades.len(), "downgrade rule"),
    ];
    let found = [
        counted(file.errors().count(), "error"),
        counted(warnings, "warning"),
        counted(file.unknown.len(), "unknown key"),
    ];
    format!("{}: {}; {}", table::plain(&file.name), content.join(", "), found.join(", "))
}
