//! Whether git would track the lock file: git itself is asked, since only it knows all of its rules.

use std::path::Path;
use std::process::{Command, Stdio};

/// Whether git ignores a file in a folder. None outside of a repository, and where there is no git.
pub fn is_ignored(root: &Path, name: &str) -> Option<bool> {
    // Starting git takes longer than the lock itself, so it is only started where there is a repository.
    let root = root.canonicalize().ok()?;
    root.ancestors().find(|folder| folder.join(".git").symlink_metadata().is_ok())?;
    let outcome = Command::new("git")
        .arg("-C")
        .arg(&root)
        .args(["check-ignore", "--quiet", "--no-index", "--", name])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    match outcome.ok()?.code() {
        Some(0) => Some(true),
        Some(1) => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requirement 16.
    #[test]
    fn git_is_asked_where_there_is_a_repository() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(is_ignored(root.path(), ".sprint-running"), None);
        let made = Command::new("git").args(["init", "-q"]).arg(root.path()).status().unwrap();
        assert!(made.success());
        assert_eq!(is_ignored(root.path(), ".sprint-running"), Some(false));
        std::fs::write(root.path().join(".gitignore"), "/.sprint-*\n").unwrap();
        assert_eq!(is_ignored(root.path(), ".sprint-running"), Some(true));
        assert_eq!(is_ignored(root.path(), "-other"), Some(false));
    }
}
