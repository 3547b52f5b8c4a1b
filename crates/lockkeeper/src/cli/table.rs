//! Text tables: aligned columns, also with colours and East Asian characters.

use std::io::IsTerminal;

pub(super) use lockkeeper_engine::report::plain;
use lockkeeper_platform::terminal::Size;

/// What stands before a cell that is below its row.
const BELOW: &str = "    ";

/// Aligns rows under a heading. The last column is not padded.
pub(super) fn table(heading: &[&str], rows: &[Vec<String>]) -> String {
    let heading: Vec<String> = heading.iter().map(|cell| (*cell).to_owned()).collect();
    aligned(std::iter::once(&heading).chain(rows))
}

/// How many lines a cell below its row may have.
const MOST_LINES: usize = 3;
/// The narrowest that a column gets when a terminal is too narrow.
const NARROWEST: usize = 14;

/// Aligns rows under a heading. On a terminal that is too narrow for a row, its last cell stands below it, and the widest
/// columns are cut.
pub(super) fn list(heading: &[&str], rows: &[Vec<String>]) -> String {
    let heading: Vec<String> = heading.iter().map(|cell| (*cell).to_owned()).collect();
    let all: Vec<Vec<String>> = std::iter::once(&heading).chain(rows).cloned().collect();
    let columns = terminal_columns();
    folded(&columns.map_or_else(|| all.clone(), |columns| without_empty_columns(&all, columns)), columns)
}

/// Removes columns in which no row says anything, if the table is too wide.
fn without_empty_columns(rows: &[Vec<String>], columns: usize) -> Vec<Vec<String>> {
    if aligned(rows.iter()).lines().all(|line| width(line) <= columns) {
        return rows.to_vec();
    }
    let last = rows[0].len().saturating_sub(1);
    let says = |column: usize| rows.iter().skip(1).any(|row| !matches!(row[column].as_str(), "" | "-" | "0"));
    let kept: Vec<usize> = (0..=last).filter(|column| *column == last || says(*column)).collect();
    rows.iter().map(|row| kept.iter().map(|column| row[*column].clone()).collect()).collect()
}

/// The same without a heading, indented by two columns.
pub(super) fn indented_list(rows: &[Vec<String>]) -> String {
    let text = folded(rows, terminal_columns().map(|columns| columns.saturating_sub(2)));
    text.lines().map(|line| format!("  {line}\n")).collect()
}

fn folded(rows: &[Vec<String>], columns: Option<usize>) -> String {
    let whole = aligned(rows.iter());
    let Some(columns) = columns else { return whole };
    let shorter = rows.iter().map(|row| row[..row.len().saturating_sub(1)].to_vec()).collect();
    let shorter = aligned(narrowed(shorter, columns).iter());
    let mut text = String::new();
    for ((line, short), row) in whole.lines().zip(shorter.lines()).zip(rows) {
        if width(line) <= columns {
            text.push_str(&format!("{line}\n"));
            continue;
        }
        if row.len() == 1 {
            text.push_str(&wrapped_line(line, columns, 2));
            continue;
        }
        text.push_str(&format!("{}\n", cut(short, columns)));
        if let Some(last) = row.last().filter(|last| !last.is_empty()) {
            text.push_str(&below(last, columns));
        }
    }
    text
}

/// A cell below its row: at most three lines.
fn below(cell: &str, columns: usize) -> String {
    let wrapped = format!("{BELOW}{}", flowed(cell, columns, BELOW.len(), BELOW.len()));
    let mut lines: Vec<String> = wrapped.lines().map(|line| cut(line, columns)).collect();
    if lines.len() > MOST_LINES {
        lines.truncate(MOST_LINES);
        lines[MOST_LINES - 1].push('…');
    }
    lines.iter().map(|line| cut(line, columns) + "\n").collect()
}

/// Cuts cells of the widest columns until each row fits into this many columns, if that is possible.
fn narrowed(mut rows: Vec<Vec<String>>, columns: usize) -> Vec<Vec<String>> {
    let mut widths = widths(rows.iter());
    let gaps = 2 * widths.len().saturating_sub(1);
    while widths.iter().sum::<usize>() + gaps > columns {
        let Some(widest) = widths.iter_mut().max().filter(|widest| **widest > NARROWEST) else { break };
        *widest -= 1;
    }
    for row in &mut rows {
        for (cell, most) in row.iter_mut().zip(&widths) {
            *cell = cut(cell, *most);
        }
    }
    rows
}

