//! `stages`: checks, plans and executes the phases of a STAGES.yml. Here are the arguments, and reading the file.

mod check;
mod live;
mod plan;
mod problems;
mod report;
mod run;

use std::io;
use std::path::Path;

use clap::Subcommand;
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_stages::{File, Level, Problem};

use super::context::{Context, Globals};
use super::{Verb, print, table};

/// Check, plan and run phases of groups without conflicts between them
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  lockkeeper stages check STAGES.yml\n  lockkeeper stages plan STAGES.yml P3\n  \
    lockkeeper stages plan STAGES.yml P3 --svg > plan.svg\n  lockkeeper stages run STAGES.yml P3\n  \
    lockkeeper stages report STAGES.yml"
)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List all errors, warnings and unknown keys of a file; exit 2 if it has errors
    Check(check::Args),
    /// Show how a phase would run: mode, waves, conflicts, and the reasons
    Plan(plan::Args),
    /// Run a phase, or all of them: groups in parallel where they do not conflict
    Run(run::Args),
    /// Summarize past executions: speed-up, waits, conflicts, downgrades
    Report(report::Args),
}

impl Verb for Args {
    const NAME: &'static str = "stages";

    fn run(self, globals: &Globals) -> Result<Exit, Report> {
        let here = || Context::new(globals);
        match &self.command {
            Command::Check(args) => check::run(&here()?, args),
            Command::Plan(args) => plan::run(&Context::of_file(globals, args.path())?, args),
            Command::Run(args) => run::run(&Context::of_file(globals, &args.file)?, args),
            Command::Report(args) => report::run(&here()?, args),
        }
    }
}

/// Reads a file, also one with errors.
pub(super) fn load(name: &str) -> Result<File, Report> {
    let file = match name {
        "-" => File::from_reader("stdin", io::stdin().lock()),
        path => File::load(Path::new(path)),
    };
    file.map_err(Report::from)
}

/// Reads a file that is to be planned or run, and prints its warnings. Refuses one with errors, and prints all of them.
pub(super) fn load_valid(context: &Context, name: &str) -> Result<File, Report> {
    let file = load(name)?;
    let report = Report::unsound(&file, &table::plain(&file.name));
    if !context.json {
        let shown = |problem: &&Problem| report.is_none() || problem.level == Level::Error;
        for problem in file.problems.iter().filter(shown) {
            print::talk(&problems::render(&file, problem, context.phrases()));
        }
        if report.is_none() {
            file.unknown
                .iter()
                .for_each(|key| print::talk(&problems::unknown(&file, key, context.phrases())));
        }
    }
    report.map_or(Ok(file), Err)
}
