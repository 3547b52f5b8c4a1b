//! Lines of `.git/info/exclude`: git does not track the files that `init --project` writes.

/// The line before each of ours, by which they are known.
const MARK: &str = "# lockkeeper init --project";

/// Adds a file, relative to the root of the project, unless it is listed.
pub fn with_file(text: &str, file: &str) -> String {
    let line = format!("/{file}");
    if text.lines().any(|listed| listed == line) {
        return text.to_owned();
    }
    if text.is_empty() || text.ends_with('\n') {
        format!("{text}{MARK}\n{line}\n")
    } else {
        format!("{text}\n{MARK}\n{line}")
    }
}

/// Removes a file that we have added. None if we have not.
pub fn without_file(text: &str, file: &str) -> Option<String> {
    let pair = format!("{MARK}\n/{file}");
    if let Some(rest) = text.strip_prefix(&format!("{pair}\n")) {
        return Some(rest.to_owned());
    }
    // Removes the line end before our lines and keeps the one after them. So a file whose last line had no line end gets its former
    // bytes back, too.
    let lines = format!("\n{pair}");
    let is_line = |at: &usize| matches!(text.as_bytes().get(at + lines.len()), None | Some(b'\n'));
    let at = text.match_indices(&lines).map(|(at, _)| at).find(is_line)?;
    Some(format!("{}{}", &text[..at], &text[at + lines.len()..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_listed_once_and_removed_again() {
        for text in ["# git\n*.log\n", "", "*.log", "\n"] {
            let one = with_file(text, ".codex/hooks.json");
            let two = with_file(&one, ".codex/hooks.json.d");
            assert_eq!(with_file(&two, ".codex/hooks.json"), two);
            for (first, second) in
                [(".codex/hooks.json", ".codex/hooks.json.d"), (".codex/hooks.json.d", ".codex/hooks.json")]
            {
                let without = without_file(&two, first).unwrap();
                assert_eq!(without_file(&without, second).as_deref(), Some(text));
            }
        }
        assert_eq!(without_file("/.codex/hooks.json\n", ".codex/hooks.json"), None);
        assert_eq!(with_file("/x\n", "x"), "/x\n");
    }
}
