//! Git ignore check: asks git itself whether it ignores the lock file, because only git knows all of its rules.

use std::path::Path;
use std::process::{Command, Stdio};

/// Says whether git ignores a file in a folder. Returns `None` outside a repository, and where git is not installed.
pub fn is_ignored(root: &Path, name: &str) -> Option<bool> {
    // Starting git takes longer than taking the lock, so git is only started in a repository.
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
    fn git_is_asked_only_in_a_repository() {
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
