//! The command line that harnesses run: it names this program, and lets every edit pass if the program is gone.

use std::path::Path;

/// The command line for settings of one user: the program by its path.
///
/// Without the guard a removed program makes Gemini and Copilot refuse every edit.
pub fn of_program(program: &str) -> String {
    let program = quoted(program);
    format!("[ -x {program} ] || exit 0; exec {program} hook")
}

/// The program in settings that others share: it is found by its name.
pub const SHARED_PROGRAM: &str = "lockkeeper";

/// The command line for settings that others share.
pub fn shared() -> String {
    "command -v lockkeeper >/dev/null 2>&1 || exit 0; exec lockkeeper hook".to_owned()
}

/// Whether a command line calls `lockkeeper hook`, in any form: entries are known by it.
pub fn is_ours(command: &str) -> bool {
    let Some(before) = command.trim_end().strip_suffix("hook") else { return false };
    let program = before.trim_end();
    if program.len() == before.len() {
        return false;
    }
    let program = program.trim_end_matches(['\'', '"']);
    let name = program.rsplit(|c: char| c.is_whitespace() || "/'\";".contains(c)).next();
    name == Some("lockkeeper")
}

/// One word for `sh`.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// The path by which this program is started: that of the search path, if it leads to `own`. A package manager replaces what it
/// leads to, and keeps the name.
pub fn stable_path(own: &Path, search_path: Option<&std::ffi::OsStr>) -> std::path::PathBuf {
    let folders = search_path.map(|path| std::env::split_paths(path).collect::<Vec<_>>()).unwrap_or_default();
    let same =
        |path: &std::path::PathBuf| path.is_absolute() && path.canonicalize().is_ok_and(|real| real == own);
    folders.iter().map(|folder| folder.join("lockkeeper")).find(same).unwrap_or_else(|| own.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_known_by_their_command() {
        let guarded = [of_program("/opt/lockkeeper"), of_program("/it's here/lockkeeper"), shared()];
        for ours in
            guarded.iter().map(String::as_str).chain(["lockkeeper hook", "\"/a b/lockkeeper\"  hook "])
        {
            assert!(is_ours(ours), "{ours}");
        }
        for other in ["lockkeeper board", "mylockkeeper hook", "lockkeeperhook", "echo hook", "hook", ""] {
            assert!(!is_ours(other), "{other}");
        }
    }

    #[test]
    fn a_quote_in_the_path_is_no_end_of_the_word() {
        let line = of_program("/it's/lockkeeper");
        assert_eq!(line, r"[ -x '/it'\''s/lockkeeper' ] || exit 0; exec '/it'\''s/lockkeeper' hook");
    }
}
