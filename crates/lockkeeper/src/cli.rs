//! The command line. Each command has one file: it parses its arguments, calls the engine once, and prints the result.

mod acquire;
mod agent_owner;
mod agent_settings;
mod args;
mod board;
mod commit;
mod complete;
mod completions;
mod config;
mod conflicts;
mod context;
mod demo;
mod doctor;
mod exec;
mod fence;
mod git_hook;
mod git_wrapper;
mod group;
mod hook;
mod hosts;
mod init;
mod lifecycle;
mod lockfiles;
mod locks;
mod man;
mod mcp;
mod note;
mod obtain;
mod overview;
mod predict;
mod print;
mod queue;
mod requests;
mod rescue;
mod run;
mod runs;
mod serve;
mod session_guardian;
mod shell_init;
mod sprint;
mod stages;
mod status;
#[cfg(feature = "postgres")]
mod store;
mod submit;
mod table;
mod task;
mod usage;
mod wait;
mod watch;
mod why;
mod work;
mod work_live;

use std::ffi::OsString;
use std::io::{self, Write};

use anstyle::Style;
use clap::{ArgMatches, Command, FromArgMatches};
use lockkeeper_engine::report::{Exit, Report};

use context::{Context, Globals};

/// One command: its arguments, and the function that runs it.
trait Verb: clap::Args {
    /// The name on the command line.
    const NAME: &'static str;

    /// Runs the command.
    fn run(self, globals: &Globals) -> Result<Exit, Report>;
}

/// An entry in the table of commands.
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

/// Commands under one heading of `--help`.
struct Group {
    heading: &'static str,
    verbs: &'static [Entry],
}

/// Every command, in the order of `--help`.
const GROUPS: &[Group] = &[
    Group { heading: "Start here", verbs: &[Entry::of::<status::Args>(), Entry::of::<demo::Args>()] },
    Group {
        heading: "Locks",
        verbs: &[
            Entry::of::<exec::Args>(),
            Entry::of::<acquire::Args>(),
            Entry::of::<lifecycle::ReleaseArgs>(),
            Entry::of::<lifecycle::RenewArgs>(),
            Entry::of::<lifecycle::UpgradeArgs>(),
            Entry::of::<lifecycle::DowngradeArgs>(),
            Entry::of::<fence::Args>(),
            Entry::of::<locks::Args>(),
            Entry::of::<why::Args>(),
        ],
    },
    Group {
        heading: "Queue",
        verbs: &[
            Entry::of::<submit::Args>(),
            Entry::of::<work::Args>(),
            Entry::of::<requests::Args>(),
            Entry::of::<runs::Args>(),
            Entry::of::<run::Args>(),
            Entry::of::<queue::Args>(),
            Entry::of::<hosts::Args>(),
        ],
    },
    Group { heading: "Stages", verbs: &[Entry::of::<stages::Args>(), Entry::of::<conflicts::Args>()] },
    Group {
        heading: "Coding agents",
        verbs: &[
            Entry::of::<init::Args>(),
            Entry::of::<board::Args>(),
            Entry::of::<wait::Args>(),
            Entry::of::<note::Args>(),
            Entry::of::<commit::Args>(),
            Entry::of::<mcp::Args>(),
            Entry::of::<hook::Args>(),
            Entry::of::<git_hook::Args>(),
        ],
    },
    Group {
        heading: "Lock files of other systems",
        verbs: &[
            Entry::of::<sprint::Args>(),
            Entry::of::<task::Args>(),
            Entry::of::<group::Args>(),
            Entry::of::<shell_init::Args>(),
        ],
    },
    Group {
        heading: "Care",
        verbs: &[
            Entry::of::<doctor::Args>(),
            Entry::of::<serve::Args>(),
            #[cfg(feature = "postgres")]
            Entry::of::<store::Args>(),
            Entry::of::<config::Args>(),
            Entry::of::<completions::Args>(),
            Entry::of::<complete::Args>(),
            Entry::of::<man::Args>(),
            Entry::of::<session_guardian::Args>(),
        ],
    },
];

/// Every command.
fn verbs() -> impl Iterator<Item = &'static Entry> {
    GROUPS.iter().flat_map(|group| group.verbs)
}