/// Wraps a text between words. The lines after the first one are indented.
pub(super) fn wrapped(text: &str, columns: usize, indent: usize) -> String {
    flowed(text, columns + indent, indent, indent)
}

/// Wraps the lines of a text between words, to the width of the terminal. The rest of a line is below its text, and that of a
/// line without indentation at this column. Programs that read stdout get lines as they are.
pub(super) fn wrap_terminal(text: &str, indent: usize) -> String {
    match terminal_columns() {
        Some(columns) => text.lines().map(|line| wrapped_line(line, columns, indent)).collect(),
        None => text.to_owned(),
    }
}

fn wrapped_line(line: &str, columns: usize, indent: usize) -> String {
    let own = line.trim_start_matches(' ');
    let begin = line.len() - own.len();
    let indent = if begin == 0 { indent } else { begin + 2 };
    format!("{:begin$}{}\n", "", flowed(own, columns, begin, indent))
}

/// Wraps a text that begins at a column.
fn flowed(text: &str, columns: usize, begin: usize, indent: usize) -> String {
    let (mut lines, mut used) = (String::new(), begin);
    for (number, word) in text.split(' ').enumerate() {
        if number > 0 && used + 1 + width(word) > columns {
            lines.push_str(&format!("\n{:indent$}", ""));
            used = indent;
        } else if number > 0 {
            lines.push(' ');
            used += 1;
        }
        lines.push_str(word);
        used += width(word);
    }
    lines
}

/// The width of the terminal on stdout. None if stdout is something else.
pub(super) fn terminal_columns() -> Option<usize> {
    let stdout = std::io::stdout();
    Size::of(&stdout).filter(|_| stdout.is_terminal()).map(|size| size.columns)
}

/// Aligns rows of equal length. The last column is not padded.
pub(super) fn aligned<'r>(rows: impl Iterator<Item = &'r Vec<String>> + Clone) -> String {
    let widths = widths(rows.clone());
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            line.push_str(cell);
            if column + 1 < row.len() {
                line.extend(std::iter::repeat_n(' ', widths[column] - width(cell) + 2));
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// The width of each column.
fn widths<'r>(rows: impl Iterator<Item = &'r Vec<String>>) -> Vec<usize> {
    let mut widths: Vec<usize> = Vec::new();
    for row in rows {
        widths.resize(widths.len().max(row.len()), 0);
        for (widest, cell) in widths.iter_mut().zip(row) {
            *widest = (*widest).max(width(cell));
        }
    }
    widths
}

/// The width of a text in terminal cells: escape sequences take none, East Asian characters two.
pub(super) fn width(text: &str) -> usize {
    let mut cells = 0;
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\x1b' => {
                // Our escape sequences are colours; they end with the first letter.
                let _ = characters.by_ref().find(char::is_ascii_alphabetic);
            }
            _ => cells += cells_of(character),
        }
    }
    cells
}

fn cells_of(character: char) -> usize {
    match character {
        '\u{1100}'..='\u{115f}'
        | '\u{2e80}'..='\u{a4cf}'
        | '\u{ac00}'..='\u{d7a3}'
        | '\u{f900}'..='\u{faff}'
        | '\u{fe30}'..='\u{fe6f}'
        | '\u{ff00}'..='\u{ff60}'
        | '\u{1f300}'..='\u{1faff}' => 2,
        _ => 1,
    }
}

/// Cuts a line to a number of columns. A wrapped line could not be overwritten later.
pub(super) fn cut(line: &str, columns: usize) -> String {
    if width(line) <= columns {
        return line.to_owned();
    }
    let mut text = String::new();
    let mut left = columns.saturating_sub(1);
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        if character == '\x1b' {
            text.push(character);
            text.extend(characters.by_ref().take_while(|c| !c.is_ascii_alphabetic()));
            // Colour sequences end with `m`.
            text.push('m');
            continue;
        }
        let Some(rest) = left.checked_sub(cells_of(character)) else { break };
        left = rest;
        text.push(character);
    }
    text.push('…');
    if text.contains('\x1b') {
        text.push_str("\x1b[0m");
    }
    text
}

/// Cuts the lines of a table to the width of the terminal. Programs that read stdout get all of it.
pub(super) fn fit_terminal(text: &str) -> String {
    match terminal_columns() {
        Some(columns) => text.lines().map(|line| cut(line, columns) + "\n").collect(),
        None => text.to_owned(),
    }
}

