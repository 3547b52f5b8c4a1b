//! Patch reader: the paths that an `apply_patch` text or a unified diff writes, both names of a move among them.

use thiserror::Error;

/// A patch names at most this many files.
const MAX_FILES: usize = 10_000;

/// Why the paths of a patch are not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PatchError {
    /// The text does not begin with `*** Begin Patch`.
    #[error("the patch does not begin with *** Begin Patch")]
    NoBeginning,
    /// A header without a path.
    #[error("the patch has a header without a path")]
    NoPath,
    /// It names more files than anybody means.
    #[error("the patch names more than {MAX_FILES} files")]
    TooMany,
}

/// Lists the paths that an `apply_patch` text adds, updates, deletes or moves, each once, in their order.
///
/// Only headers count: a line of a file's content begins with `+`, `-`, a blank or `@`.
///
/// # Errors
///
/// A text that is no patch. Then nothing is known of what it writes.
pub fn paths(text: &str) -> Result<Vec<String>, PatchError> {
    let mut lines = text.lines().map(|line| line.strip_suffix('\r').unwrap_or(line));
    if !lines.any(|line| line.trim() == "*** Begin Patch") {
        return Err(PatchError::NoBeginning);
    }
    let headers = ["*** Add File:", "*** Update File:", "*** Delete File:", "*** Move to:"];
    let mut paths: Vec<String> = Vec::new();
    let mut seen = std::collections::HashSet::new();
    let mut updates = false;
    for line in lines {
        // Within an update a line that begins with a blank is content. Elsewhere blanks before a header are ignored.
        let line = if updates { line.trim_end() } else { line.trim() };
        if line.trim() == "*** End Patch" {
            break;
        }
        if line.starts_with("*** ") {
            updates = line.starts_with("*** Update File:") || (updates && line.starts_with("*** Move to:"));
        }
        let Some(path) = headers.iter().find_map(|header| line.strip_prefix(header)) else { continue };
        let path = path.trim();
        if path.is_empty() {
            return Err(PatchError::NoPath);
        }
        if seen.insert(path) {
            paths.push(path.to_owned());
        }
        if paths.len() > MAX_FILES {
            return Err(PatchError::TooMany);
        }
    }
    Ok(paths)
}

/// Lists the paths that a unified diff writes, with `strip` leading parts taken off, as `patch -p` does. Of a name with
/// fewer parts the last one stays.
pub(crate) fn unified_paths(diff: &str, strip: usize) -> Vec<String> {
    let mut paths: Vec<String> = Vec::new();
    let mut seen = std::collections::HashSet::new();
    let mut before = "";
    for line in diff.lines() {
        // A change of the mode, an empty or a binary file has no other header.
        if let Some(names) = line.strip_prefix("diff --git ")
            && let Some((old, new)) = names.split_at_checked(names.len() / 2)
            && let (Some((_, old)), Some((_, new))) = (old.split_once('/'), new.trim_start().split_once('/'))
            && old == new
            && strip == 1
            && seen.insert(old.to_owned())
        {
            paths.push(old.to_owned());
        }
        let rename = line.strip_prefix("rename from ").or_else(|| line.strip_prefix("rename to "));
        if let Some(path) = rename {
            if seen.insert(path.to_owned()) {
                paths.push(path.to_owned());
            }
            continue;
        }
        // Only a pair of lines is a header: a removed line may begin with `-- ` as well.
        let old = std::mem::replace(&mut before, line);
        let (Some(old), Some(new)) = (old.strip_prefix("--- "), line.strip_prefix("+++ ")) else { continue };
        for name in [old, new] {
            let name = name.split('\t').next().unwrap_or(name).trim();
            if name == "/dev/null" {
                continue;
            }
            let last = name.rsplit('/').next().unwrap_or(name);
            let path = name.splitn(strip.saturating_add(1), '/').nth(strip).unwrap_or(last).to_owned();
            if seen.insert(path.clone()) {
                paths.push(path);
            }
        }
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_change_is_listed_with_both_names_of_a_move() {
        let patch = "*** Begin Patch\n*** Add File: a b.txt\n+*** Delete File: no\n*** Update File: src/old.rs\n\
                     *** Move to: src/new.rs\n@@ fn x\n-a\n+b\n*** Delete File: gone\n*** End Patch\n*** Add File: no";
        assert_eq!(paths(patch).unwrap(), ["a b.txt", "src/old.rs", "src/new.rs", "gone"]);
    }

    #[test]
    fn a_text_that_is_no_patch_is_an_error() {
        assert_eq!(paths(""), Err(PatchError::NoBeginning));
        assert_eq!(paths("*** Add File: a"), Err(PatchError::NoBeginning));
        assert_eq!(paths("*** Begin Patch\n*** Add File: \n"), Err(PatchError::NoPath));
        let content = "*** Begin Patch\n*** Update File: a\n@@\n *** Delete File: no\n-x\n*** End Patch\n";
        assert_eq!(paths(content).unwrap(), ["a"]);
        assert_eq!(paths("*** Begin Patch\r\n*** Update File: a\r\n").unwrap(), ["a"]);
    }

    #[test]
    fn diffs_name_files_in_header_pairs_only() {
        let diff = "--- a/src/x.c\t2026\n+++ b/src/x.c\t2026\n@@ -1 +1 @@\n--- not a header\n+y\n\
                    --- /dev/null\n+++ b/new\nrename from p/old\nrename to p/new\n";
        assert_eq!(unified_paths(diff, 1), ["src/x.c", "new", "p/old", "p/new"]);
        assert_eq!(unified_paths("--- x\n+++ x\n", 0), ["x"]);
        assert_eq!(unified_paths("--- a/src/x\n+++ b/src/x\n", usize::MAX), ["x"]);
        let modes = "diff --git a/run me.sh b/run me.sh\nold mode 100644\nnew mode 100755\n";
        assert_eq!(unified_paths(modes, 1), ["run me.sh"]);
    }
}
