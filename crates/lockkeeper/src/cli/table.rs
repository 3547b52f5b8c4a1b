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

/// Aligns rows under a heading. On a terminal that is too narrow for a row, its last cell stands below it.
pub(super) fn list(heading: &[&str], rows: &[Vec<String>]) -> String {
    folded(heading, rows, terminal_columns())
}

fn folded(heading: &[&str], rows: &[Vec<String>], columns: Option<usize>) -> String {
    let whole = table(heading, rows);
    let Some(columns) = columns else { return whole };
    let (short_heading, last) = heading.split_at(heading.len().saturating_sub(1));
    let shorter: Vec<Vec<String>> =
        rows.iter().map(|row| row[..row.len().saturating_sub(1)].to_vec()).collect();
    let shorter = table(short_heading, &shorter);
    let lasts =
        last.iter().map(|cell| (*cell).to_owned()).chain(rows.iter().filter_map(|row| row.last().cloned()));
    let mut text = String::new();
    for ((line, short), last) in whole.lines().zip(shorter.lines()).zip(lasts) {
        if width(line) <= columns {
            text.push_str(&format!("{line}\n"));
        } else {
            let below = cut(&last, columns.saturating_sub(BELOW.len()));
            text.push_str(&format!("{}\n{BELOW}{below}\n", cut(short, columns)));
        }
    }
    text
}

/// Wraps a text between words. The lines after the first one are indented.
pub(super) fn wrapped(text: &str, columns: usize, indent: usize) -> String {
    let (mut lines, mut used) = (String::new(), 0);
    for word in text.split(' ') {
        if used > 0 && used + 1 + width(word) > columns {
            lines.push_str(&format!("\n{:indent$}", ""));
            used = 0;
        } else if used > 0 {
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
    let mut widths: Vec<usize> = Vec::new();
    for row in rows.clone() {
        widths.resize(widths.len().max(row.len()), 0);
        for (column, cell) in row.iter().enumerate() {
            widths[column] = widths[column].max(width(cell));
        }
    }
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

    #[test]
    fn a_long_reason_stands_below_its_row() {
        let rows = [["k3x9f2m7qd", "failed", "EXIT_CODE 3: no such table"], ["k3x9f2m7qe", "queued", "next"]];
        let rows = rows.map(|row| row.map(str::to_owned).to_vec());
        let heading = ["RUN", "STATUS", "WHY"];
        let narrow = folded(&heading, &rows, Some(30));
        let expected = "RUN         STATUS  WHY\nk3x9f2m7qd  failed\n    EXIT_CODE 3: no such table\n\
                        k3x9f2m7qe  queued  next\n";
        assert_eq!(narrow, expected);
        assert_eq!(folded(&heading, &rows, Some(80)), table(&heading, &rows));
        assert_eq!(folded(&heading, &rows, None), table(&heading, &rows));
    }

    #[test]
    fn texts_are_wrapped_between_words() {
        assert_eq!(wrapped("one two three", 8, 2), "one two\n  three");
        assert_eq!(wrapped("one two three", 80, 2), "one two three");
        assert_eq!(wrapped("averylongword x", 4, 0), "averylongword\nx");
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
