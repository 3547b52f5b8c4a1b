//! `completions`: prints completion scripts. Those of bash, zsh and fish ask `lockkeeper complete`, so that they know names and
//! ids; those of other shells are generated from the command definitions.

use clap_complete::Shell;
use lockkeeper_engine::report::{Exit, Report};

use super::Verb;
use super::context::Globals;

/// Print a completion script for a shell
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  lockkeeper completions bash > ~/.local/share/bash-completion/completions/lockkeeper\n  \
    lockkeeper completions zsh > ~/.zsh/completions/_lockkeeper    # a folder of $fpath\n  \
    lockkeeper completions fish > ~/.config/fish/completions/lockkeeper.fish\n\n\
    In bash, zsh and fish they complete lock names, leases, owners, runs, requests, phases, groups, and the command after `--`."
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
    let script = match args.shell {
        Shell::Bash => include_str!("complete/lockkeeper.bash").to_owned(),
        Shell::Zsh => include_str!("complete/lockkeeper.zsh").to_owned(),
        Shell::Fish => include_str!("complete/lockkeeper.fish").to_owned(),
        shell => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut super::command_line(), "lockkeeper", &mut script);
            String::from_utf8_lossy(&script).into_owned()
        }
    };
    super::print::out(&script);
    Ok(Exit::Done)
}
