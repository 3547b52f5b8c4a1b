//! Rendering of a problem in a STAGES.yml: a sentence, the line with a caret below it, and a hint.

use anstyle::{AnsiColor, Style};
use lockkeeper_stages::{File, Level, Place, Problem};

use crate::cli::table;

/// At most this many characters of a line are shown: a file may have no line breaks.
const MAX_SHOWN: usize = 100;

/// Renders a problem.
pub(super) fn render(file: &File, problem: &Problem) -> String {
    let style = match problem.level {
        Level::Error => AnsiColor::Red.on_default().bold(),
        Level::Warning => AnsiColor::Yellow.on_default().bold(),
    };
    let (word, message) = (problem.level, table::plain(&problem.message));
    let mut text = format!("{style}{word}{style:#}: {message}\n");
    text.push_str(&excerpt(file, problem.place, style));
    if let Some(hint) = &problem.hint {
        let style = AnsiColor::Cyan.on_default();
        text.push_str(&format!("{style}hint{style:#}: {}\n", table::plain(hint)));
    }
    text
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
