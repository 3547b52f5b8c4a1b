//! `complete`: what can be written next on a command line. The scripts of `completions` call it for bash, zsh and fish.
//!
//! It prints one candidate per line, with a description behind a tab. Lines that begin with `:` tell the shell what else to
//! complete: `:files`, `:folders`, or `:command N` for the command that begins at word N. It never creates a store, never
//! prints an error, and always exits with 0.

mod line;
mod values;

use std::ffi::OsString;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use clap::Command;
use lockkeeper_engine::report::{Exit, Report};

use self::line::{Expected, Line};
use self::values::Offer;
use super::context::Globals;
use super::{Verb, print, table, verbs};

/// How long a shell waits for candidates at most. A store that does not answer must not hold up the user.
const LIMIT: Duration = Duration::from_secs(1);

/// Print what can be written next on a command line
#[derive(clap::Args)]
#[command(hide = true)]
pub(super) struct Args {
    /// The words behind `lockkeeper`, up to the one that is being written
    #[arg(last = true, value_name = "WORD")]
    words: Vec<OsString>,
}

impl Verb for Args {
    const NAME: &'static str = "complete";

    fn run(self, _: &Globals) -> Result<Exit, Report> {
        let words: Vec<String> = self.words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let (sender, receiver) = mpsc::channel();
        // If no thread can be started, there are no candidates.
        let _ = thread::Builder::new().name("complete".to_owned()).spawn(move || {
            // After the time limit the receiver is gone.
            let _ = sender.send(offer(&words));
        });
        if let Ok(offer) = receiver.recv_timeout(LIMIT) {
            print::out(&written(&offer));
        }
        Ok(Exit::Done)
    }
}

/// What can be written in the place of the last word.
fn offer(words: &[String]) -> Offer {
    let mut root = definition(words);
    root.build();
    let line = Line::read(&root, words);
    let mut offer = match &line.expected {
        Expected::Option => options(line.command),
        Expected::Value(arg) => values::of(&line, arg),
        Expected::Word(arg) => {
            let mut offer = arg.map_or_else(Offer::default, |arg| values::of(&line, arg));
            if line.operands.is_empty() {
                offer.candidates.extend(commands(line.command));
            }
            offer
        }
        Expected::CommandLine(first) => Offer { command_at: Some(*first), ..Offer::default() },
    };
    offer.candidates.retain(|candidate| candidate.value.starts_with(line.typed));
    offer.before = line.before.to_owned();
    offer
}

/// The definition of the command that the words name; of all commands if they name none.
fn definition(words: &[String]) -> Command {
    let (_, before) = words.split_last().unzip();
    let named = before.unwrap_or_default().iter().find_map(|word| verbs().find(|entry| word == entry.name));
    named.map_or_else(super::command_line, |entry| super::tree(&[entry]))
}

fn options(command: &Command) -> Offer {
    let shown = command.get_arguments().filter(|arg| !arg.is_hide_set());
    let long = shown.filter_map(|arg| Some((arg.get_long()?, arg.get_help())));
    Offer::of(
        long.map(|(name, help)| (format!("--{name}"), help.map(ToString::to_string).unwrap_or_default())),
    )
}

fn commands(command: &Command) -> Vec<values::Candidate> {
    let shown = command.get_subcommands().filter(|one| !one.is_hide_set());
    let about = |one: &Command| one.get_about().map(ToString::to_string).unwrap_or_default();
    Offer::of(shown.map(|one| (one.get_name().to_owned(), about(one)))).candidates
}

/// The lines for the shell.
fn written(offer: &Offer) -> String {
    let mut text = String::new();
    for candidate in &offer.candidates {
        let about = table::plain(candidate.about.lines().next().unwrap_or_default());
        text.push_str(&format!("{}{}\t{about}\n", offer.before, table::plain(&candidate.value)));
    }
    if offer.files {
        text.push_str(":files\n");
    }
    if offer.folders {
        text.push_str(":folders\n");
    }
    if let Some(first) = offer.command_at {
        text.push_str(&format!(":command {first}\n"));
    }
    text
}
