//! `run`: shows, follows, cancels and moves one run.

mod logs;
mod moves;
mod show;
mod wait;

use clap::Subcommand;
use lockkeeper_core::run::Run;
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_engine::runs::{RunError, Runs};

use super::Verb;
use super::context::{Context, Globals};

pub(super) use wait::wait_for;

/// Show a run, its events and its output; wait for it; cancel it; run it again
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  lockkeeper run show tests\n  lockkeeper run logs tests --follow\n\n\
    A run is named by its id, by the id of its request, or by a unique beginning or end of what lists show of them.\n\n\
    `claim` and `mark` are the bare compare-and-set for programs that execute runs themselves: exit 0 won, 75 lost.")]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show all of a run
    Show(Which),
    /// Print its events, one per line
    Events(show::EventsArgs),
    /// Print its output, byte for byte
    Logs(logs::Args),
    /// Wait for its end, and exit as its command did
    Wait(wait::Args),
    /// Cancel it; a worker stops its command
    Cancel(moves::CancelArgs),
    /// Run its request again
    Retry(Which),
    /// Answer a request that needs input: it runs again, with the answer in LOCKKEEPER_ANSWER
    Answer(moves::AnswerArgs),
    /// Claim it, for a program that executes it itself; prints the number of the claim
    Claim(moves::ClaimArgs),
    /// Move it, for a program that executes it itself
    Mark(moves::MarkArgs),
}

/// The run, by any of its names.
#[derive(clap::Args)]
struct Which {
    /// The id of a run or of a request, or a unique part of one, such as k3x
    #[arg(value_name = "RUN")]
    run: String,
}

impl Which {
    /// Finds the run. Queued runs whose queue timeout has ended are expired first.
    fn find(&self, context: &Context) -> Result<(Runs, Run), Report> {
        let no_run = || RunError::NoRun(self.run.clone());
        let runs = context.existing_runs()?.ok_or_else(no_run)?;
        runs.expire()?;
        let run = runs.find(&self.run)?;
        Ok((runs, run))
    }
}

impl Verb for Args {
    const NAME: &'static str = "run";

    fn run(self, globals: &Globals) -> Result<Exit, Report> {
        let context = Context::new(globals)?;
        match &self.command {
            Command::Show(which) => show::run(&context, which),
            Command::Events(args) => show::events(&context, args),
            Command::Logs(args) => logs::run(&context, args),
            Command::Wait(args) => wait::run(&context, args),
            Command::Cancel(args) => moves::cancel(&context, args),
            Command::Retry(which) => moves::retry(&context, which),
            Command::Answer(args) => moves::answer(&context, args),
            Command::Claim(args) => moves::claim(&context, args),
            Command::Mark(args) => moves::mark(&context, args),
        }
    }
}
