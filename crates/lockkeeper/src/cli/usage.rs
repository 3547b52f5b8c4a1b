//! Usage errors of clap as reports: one sentence and a hint, like all other errors.

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
    let suggested =
        [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg, ContextKind::SuggestedValue];
    if let Some(meant) = suggested.into_iter().find_map(|kind| first_of(error, kind)) {
        return format!("did you mean `{meant}`?");
    }
    if let Some(ContextValue::Strings(values)) = error.get(ContextKind::ValidValue)
        && !values.is_empty()
    {
        return format!("possible values: {}", values.join(", "));
    }
    format!("`{} --help` lists the arguments", command_of(error))
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

/// The command from the usage line, such as `lockkeeper locks break`.
fn command_of(error: &clap::Error) -> String {
    let text = error.to_string();
    let usage = text.lines().find_map(|line| line.strip_prefix("Usage: ")).unwrap_or("lockkeeper");
    let is_word = |word: &&str| word.starts_with(|c: char| c.is_ascii_lowercase());
    let words: Vec<&str> = usage.split(' ').take_while(is_word).collect();
    words.join(" ")
}
