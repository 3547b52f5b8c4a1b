//! Location of the state folder, and of the root that paths are relative to.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use thiserror::Error;

/// The name of the state folder outside of git.
const FOLDER: &str = ".lockkeeper";

/// The state folder and the root of the project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The state folder, with the stores. It need not exist yet.
    pub state: PathBuf,
    /// The folder that paths are relative to: the root of the work tree, or the folder that contains `.lockkeeper/`.
    pub root: PathBuf,
    /// How the state folder was chosen.
    pub source: LocationSource,
}

/// How the state folder was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocationSource {
    /// A flag, a variable or a setting names it.
    Named,
    /// It is inside the git folder. All work trees share it, git never tracks it, and `git clean` does not remove it.
    Git,
    /// The current folder or one of its ancestors has a `.lockkeeper/`.
    Found,
    /// There is no state folder yet. It will be created in the current folder.
    Here,
}

/// What the choice of the state folder depends on.
#[derive(Clone, Debug, Default)]
pub struct LocationInputs {
    /// The folder that a flag, a variable or a setting names.
    pub named: Option<PathBuf>,
    /// The current folder.
    pub cwd: PathBuf,
    /// `GIT_DIR`.
    pub git_dir: Option<OsString>,
    /// `GIT_COMMON_DIR`.
    pub git_common_dir: Option<OsString>,
}

impl LocationInputs {
    /// The inputs of this process.
    pub fn of_process(named: Option<PathBuf>) -> io::Result<Self> {
        let cwd = std::env::current_dir()?;
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        Ok(Self { named, cwd, git_dir: variable("GIT_DIR"), git_common_dir: variable("GIT_COMMON_DIR") })
    }

    /// Chooses the state folder.
    pub fn locate(&self) -> Location {
        let git = self.git();
        let root = || git.as_ref().map_or_else(|| self.cwd.clone(), |git| git.root.clone());
        if let Some(named) = &self.named {
            return Location { state: self.cwd.join(named), root: root(), source: LocationSource::Named };
        }
        if let Some(git) = git {
            return Location {
                state: git.common.join("lockkeeper"),
                root: git.root,
                source: LocationSource::Git,
            };
        }
        let found = self.cwd.ancestors().find(|folder| folder.join(FOLDER).is_dir());
        let source = if found.is_some() { LocationSource::Found } else { LocationSource::Here };
        let root = found.unwrap_or(&self.cwd).to_owned();
        Location { state: root.join(FOLDER), root, source }
    }

    fn git(&self) -> Option<Repository> {
        let common_of = |git_dir: &Path| {
            let named = self.git_common_dir.as_ref().map(|named| self.cwd.join(named));
            named.unwrap_or_else(|| common_dir(git_dir))
        };
        if let Some(named) = &self.git_dir {
            let git_dir = self.cwd.join(named);
            let above = self.cwd.ancestors().find(|folder| folder.join(".git").exists());
            let root = above.unwrap_or(&self.cwd).to_owned();
            return is_git_dir(&git_dir).then(|| Repository { common: common_of(&git_dir), root });
        }
        self.cwd.ancestors().find_map(|folder| {
            if let Some(git_dir) = git_dir_of(folder) {
                return Some(Repository { common: common_of(&git_dir), root: folder.to_owned() });
            }
            // A bare repository, or the inside of a `.git` folder.
            is_git_dir(folder).then(|| Repository { common: common_of(folder), root: folder.to_owned() })
        })
    }
}

struct Repository {
    common: PathBuf,
    root: PathBuf,
}

/// The git folder of a work tree: the folder `.git`, or the one that the file `.git` names.
fn git_dir_of(folder: &Path) -> Option<PathBuf> {
    let dot_git = folder.join(".git");
    let kind = fs::metadata(&dot_git).ok()?;
    if kind.is_dir() {
        return is_git_dir(&dot_git).then_some(dot_git);
    }
    let pointer = read_small(&dot_git)?;
    let git_dir = folder.join(pointer.strip_prefix("gitdir: ")?);
    is_git_dir(&git_dir).then_some(git_dir)
}

