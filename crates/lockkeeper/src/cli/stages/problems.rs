//! A problem as people see it: a sentence, the line with a caret below, and a hint.

use anstyle::{AnsiColor, Style};
use lockkeeper_stages::{File, Level, Place, Problem};

use crate::cli::table;

/// How much of a line is shown, so that a file without line ends does not fill the screen.
const MOST: usize = 100;

/// The problem with its line.
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

/// Where it is, and the line itself.
fn excerpt(file: &File, place: Place, style: Style) -> String {
    let number = place.line.to_string();
    let margin = " ".repeat(number.len());
    let place_text = format!("{margin}--> {}:{place}\n", table::plain(&file.name));
    let Some(line) = file.source.line(place.line) else { return place_text };
    let before_mark = place.column - 1;
    let skipped = before_mark.saturating_sub(MOST * 2 / 3);
    let shown: String = table::plain(&line.replace('\t', " ")).chars().skip(skipped).take(MOST).collect();
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
