//! The command line: one file a command; each parses, makes one call to the engine, and prints.

mod acquire;
mod args;
mod completions;
mod config;
mod conflicts;
mod context;
mod doctor;
mod exec;
mod fence;
mod group;
mod hold;
mod lifecycle;
mod lockfiles;
mod locks;
mod man;
mod obtain;
mod predict;
mod print;
mod queue;
mod requests;
mod run;
mod runs;
mod serve;
mod shell_init;
mod sprint;
mod stages;
mod status;
mod submit;
mod table;
mod task;
mod usage;
mod watch;
mod why;
mod work;
mod work_live;

use std::ffi::OsString;

use clap::{ArgMatches, Command, FromArgMatches};
use lockkeeper_engine::report::{Exit, Report};

use context::Globals;

/// One command: what it takes, and what it does.
trait Verb: clap::Args {
    /// The word on the command line.
    const NAME: &'static str;

    /// Does it.
    fn run(self, globals: &Globals) -> Result<Exit, Report>;
}

/// A command as the table below has it.
struct Entry {
    name: &'static str,
    augment: fn(Command) -> Command,
    run: fn(&Globals, &ArgMatches) -> Result<Exit, Report>,
}

impl Entry {
    const fn of<V: Verb>() -> Self {
        Self { name: V::NAME, augment: V::augment_args, run: run_verb::<V> }
    }
}

fn run_verb<V: Verb>(globals: &Globals, matches: &ArgMatches) -> Result<Exit, Report> {
    V::from_arg_matches(matches).map_err(|error| Report::usage(error.to_string()))?.run(globals)
}

/// Every command, in the order in which help shows them.
const VERBS: &[Entry] = &[
    Entry::of::<exec::Args>(),
    Entry::of::<acquire::Args>(),
    Entry::of::<lifecycle::RenewArgs>(),
    Entry::of::<lifecycle::ReleaseArgs>(),
    Entry::of::<lifecycle::UpgradeArgs>(),
    Entry::of::<lifecycle::DowngradeArgs>(),
    Entry::of::<fence::Args>(),
    Entry::of::<locks::Args>(),
    Entry::of::<why::Args>(),
    Entry::of::<doctor::Args>(),
    Entry::of::<conflicts::Args>(),
    Entry::of::<stages::Args>(),
    Entry::of::<submit::Args>(),
    Entry::of::<requests::Args>(),
    Entry::of::<runs::Args>(),
    Entry::of::<run::Args>(),
    Entry::of::<sprint::Args>(),
    Entry::of::<task::Args>(),
    Entry::of::<status::Args>(),
    Entry::of::<group::Args>(),
    Entry::of::<serve::Args>(),
    Entry::of::<shell_init::Args>(),
    Entry::of::<work::Args>(),
    Entry::of::<queue::Args>(),
    Entry::of::<config::Args>(),
    Entry::of::<completions::Args>(),
    Entry::of::<man::Args>(),
];

/// Runs the command that the arguments ask for.
pub fn run() -> Exit {
    let args: Vec<OsString> = std::env::args_os().collect();
    let matches = match parse(&args) {
        Ok(matches) => matches,
        Err(error) => return usage(&error, &args),
    };
    let globals = match Globals::from_arg_matches(&matches) {
        Ok(globals) => globals,
        Err(error) => return usage(&error, &args),
    };
    let Some((name, matches)) = matches.subcommand() else { return Exit::Usage };
    let Some(entry) = VERBS.iter().find(|entry| entry.name == name) else { return Exit::Usage };
    (entry.run)(&globals, matches).unwrap_or_else(|report| {
        print::report(&report, globals.json);
        report.exit()
    })
}

/// The definition of the whole command line.
fn command_line() -> Command {
    tree(&VERBS.iter().collect::<Vec<_>>())
}

fn tree(entries: &[&Entry]) -> Command {
    // The flags first: they would put their own description in the place of the program's.
    let root = <Globals as clap::Args>::augment_args(Command::new("lockkeeper"))
        .version(env!("CARGO_PKG_VERSION"))
        .about("Locks, claims on paths and fair waiting for many workers in one repository")
        .after_help(
            "Exit codes: 0 done, 1 failed, 2 bad input, 69 store unreachable, 75 held by another, 76 lease lost; \
             `exec` passes the command's own code on.",
        )
        .subcommand_required(true)
        .arg_required_else_help(true);
    root.subcommands(entries.iter().map(|entry| (entry.augment)(Command::new(entry.name))))
}

/// Defining all commands takes longer than taking a lock, so only the one that is named is defined at first.
fn parse(args: &[OsString]) -> Result<ArgMatches, clap::Error> {
    let named = args.iter().skip(1).find_map(|arg| VERBS.iter().find(|entry| arg == entry.name));
    let quick = named.and_then(|entry| tree(&[entry]).try_get_matches_from(args).ok());
    quick.map_or_else(|| command_line().try_get_matches_from(args), Ok)
}

/// Prints what clap has to say: help on stdout, mistakes as every other mistake.
fn usage(error: &clap::Error, args: &[OsString]) -> Exit {
    use clap::error::ErrorKind;
    if !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        // Nothing can be done when even this cannot be printed.
        let _ = error.print();
        return if error.use_stderr() { Exit::Usage } else { Exit::Done };
    }
    let words: Vec<String> = args.iter().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let json = words.iter().take_while(|word| *word != "--").any(|word| word == "--json");
    print::report(&usage::report(error, &words), json);
    Exit::Usage
}