/// Cuts a text to the columns and rows of a screen.
pub(super) fn fit(text: &str, columns: usize, rows: usize) -> String {
    let lines: Vec<String> = text.lines().map(|line| cut(line, columns)).collect();
    // The last row is for the cursor.
    let room = rows.saturating_sub(1).max(1);
    if lines.len() <= room {
        return lines.join("\n") + "\n";
    }
    let hidden = lines.len() - (room - 1);
    let note = cut(&format!("… {hidden} more lines"), columns);
    lines[..room - 1].iter().chain([&note]).map(|line| format!("{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows<const N: usize>(rows: &[[&str; N]]) -> Vec<Vec<String>> {
        rows.iter().map(|row| row.map(str::to_owned).to_vec()).collect()
    }

    #[test]
    fn a_long_reason_stands_below_its_row() {
        let rows = rows(&[
            ["RUN", "STATUS", "WHY"],
            ["k3x9f2m7qd", "failed", "exit code 3: no such table"],
            ["k3x9f2m7qe", "queued", "next"],
        ]);
        let expected = "RUN         STATUS  WHY\nk3x9f2m7qd  failed\n    exit code 3: no such table\n\
                        k3x9f2m7qe  queued  next\n";
        assert_eq!(folded(&rows, Some(30)), expected);
        assert_eq!(folded(&rows, Some(80)), aligned(rows.iter()));
        assert_eq!(folded(&rows, None), aligned(rows.iter()));
    }

    #[test]
    fn columns_that_say_nothing_are_left_out_where_room_is_scarce() {
        let rows = rows(&[["LEASE", "ENDS IN", "HOLDS"], ["L1", "-", "src/api/**"], ["L2", "-", "db"]]);
        assert_eq!(without_empty_columns(&rows, 80), rows);
        let narrow = without_empty_columns(&rows, 20);
        assert_eq!(aligned(narrow.iter()), "LEASE  HOLDS\nL1     src/api/**\nL2     db\n");
    }

    #[test]
    fn a_very_long_reason_ends_after_three_lines() {
        let text = below("one two three four five six seven", 12);
        assert_eq!(text, "    one two\n    three\n    four…\n");
        assert_eq!(below("averyverylongword", 12), "    averyve…\n");
    }

    #[test]
    fn the_widest_columns_of_a_narrow_terminal_are_cut() {
        let rows = rows(&[
            ["LEASE", "OWNER", "HOLDS", "REASON"],
            ["L1", "a-very-long-owner-that-somebody-chose", "src/api/**", "why"],
            ["L2", "me", "db", ""],
        ]);
        let expected = "LEASE  OWNER                HOLDS\n    REASON\n\
                        L1     a-very-long-owner-…  src/api/**\n    why\nL2     me                   db\n";
        assert_eq!(folded(&rows, Some(38)), expected);
    }

    #[test]
    fn texts_are_wrapped_between_words() {
        assert_eq!(wrapped("one two three", 8, 2), "one two\n  three");
        assert_eq!(wrapped("one two three", 80, 2), "one two three");
        assert_eq!(wrapped("averylongword x", 4, 0), "averylongword\nx");
        assert_eq!(
            flowed("PASS  clock  no record is later", 20, 0, 13),
            "PASS  clock  no\n             record\n             is\n             later"
        );
    }

    #[test]
    fn columns_line_up_in_any_script() {
        let rows = vec![
            vec!["L1".to_owned(), "数据库".to_owned(), "x".to_owned()],
            vec!["L22".to_owned(), "\x1b[31mdb\x1b[0m".to_owned(), String::new()],
        ];
        let text = table(&["ID", "NAME", "Y"], &rows);
        assert_eq!(text, "ID   NAME    Y\nL1   数据库  x\nL22  \x1b[31mdb\x1b[0m\n");
    }

    #[test]
    fn long_lines_are_cut() {
        assert_eq!(cut("waiting", 7), "waiting");
        assert_eq!(cut("waiting", 6), "waiti…");
        assert_eq!(cut("数据库", 6), "数据库");
        assert_eq!(cut("数据库", 5), "数据…");
        assert_eq!(cut("数据库", 4), "数…");
        assert_eq!(cut("\x1b[31mdead\x1b[0m x", 4), "\x1b[31mdea…\x1b[0m");
        assert_eq!(cut("x", 0), "…");
        assert_eq!(fit("a\nb\nc\n", 9, 4), "a\nb\nc\n");
        assert_eq!(fit("a\nb\nc\n", 20, 3), "a\n… 2 more lines\n");
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(plain("a\x1b[2Jb\n"), "a\\u{1b}[2Jb\\n");
    }
}
