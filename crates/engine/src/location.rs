//! Location of the state folder, and of the root that paths are relative to.

mod git_dir;
mod relative;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use crate::shared_store::SharedStore;

pub use git_dir::LocationError;
use git_dir::{common_dir, git_dir_of, has_objects, is_git_dir, look, normalize};
pub use relative::{OutsideError, literal_pattern};

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
    /// The store of leases and runs, if several machines share it. Everything else is in the state folder.
    pub shared: Option<SharedStore>,
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
    ///
    /// Fails if there may be a repository whose git folder cannot be read: all its work trees share one store, and with another
    /// store there could be two holders.
    pub fn locate(&self) -> Result<Location, LocationError> {
        if let Some(named) = &self.named {
            let (state, root) = (without_links(&self.cwd.join(named)), self.root());
            return Ok(Location { state, root, source: LocationSource::Named, shared: None });
        }
        if let Some(git) = self.repository()? {
            let state = without_links(&git.common).join("lockkeeper");
            return Ok(Location { state, root: git.root, source: LocationSource::Git, shared: None });
        }
        for folder in self.cwd.ancestors() {
            let state = folder.join(FOLDER);
            if look(&state)?.is_some_and(|meta| meta.is_dir()) {
                return Ok(Location {
                    state,
                    root: folder.to_owned(),
                    source: LocationSource::Found,
                    shared: None,
                });
            }
        }
        Ok(Location {
            state: self.cwd.join(FOLDER),
            root: self.cwd.clone(),
            source: LocationSource::Here,
            shared: None,
        })
    }

    /// The root that paths are relative to, also where the git folder cannot be read.
    pub fn root(&self) -> PathBuf {
        match self.repository() {
            Ok(Some(git)) => git.root,
            Ok(None) => self.cwd.clone(),
            Err(_) => self.work_tree(),
        }
    }

    /// The nearest folder with a `.git` of any kind, else the current folder.
    fn work_tree(&self) -> PathBuf {
        let has_git = |folder: &&Path| folder.join(".git").symlink_metadata().is_ok();
        self.cwd.ancestors().find(has_git).unwrap_or(&self.cwd).to_owned()
    }

    fn repository(&self) -> Result<Option<Repository>, LocationError> {
        if let Some(named) = &self.git_dir {
            let git_dir = self.cwd.join(named);
            if !is_git_dir(&git_dir)? {
                return Err(LocationError::variable("GIT_DIR", named));
            }
            return Ok(Some(Repository { common: self.common_of(&git_dir)?, root: self.work_tree() }));
        }
        for folder in self.cwd.ancestors() {
            let git_dir = match git_dir_of(folder)? {
                Some(git_dir) => git_dir,
                // A bare repository, or the inside of a `.git` folder.
                None if is_git_dir(folder)? => folder.to_owned(),
                None => continue,
            };
            return Ok(Some(Repository { common: self.common_of(&git_dir)?, root: folder.to_owned() }));
        }
        Ok(None)
    }

    fn common_of(&self, git_dir: &Path) -> Result<PathBuf, LocationError> {
        let Some(named) = &self.git_common_dir else { return common_dir(git_dir) };
        let common = self.cwd.join(named);
        if !has_objects(&common)? {
            return Err(LocationError::variable("GIT_COMMON_DIR", named));
        }
        Ok(common)
    }
}

/// The path of a folder without symbolic links, so that it has the same path for all who use it. The folder need not exist.
///
/// SQLite refuses a path with links, because a link could be exchanged between two of its files.
pub fn without_links(path: &Path) -> PathBuf {
    let found = path.ancestors().find_map(|ancestor| Some((ancestor, ancestor.canonicalize().ok()?)));
    let resolved = found.and_then(|(ancestor, resolved)| {
        // Components, because `join` of an empty path adds a slash.
        Some(resolved.components().chain(path.strip_prefix(ancestor).ok()?.components()).collect())
    });
    resolved.unwrap_or_else(|| path.to_owned())
}

struct Repository {
    common: PathBuf,
    root: PathBuf,
}

impl Location {
    /// Identifies the lease store.
    pub fn store_id(&self) -> PathBuf {
        self.shared.as_ref().map_or_else(|| self.state.clone(), |shared| shared.id().into())
    }