/// The git folder that all work trees share.
fn common_dir(git_dir: &Path) -> PathBuf {
    match read_small(&git_dir.join("commondir")) {
        Some(relative) => normalize(&git_dir.join(relative)),
        None => git_dir.to_owned(),
    }
}

fn is_git_dir(folder: &Path) -> bool {
    let shared = || common_dir(folder).join("objects").is_dir();
    folder.join("HEAD").symlink_metadata().is_ok() && shared()
}

fn read_small(path: &Path) -> Option<String> {
    let meta = fs::metadata(path).ok()?;
    if !meta.is_file() || meta.len() > 4096 {
        return None;
    }
    fs::read_to_string(path).ok().map(|text| text.trim_end().to_owned())
}

/// Removes `.` and `..` without reading the file system.
fn normalize(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                plain.pop();
            }
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => plain.push(part),
        }
    }
    plain
}

/// Why a path or pattern is not in this repository.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum OutsideError {
    /// It is outside of the root.
    #[error("`{text}` is outside of {}", root.display())]
    Outside {
        /// The path or pattern.
        text: String,
        /// The root.
        root: PathBuf,
    },
}

impl Location {
    /// The name of the work tree, unique among those that share the state folder: `.` for the main one.
    pub fn work_tree(&self) -> String {
        let by_root = || self.root.to_string_lossy().into_owned();
        if self.source != LocationSource::Git {
            return by_root();
        }
        let Some(git_dir) = git_dir_of(&self.root) else { return by_root() };
        match normalize(&git_dir).strip_prefix(common_dir(&git_dir)) {
            Ok(main) if main.as_os_str().is_empty() => ".".to_owned(),
            Ok(linked) => linked.to_string_lossy().into_owned(),
            Err(_) => by_root(),
        }
    }

    /// Whether git ignores the case of file names here, as it found out when the repository was made.
    pub fn ignores_case(&self) -> bool {
        let config = self.state.parent().map(|common| common.join("config"));
        let text = config
            .filter(|_| self.source == LocationSource::Git)
            .and_then(|path| fs::read_to_string(path).ok());
        text.is_some_and(|text| {
            text.lines().any(|line| {
                line.trim().split_once('=').is_some_and(|(key, value)| {
                    key.trim().eq_ignore_ascii_case("ignorecase") && value.trim().eq_ignore_ascii_case("true")
                })
            })
        })
    }

    /// Converts a pattern that is relative to `cwd` into one that is relative to the root.
    ///
    /// An absolute pattern must be inside of the root.
    pub fn from_root(&self, text: &str, cwd: &Path) -> Result<String, OutsideError> {
        let outside = || OutsideError::Outside { text: text.to_owned(), root: self.root.clone() };
        if let Some(absolute) = text.strip_prefix('/') {
            let root = self.root.to_str().ok_or_else(outside)?.trim_start_matches('/');
            if root.is_empty() {
                return Ok(absolute.to_owned());
            }
            let below = absolute.strip_prefix(root).ok_or_else(outside)?;
            return match below.strip_prefix('/') {
                Some(inside) if !inside.is_empty() => Ok(inside.to_owned()),
                Some(_) => Ok("**".to_owned()),
                None if below.is_empty() => Ok("**".to_owned()),
                None => Err(outside()),
            };
        }
        let Ok(below) = cwd.strip_prefix(&self.root) else { return Ok(text.to_owned()) };
        let below = below.to_str().ok_or_else(outside)?;
        if below.is_empty() {
            return Ok(text.to_owned());
        }
        let literal = literal_pattern(below);
        Ok(if matches!(text, "." | "./") { literal } else { format!("{literal}/{text}") })
    }
}

