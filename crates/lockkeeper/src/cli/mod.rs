//! The command line: one file a command; each parses, makes one call to the engine, and prints.

mod acquire;
mod args;
mod completions;
mod config;
mod conflicts;
mod context;
mod exec;
mod fence;
mod group;
mod lifecycle;
mod locks;
mod man;
mod obtain;
mod print;
mod shell_init;
mod table;
mod watch;
mod why;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use lockkeeper::report::{Exit, Report};

use context::{Context, Globals};

/// Locks, claims on paths and fair waiting for many workers in one repository.
#[derive(Parser)]
#[command(name = "lockkeeper", version, propagate_version = true, arg_required_else_help = true)]
#[command(
    after_help = "Exit codes: 0 done, 1 failed, 2 bad input, 69 store unreachable, 75 held by another, \
                        76 lease lost; `exec` passes the command's own code on."
)]
struct Cli {
    #[command(flatten)]
    globals: Globals,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Hold a lease while a command runs
    Exec(exec::Args),
    /// Take a lease and leave it; does not wait unless told
    Acquire(acquire::Args),
    /// Say that the holder of a lease is still there
    Renew(lifecycle::RenewArgs),
    /// Give a lease back
    Release(lifecycle::ReleaseArgs),
    /// Make a shared lease exclusive; it stays shared when that fails
    Upgrade(lifecycle::UpgradeArgs),
    /// Make an exclusive lease shared
    Downgrade(lifecycle::ReleaseArgs),
    /// Succeed only while a token is the current one for a name or path
    Fence(fence::Args),
    /// Show who holds and who waits; find cycles, clean up, force
    Locks(locks::Args),
    /// Explain why a name or path is held or free, and what to do
    Why(why::Args),
    /// Compare patterns: can two of them match one same path?
    Conflicts(conflicts::Args),
    /// Lock groups with flock files and their registry, together with shell scripts
    Group(group::Args),
    /// Print shell functions for group locks: acquire_lock, release_lock and others
    ShellInit,
    /// Show every setting and where it comes from
    Config,
    /// Print a completion script for a shell
    Completions(completions::Args),
    /// Write the manual pages
    Man(man::Args),
}

/// Runs the command that the arguments ask for.
pub fn run() -> Exit {
    let matches = match Cli::command().try_get_matches() {
        Ok(matches) => matches,
        Err(error) => return usage(&error),
    };
    let cli = match Cli::from_arg_matches(&matches) {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let json = cli.globals.json;
    match dispatch(cli) {
        Ok(exit) => exit,
        Err(report) => {
            print::report(&report, json);
            report.exit()
        }
    }
}

/// Prints what clap has to say: help on stdout, mistakes on stderr.
fn usage(error: &clap::Error) -> Exit {
    let asked_for_json = std::env::args_os().take_while(|arg| arg != "--").any(|arg| arg == "--json");
    if error.use_stderr() && asked_for_json {
        let text = error.to_string();
        let message = text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
        print::report(
            &Report::usage(message).with_hint("`lockkeeper COMMAND --help` tells what is possible"),
            true,
        );
        return Exit::Usage;
    }
    // Nothing can be done when even this cannot be printed.
    let _ = error.print();
    if error.use_stderr() { Exit::Usage } else { Exit::Done }
}

fn dispatch(cli: Cli) -> Result<Exit, Report> {
    let context = || Context::new(&cli.globals);
    match cli.command {
        Command::Exec(args) => exec::run(&context()?, args),
        Command::Acquire(args) => acquire::run(&context()?, &args),
        Command::Renew(args) => lifecycle::renew(&context()?, &args),
        Command::Release(args) => lifecycle::release(&context()?, &args),
        Command::Upgrade(args) => lifecycle::upgrade(&context()?, &args),
        Command::Downgrade(args) => lifecycle::downgrade(&context()?, &args),
        Command::Fence(args) => fence::run(&context()?, &args),
        Command::Locks(args) => locks::run(&context()?, &args),
        Command::Why(args) => why::run(&context()?, &args),
        Command::Conflicts(args) => conflicts::run(&context()?, &args),
        Command::Group(args) => group::run(&context()?, args),
        Command::ShellInit => shell_init::run(),
        Command::Config => config::run(&context()?),
        Command::Completions(args) => completions::run(&args),
        Command::Man(args) => man::run(&args),
    }
}
