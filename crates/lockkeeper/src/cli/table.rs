//! Columns that line up, whatever colour or script is in them.

/// Lays rows out under a heading; the last column is not padded.
pub(super) fn table(heading: &[&str], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = heading.iter().map(|cell| width(cell)).collect();
    for row in rows {
        for (column, cell) in row.iter().enumerate() {
            widths[column] = widths[column].max(width(cell));
        }
    }
    let heading: Vec<String> = heading.iter().map(|cell| (*cell).to_owned()).collect();
    let mut text = String::new();
    for row in std::iter::once(&heading).chain(rows) {
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

/// Cells on a terminal: escape sequences take none, East Asian characters two.
fn width(text: &str) -> usize {
    let mut cells = 0;
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\x1b' => {
                // The sequences that we write end with the first letter.
                let _ = characters.by_ref().find(char::is_ascii_alphabetic);
            }
            '\u{1100}'..='\u{115f}'
            | '\u{2e80}'..='\u{a4cf}'
            | '\u{ac00}'..='\u{d7a3}'
            | '\u{f900}'..='\u{faff}'
            | '\u{fe30}'..='\u{fe6f}'
            | '\u{ff00}'..='\u{ff60}'
            | '\u{1f300}'..='\u{1faff}' => cells += 2,
            _ => cells += 1,
        }
    }
    cells
}

/// Text that somebody else wrote, without anything that could steer a terminal.
pub(super) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn others_cannot_steer_the_terminal() {
        assert_eq!(plain("a\x1b[2Jb\n"), "a\u{fffd}[2Jb\u{fffd}");
    }
}