/// Runs the command that the arguments name.
pub fn run() -> Exit {
    let words: Vec<OsString> = std::env::args_os().collect();
    if git_wrapper::is_called(words.first()) {
        return git_wrapper::run(&words[1..]);
    }
    let args = args::join_wait(words);
    // A hook never ends with a usage error: harnesses would refuse every edit.
    let asks_for_help = || args.iter().any(|arg| arg == "--help" || arg == "-h");
    if args.get(1).is_some_and(|arg| arg == "hook") && !asks_for_help() {
        return hook::run();
    }
    let matches = match parse(&args) {
        Ok(matches) => matches,
        Err(error) => return usage(&error, &args),
    };
    let globals = match Globals::from_arg_matches(&matches) {
        Ok(globals) => globals,
        Err(error) => return usage(&error, &args),
    };
    let done = match matches.subcommand() {
        None => Context::new(&globals).and_then(|context| overview::run(&context)),
        Some((name, matches)) => {
            let entry = verbs().find(|entry| entry.name == name);
            (entry.expect("only these are defined").run)(&globals, matches)
        }
    };
    let done = done.and_then(|exit| match exit {
        Exit::Done => print::check_written("what the command was to do is done").map(|()| exit),
        _ => Ok(exit),
    });
    done.unwrap_or_else(|report| {
        print::report(&report, globals.json, context::language(&globals));
        report.exit()
    })
}

/// The definition of the whole command line.
fn command_line() -> Command {
    let root = tree(&verbs().collect::<Vec<_>>());
    let template = help_template(&root);
    root.help_template(template)
}

/// Where the descriptions of commands begin in the help.
const INDENT: usize = 15;

/// The help of the program: clap lists all commands under one heading, so the groups are written here.
fn help_template(root: &Command) -> String {
    let (bold, heading) = (Style::new().bold(), Style::new().bold().underline());
    let columns = table::terminal_columns().unwrap_or(usize::MAX);
    let mut text = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    for group in GROUPS {
        text.push_str(&format!("\n{heading}{}:{heading:#}\n", group.heading));
        let commands = group.verbs.iter().filter_map(|entry| root.find_subcommand(entry.name));
        for command in commands.filter(|command| !command.is_hide_set()) {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            let about = table::wrapped(&about, columns.saturating_sub(INDENT), INDENT);
            text.push_str(&format!("  {bold}{:<13}{bold:#}{about}\n", command.get_name()));
        }
    }
    text + &format!("\n{heading}Global options:{heading:#}\n{{options}}{{after-help}}")
}

fn tree(entries: &[&Entry]) -> Command {
    // The flags come first: they set a description, which the program's own then replaces.
    let root = <Globals as clap::Args>::augment_args(Command::new("lockkeeper"))
        .version(env!("CARGO_PKG_VERSION"))
        .about("Locks, claims on paths and fair waiting for many workers in one repository")
        .after_help(
            "`lockkeeper` alone shows what is held, who waits and what failed. `lockkeeper COMMAND --help` has examples.\n\n\
             Exit codes: 0 done, 1 failed, 2 bad input, 69 store unreachable, 75 held by another, 76 lease lost; \
             `exec` passes the command's own code on.",
        );
    root.subcommands(entries.iter().map(|entry| (entry.augment)(Command::new(entry.name))))
}

/// Parses the arguments. Building the definition of all commands takes longer than acquiring a lock, so the first try builds
/// only the one that is named.
fn parse(args: &[OsString]) -> Result<ArgMatches, clap::Error> {
    let named = args.iter().skip(1).find_map(|arg| verbs().find(|entry| arg == entry.name));
    let quick = named.and_then(|entry| tree(&[entry]).try_get_matches_from(args).ok());
    quick.map_or_else(|| command_line().try_get_matches_from(args), Ok)
}

/// Prints help on stdout, and usage errors like all other errors.
fn usage(error: &clap::Error, args: &[OsString]) -> Exit {
    use clap::error::ErrorKind;
    if !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let printed = error.print().and_then(|()| io::stdout().flush());
        if error.use_stderr() {
            return Exit::Usage;
        }
        print::went_on(printed);
        let written = print::check_written("nothing was done");
        return written.map_or_else(
            |report| {
                print::report(&report, false, context::language_of(None));
                report.exit()
            },
            |()| Exit::Done,
        );
    }
    let words: Vec<String> = args.iter().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let json = words.iter().take_while(|word| *word != "--").any(|word| word == "--json");
    let named = words.iter().zip(words.iter().skip(1)).find(|(flag, _)| *flag == "--lang");
    let joined = words.iter().find_map(|word| word.strip_prefix("--lang="));
    let language = context::language_of(named.map(|(_, value)| value.as_str()).or(joined));
    print::report(&usage::report(error, &words), json, language);
    Exit::Usage
}
