//! Usage errors of clap as reports: one sentence and a hint, like all other errors.

mod near;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use lockkeeper_engine::report::Report;

/// The report for a usage error.
pub(super) fn report(error: &clap::Error, words: &[String]) -> Report {
    Report::usage(sentence(error)).with_hint(hint(error, words))
}

fn sentence(error: &clap::Error) -> String {
    let text = error.to_string();
    let mut lines = text.lines();
    let first = lines.next().unwrap_or_default().trim_start_matches("error: ").to_owned();
    if error.kind() == ErrorKind::MissingRequiredArgument {
        let missing: Vec<&str> = lines.take_while(|line| line.starts_with("  ")).map(str::trim).collect();
        return format!("{first} {}", missing.join(" "));
    }
    first
}

fn hint(error: &clap::Error, words: &[String]) -> String {
    if let Some(line) = missing_dashes(error, words) {
        return format!("put `--` before the command: {line}");
    }
    let command = command_of(error, words);
    if let Some(meant) = near_miss(error, &command, words) {
        return meant;
    }
    if let Some(meant) = habit(error, &command) {
        return meant.to_owned();
    }
    let suggested =
        [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg, ContextKind::SuggestedValue];
    let meant = suggested.into_iter().find_map(|kind| first_of(error, kind));
    if let Some(meant) = meant.filter(|meant| begins_alike(meant, error)) {
        return format!("did you mean `{meant}`?");
    }
    if let Some(ContextValue::Strings(values)) = error.get(ContextKind::ValidValue)
        && !values.is_empty()
    {
        return format!("possible values: {}", values.join(", "));
    }
    format!("`{command} --help` lists the arguments")
}

/// Whether a suggested flag begins with the same letter as the unknown one. Other suggestions are rarely right. What takes the locks of
/// others is suggested only to those who began to write it.
fn begins_alike(meant: &str, error: &clap::Error) -> bool {
    if meant == "force-release-all" {
        return first_of(error, ContextKind::InvalidSubcommand)
            .is_some_and(|given| given.starts_with("force"));
    }
    let letter = |flag: &str| flag.trim_start_matches('-').chars().next();
    let given =
        first_of(error, ContextKind::InvalidArg).filter(|_| error.kind() == ErrorKind::UnknownArgument);
    given.is_none_or(|given| letter(given) == letter(meant))
}

/// The right command with the words of the user, where it is known.
fn near_miss(error: &clap::Error, command: &str, words: &[String]) -> Option<String> {
    let after = |word: &str| {
        let place = words.iter().position(|one| one == word)?;
        words.get(place + 1..)
    };
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let word = first_of(error, ContextKind::InvalidSubcommand)?;
            near::command(command, word, after(word)?)
        }
        ErrorKind::UnknownArgument => {
            let given = first_of(error, ContextKind::InvalidArg)?;
            let (many, last) = command.rsplit_once(' ')?;
            // `runs cancel` is for many runs, and `run cancel` for one.
            if many == "lockkeeper runs" && !given.starts_with('-') {
                return near::command(many, last, after(last)?);
            }
            near::flag(command, given, words)
        }
        _ => None,
    }
}

