//! `completions`: prints completion scripts, generated from the command definitions.

use clap_complete::Shell;
use lockkeeper_engine::report::{Exit, Report};

use super::Verb;
use super::context::Globals;

/// Print a completion script for a shell
#[derive(clap::Args)]
#[command(
    after_help = "Example: lockkeeper completions bash > ~/.local/share/bash-completion/completions/lockkeeper"
)]
pub(super) struct Args {
    /// The shell
    shell: Shell,
}

impl Verb for Args {
    const NAME: &'static str = "completions";

    fn run(self, _: &Globals) -> Result<Exit, Report> {
        run(&self)
    }
}

fn run(args: &Args) -> Result<Exit, Report> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut super::command_line(), "lockkeeper", &mut script);
    super::print::out(&String::from_utf8_lossy(&script));
    Ok(Exit::Done)
}
