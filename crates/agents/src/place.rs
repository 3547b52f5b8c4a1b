//! Lexical path resolution: where a tool call runs, and what a path in it means there.
//!
//! Nothing here follows symlinks: a path keeps its `..` after a folder, since only the file system knows where that leads.

use std::fmt;
use std::path::{Component, Path, PathBuf};

/// What the caller knows of an entry in the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A folder, also by a symlink.
    Folder,
    /// Anything else that is there.
    File,
}

/// Where a tool call runs.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    /// The absolute folder in which relative paths begin.
    pub cwd: &'a Path,
    /// The folder that `~` means.
    pub home: Option<&'a Path>,
    /// Looks at the file system: `cp a b` writes `b/a` if `b` is a folder.
    pub entry: &'a dyn Fn(&Path) -> Option<Entry>,
    /// Lists the names in a folder: `cd sr*` goes to `src` if nothing else matches.
    pub names: &'a dyn Fn(&Path) -> Vec<String>,
    /// Reads a small file of text: `patch < FILE` writes the files that the patch names.
    pub text: &'a dyn Fn(&Path) -> Option<String>,
}

impl fmt::Debug for Place<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Place")
            .field("cwd", &self.cwd)
            .field("home", &self.home)
            .finish_non_exhaustive()
    }
}

impl Place<'_> {
    /// The absolute path that an edit tool means by `text`. `None`: `~` without a home, an empty text, or one with a NUL.
    pub fn resolve(&self, text: &str) -> Option<PathBuf> {
        if text.is_empty() || text.contains('\0') {
            return None;
        }
        match text.strip_prefix('~') {
            Some("") => self.home.map(Path::to_path_buf),
            Some(rest) if rest.starts_with('/') => Some(join(self.home?, rest.trim_start_matches('/'))),
            _ => Some(join(self.cwd, text)),
        }
    }
}

/// Joins a path to a folder, without `.` and empty parts. `..` stays.
pub fn join(folder: &Path, path: &str) -> PathBuf {
    let mut joined = PathBuf::new();
    for part in folder.join(path).components() {
        if part != Component::CurDir {
            joined.push(part);
        }
    }
    joined
}

/// Takes `..` out of an absolute path by the text alone, as `cd` of a shell does.
pub fn lexical(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                clean.pop();
            }
            Component::CurDir => {}
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => clean.push(part),
        }
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(text: &str) -> Option<PathBuf> {
        let place = Place {
            cwd: Path::new("/work/repo"),
            home: Some(Path::new("/home/ann")),
            entry: &|_: &Path| None,
            names: &|_: &Path| Vec::new(),
            text: &|_: &Path| None,
        };
        place.resolve(text)
    }

    #[test]
    fn paths_begin_in_the_working_folder_and_tilde_is_home() {
        assert_eq!(resolved("src/./a.rs"), Some("/work/repo/src/a.rs".into()));
        assert_eq!(resolved("/etc//hosts"), Some("/etc/hosts".into()));
        assert_eq!(resolved("~/notes"), Some("/home/ann/notes".into()));
        assert_eq!(resolved("~"), Some("/home/ann".into()));
        assert_eq!(resolved("~bob"), Some("/work/repo/~bob".into()), "an edit tool is no shell");
        assert_eq!(resolved(r"src\a.rs"), Some(r"/work/repo/src\a.rs".into()));
        assert_eq!(resolved(""), None);
        assert_eq!(resolved("a\0b"), None);
    }

    #[test]
    fn parent_folders_stay_until_somebody_asks_for_the_lexical_path() {
        assert_eq!(resolved("link/../a"), Some("/work/repo/link/../a".into()));
        assert_eq!(lexical(Path::new("/work/repo/link/../a")), Path::new("/work/repo/a"));
        assert_eq!(lexical(Path::new("/../../a")), Path::new("/a"));
    }
}