/// The command for a word that other programs use for the same thing.
fn habit(error: &clap::Error, command: &str) -> Option<&'static str> {
    if error.kind() == ErrorKind::UnknownArgument && command == "lockkeeper locks" {
        let flag = first_of(error, ContextKind::InvalidArg)?;
        return matches!(flag, "--path" | "--name" | "--pattern" | "--file").then_some(
            "`lockkeeper why NAME` or `lockkeeper why PATH` tells who holds it, `lockkeeper locks` lists everything",
        );
    }
    if error.kind() != ErrorKind::InvalidSubcommand || command != "lockkeeper" {
        return None;
    }
    Some(match first_of(error, ContextKind::InvalidSubcommand)? {
        "ls" | "list" | "show" => {
            "`lockkeeper locks` lists what is held, `lockkeeper requests` what is queued, `lockkeeper` shows both"
        }
        "ps" | "top" | "job" | "jobs" | "history" => {
            "`lockkeeper runs` lists runs, `lockkeeper locks` the processes that hold locks"
        }
        "log" | "logs" | "tail" => "`lockkeeper run logs RUN` prints the output of a run",
        "unlock" | "free" => "`lockkeeper release LEASE` gives a lease back; `lockkeeper locks` lists them",
        "lock" | "flock" | "with" | "hold" => {
            "`lockkeeper exec NAME -- CMD` runs a command under a lock, `lockkeeper acquire NAME` takes one"
        }
        "kill" | "cancel" | "stop" => {
            "`lockkeeper run cancel RUN` ends a run, `lockkeeper locks break LEASE` takes a lease away"
        }
        "retry" => "`lockkeeper run retry RUN` runs a request again",
        "rm" | "remove" | "delete" => {
            "`lockkeeper release LEASE` gives a lease back, `lockkeeper run cancel RUN` ends a run"
        }
        "break" | "force" => "`lockkeeper locks break LEASE` takes a lease away",
        "add" | "enqueue" => "`lockkeeper submit -- CMD` puts a command into the queue",
        "start" | "worker" | "daemon" => "`lockkeeper work` executes the queue; locks need no daemon",
        "clean" | "cleanup" | "prune" | "gc" => {
            "`lockkeeper locks cleanup` removes leases of the dead, `lockkeeper runs prune` old runs"
        }
        "ui" | "web" | "dashboard" | "page" | "open" => {
            "`lockkeeper serve --open` shows the page in a browser"
        }
        "watch" | "follow" => "`lockkeeper locks --watch` and `lockkeeper runs --watch` update live",
        "who" | "info" => "`lockkeeper locks` lists who holds what, `lockkeeper why NAME` says why",
        "version" => "`lockkeeper --version` prints it",
        "agents" => "`lockkeeper board` lists the coding agents",
        _ => return None,
    })
}

/// The corrected command line if `--` is missing: in `exec db make test` the command begins after the first name.
fn missing_dashes(error: &clap::Error, words: &[String]) -> Option<String> {
    if words.iter().any(|word| word == "submit") {
        let unexpected = first_of(error, ContextKind::InvalidArg).filter(|word| !word.starts_with('-'));
        let dashed = words.iter().any(|word| word == "--");
        return (error.kind() == ErrorKind::UnknownArgument && !dashed)
            .then_some(unexpected)
            .flatten()
            .map(|_| "lockkeeper submit -- CMD".to_owned());
    }
    let exec = words.iter().position(|word| word == "exec")?;
    if error.kind() != ErrorKind::MissingRequiredArgument || words.iter().any(|word| word == "--") {
        return None;
    }
    let plain = words.iter().all(|word| !word.starts_with('-') && !word.contains(char::is_whitespace));
    match words.get(exec + 1..) {
        Some([name, command @ ..]) if plain && !command.is_empty() => {
            Some(format!("lockkeeper exec {name} -- {}", command.join(" ")))
        }
        _ => Some("lockkeeper exec NAME -- CMD".to_owned()),
    }
}

fn first_of(error: &clap::Error, kind: ContextKind) -> Option<&str> {
    match error.get(kind)? {
        ContextValue::String(text) => Some(text),
        // clap puts the most similar one last.
        ContextValue::Strings(texts) => texts.last().map(String::as_str),
        _ => None,
    }
}

/// The command, such as `lockkeeper locks break`: from the usage line, else from the words of the user.
fn command_of(error: &clap::Error, words: &[String]) -> String {
    let text = error.to_string();
    if let Some(usage) = text.lines().find_map(|line| line.strip_prefix("Usage: ")) {
        let is_word = |word: &&str| word.starts_with(|c: char| c.is_ascii_lowercase());
        let words: Vec<&str> = usage.split(' ').take_while(is_word).collect();
        return words.join(" ");
    }
    let root = super::command_line();
    let (mut command, mut name) = (&root, root.get_name().to_owned());
    for word in words.iter().take_while(|word| *word != "--") {
        if let Some(below) = command.find_subcommand(word) {
            command = below;
            name.push_str(&format!(" {word}"));
        }
    }
    name
}
