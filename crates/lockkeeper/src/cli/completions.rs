//! `completions`: scripts made from the command definitions.

use clap::CommandFactory;
use clap_complete::Shell;
use lockkeeper::report::{Exit, Report};

/// Print a completion script for a shell
#[derive(clap::Args)]
#[command(
    after_help = "Example: lockkeeper completions bash > ~/.local/share/bash-completion/completions/lockkeeper"
)]
pub(super) struct Args {
    /// Which shell
    shell: Shell,
}

pub(super) fn run(args: &Args) -> Result<Exit, Report> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut super::Cli::command(), "lockkeeper", &mut script);
    super::print::out(&String::from_utf8_lossy(&script));
    Ok(Exit::Done)
}