    /// The name of the work tree, unique among those that share the state folder: `.` for the main one.
    pub fn work_tree(&self) -> String {
        let by_root = || self.root.to_string_lossy().into_owned();
        if self.source != LocationSource::Git {
            return by_root();
        }
        let Ok(Some(git_dir)) = git_dir_of(&self.root) else { return by_root() };
        let Ok(common) = common_dir(&git_dir) else { return by_root() };
        match normalize(&git_dir).strip_prefix(common) {
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
            .and_then(|path| std::fs::read_to_string(path).ok());
        text.is_some_and(|text| {
            text.lines().any(|line| {
                line.trim().split_once('=').is_some_and(|(key, value)| {
                    key.trim().eq_ignore_ascii_case("ignorecase") && value.trim().eq_ignore_ascii_case("true")
                })
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::fs;
    use std::os::unix::ffi::OsStrExt;

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
        let found = at(&temp.path().join("src/api")).locate().unwrap();
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
        let found = at(&tree).locate().unwrap();
        assert_eq!(found.state, main.join(".git/lockkeeper"));
        assert_eq!(found.root, tree);
        assert_eq!(
            (found.work_tree(), at(&main).locate().unwrap().work_tree()),
            ("worktrees/tree".into(), ".".into())
        );
    }

    #[test]
    fn outside_of_git_the_nearest_folder_counts() {
        let temp = tempfile::tempdir().unwrap();
        let below = temp.path().join("a/b");
        fs::create_dir_all(&below).unwrap();
        assert_eq!(at(&below).locate().unwrap().state, below.join(".lockkeeper"));
        fs::create_dir(temp.path().join(".lockkeeper")).unwrap();
        let found = at(&below).locate().unwrap();
        assert_eq!((found.state, found.source), (temp.path().join(".lockkeeper"), LocationSource::Found));
    }

    #[test]
    fn a_named_folder_comes_first() {
        let temp = tempfile::tempdir().unwrap();
        git_init(temp.path());
        let named = LocationInputs { named: Some("state".into()), ..at(temp.path()) };
        assert_eq!(named.locate().unwrap().state, temp.path().join("state"));
    }

    #[test]
    fn links_on_the_way_do_not_matter() {
        let temp = tempfile::tempdir().unwrap();
        let (real, link) = (temp.path().join("real"), temp.path().join("link"));
        git_init(&real);
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let state_of = |inputs: LocationInputs| inputs.locate().unwrap().state;
        for named in [real.join("a/b"), link.join("a/b"), "link/a/b".into()] {
            assert_eq!(state_of(LocationInputs { named: Some(named), ..at(temp.path()) }), real.join("a/b"));
        }
        let by_variable = LocationInputs { git_dir: Some(link.join(".git").into()), ..at(temp.path()) };
        assert_eq!(state_of(by_variable), real.join(".git/lockkeeper"));
        let tree = temp.path().join("tree");
        fs::create_dir(&tree).unwrap();
        std::os::unix::fs::symlink(real.join(".git"), tree.join(".git")).unwrap();
        assert_eq!(state_of(at(&tree)), real.join(".git/lockkeeper"));
    }

    #[test]
    fn a_repository_that_cannot_be_read_is_an_error() {
        let temp = tempfile::tempdir().unwrap();
        let tree = temp.path().join("tree");
        fs::create_dir_all(tree.join("src")).unwrap();
        let dot_git = tree.join(".git");
        let trial = |make: &dyn Fn(&Path), says: &str| {
            make(&dot_git);
            // A store of another folder must not be found either.
            let inputs = at(&tree.join("src"));
            let error = inputs.locate().unwrap_err();
            assert!(error.to_string().contains(says), "{error}");
            assert_eq!(inputs.root(), tree);
            let named = LocationInputs { named: Some("state".into()), ..inputs };
            assert_eq!(named.locate().unwrap().root, tree);
            let removed = fs::remove_file(&dot_git).or_else(|_| fs::remove_dir_all(&dot_git));
            removed.unwrap();
        };
        fs::create_dir(temp.path().join(FOLDER)).unwrap();
        let file = |text: &'static str| move |path: &Path| fs::write(path, text).unwrap();
        trial(&file("gitdir: /nope/.git/worktrees/tree\n"), "/nope/.git/worktrees/tree");
        trial(&file("gitdir: nope\n"), "not visible here");
        trial(&file(""), "is not a git folder, and does not name one");
        trial(&file("HEAD"), "is not a git folder, and does not name one");
        let link =
            |target: &'static str| move |path: &Path| std::os::unix::fs::symlink(target, path).unwrap();
        trial(&link("/nope/.git"), "/nope/.git, which is not visible here");
        trial(&link(".git"), "cannot look at");
        trial(&link("/dev/null"), "is not a git folder, and does not name one");
        trial(
            &|path| {
                fs::create_dir(path).unwrap();
                fs::write(path.join("HEAD"), "").unwrap();
                fs::write(path.join("commondir"), "/nope").unwrap();
            },
            "/nope, which is not visible here",
        );
        // A sandbox may hide the git folder behind an empty one.
        trial(&|path| fs::create_dir(path).unwrap(), "is not a git folder, and does not name one");
    }

    #[test]
    fn a_variable_that_names_no_git_folder_is_an_error() {
        let temp = tempfile::tempdir().unwrap();
        git_init(temp.path());
        let with = |git_dir: Option<&str>, common: Option<&str>| LocationInputs {
            git_dir: git_dir.map(Into::into),
            git_common_dir: common.map(Into::into),
            ..at(temp.path())
        };
        assert_eq!(with(Some(".git"), None).locate().unwrap().state, temp.path().join(".git/lockkeeper"));
        let error = with(Some("/nope"), None).locate().unwrap_err();
        assert_eq!(error.to_string(), "GIT_DIR is `/nope`, which is not a git folder");
        let error = with(None, Some("/nope")).locate().unwrap_err();
        assert_eq!(error.to_string(), "GIT_COMMON_DIR is `/nope`, which is not a git folder");
    }

    #[test]
    fn a_git_folder_may_have_any_name() {
        let temp = tempfile::tempdir().unwrap();
        let (main, tree) = (temp.path().join(OsStr::from_bytes(b"m\xff")), temp.path().join("tree"));
        git_init(&main);
        fs::create_dir(&tree).unwrap();
        let pointer = [b"gitdir: ", main.join(".git").as_os_str().as_bytes(), b"\n"].concat();
        fs::write(tree.join(".git"), pointer).unwrap();
        assert_eq!(at(&tree).locate().unwrap().state, main.join(".git/lockkeeper"));
    }
}
