//! Rendering of a problem in a STAGES.yml: a sentence, the line with a caret below it, and a hint.

use anstyle::{AnsiColor, Style};
use lockkeeper_engine::messages::Phrases;
use lockkeeper_stages::{File, Level, Place, Problem, UnknownKey};

use crate::cli::table;

/// At most this many characters of a line are shown: a file may have no line breaks.
const MAX_SHOWN: usize = 100;

/// Renders a problem. The sentences about it are English in every language.
pub(super) fn render(file: &File, problem: &Problem, phrases: &Phrases) -> String {
    let (style, key) = match problem.level {
        Level::Error => (AnsiColor::Red.on_default().bold(), "stages.error"),
        Level::Warning => (AnsiColor::Yellow.on_default().bold(), "warning"),
    };
    let line = |key, what: &str, style: Style| {
        let line = phrases.fill(key, &[("what", &table::plain(what))]);
        let (word, rest) = line.split_at(line.find([':', ' ']).unwrap_or(0));
        format!("{style}{word}{style:#}{rest}\n")
    };
    let hint = problem.hint.as_deref().map(|hint| line("stages.hint", hint, AnsiColor::Cyan.on_default()));
    line(key, &problem.message, style) + &excerpt(file, problem.place, style) + &hint.unwrap_or_default()
}

/// A key that is not known, in one line.
pub(super) fn unknown(file: &File, key: &UnknownKey, phrases: &Phrases) -> String {
    let [name, path, value] = [&file.name, &key.path, &key.value].map(|text| table::plain(text));
    phrases.fill("stages.unknown_key", &[("what", &format!("{name}:{}: {path} ({value})", key.place))])
}

/// The position of the problem, and its line.
fn excerpt(file: &File, place: Place, style: Style) -> String {
    let number = place.line.to_string();
    let margin = " ".repeat(number.len());
    let place_text = format!("{margin}--> {}:{place}\n", table::plain(&file.name));
    let Some(line) = file.source.line(place.line) else { return place_text };
    let before_mark = place.column - 1;
    let skipped = before_mark.saturating_sub(MAX_SHOWN * 2 / 3);
    let shown: String =
        table::plain(&line.replace('\t', " ")).chars().skip(skipped).take(MAX_SHOWN).collect();
    let indent: String = shown.chars().take(before_mark - skipped).collect();
    let marked: String = shown.chars().skip(before_mark - skipped).take(place.width).collect();
    let carets = "^".repeat(table::width(&marked).max(1));
    let indent = " ".repeat(table::width(&indent));
    let cut = if skipped > 0 { "…" } else { "" };
    format!(
        "{place_text}{margin} |\n{number} | {cut}{shown}\n{margin} | {}{indent}{style}{carets}{style:#}\n",
        " ".repeat(cut.chars().count())
    )
}