/// The pattern that matches exactly this path.
pub fn literal_pattern(path: &str) -> String {
    path.chars().flat_map(escaped).collect()
}

/// Escapes a character of a folder name that would have a meaning in a pattern.
fn escaped(character: char) -> impl Iterator<Item = char> {
    let special = matches!(character, '*' | '?' | '[' | ']' | '{' | '}' | '\\');
    special.then_some('\\').into_iter().chain([character])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn git_init(folder: &Path) {
        fs::create_dir_all(folder.join(".git/objects")).unwrap();
        fs::write(folder.join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
    }

    fn at(cwd: &Path) -> LocationInputs {
        LocationInputs { cwd: cwd.to_owned(), ..LocationInputs::default() }
    }

    #[test]
    fn inside_a_repository_the_git_folder_has_it() {
        let temp = tempfile::tempdir().unwrap();
        git_init(temp.path());
        fs::create_dir_all(temp.path().join("src/api")).unwrap();
        let found = at(&temp.path().join("src/api")).locate();
        assert_eq!(found.state, temp.path().join(".git/lockkeeper"));
        assert_eq!((found.root.as_path(), found.source), (temp.path(), LocationSource::Git));
    }

    #[test]
    fn all_work_trees_share_it() {
        let temp = tempfile::tempdir().unwrap();
        let (main, tree) = (temp.path().join("main"), temp.path().join("tree"));
        git_init(&main);
        let private = main.join(".git/worktrees/tree");
        fs::create_dir_all(&private).unwrap();
        fs::create_dir_all(&tree).unwrap();
        fs::write(private.join("HEAD"), "ref: refs/heads/x\n").unwrap();
        fs::write(private.join("commondir"), "../..\n").unwrap();
        fs::write(tree.join(".git"), format!("gitdir: {}\n", private.display())).unwrap();
        let found = at(&tree).locate();
        assert_eq!(found.state, main.join(".git/lockkeeper"));
        assert_eq!(found.root, tree);
        assert_eq!(
            (found.work_tree(), at(&main).locate().work_tree()),
            ("worktrees/tree".into(), ".".into())
        );
    }

    #[test]
    fn outside_of_git_the_nearest_folder_counts() {
        let temp = tempfile::tempdir().unwrap();
        let below = temp.path().join("a/b");
        fs::create_dir_all(&below).unwrap();
        assert_eq!(at(&below).locate().state, below.join(".lockkeeper"));
        fs::create_dir(temp.path().join(".lockkeeper")).unwrap();
        let found = at(&below).locate();
        assert_eq!((found.state, found.source), (temp.path().join(".lockkeeper"), LocationSource::Found));
    }

    #[test]
    fn what_is_named_counts_first() {
        let temp = tempfile::tempdir().unwrap();
        git_init(temp.path());
        let named = LocationInputs { named: Some("state".into()), ..at(temp.path()) };
        assert_eq!(named.locate().state, temp.path().join("state"));
    }

    #[test]
    fn patterns_are_relative_to_where_one_is() {
        let location = Location { state: "/r/.git/x".into(), root: "/r".into(), source: LocationSource::Git };
        let from = |text: &str, cwd: &str| location.from_root(text, Path::new(cwd));
        assert_eq!(from("*.rs", "/r"), Ok("*.rs".to_owned()));
        assert_eq!(from("*.rs", "/r/src"), Ok("src/*.rs".to_owned()));
        assert_eq!(from(".", "/r/src"), Ok("src".to_owned()));
        assert_eq!(from("x", "/r/a[1]"), Ok("a\\[1\\]/x".to_owned()));
        assert_eq!(from("/r/src/**", "/r/docs"), Ok("src/**".to_owned()));
        assert_eq!(from("/r", "/r"), Ok("**".to_owned()));
        assert!(from("/rx/src", "/r").is_err());
        assert!(from("/etc/passwd", "/r").is_err());
    }
}
