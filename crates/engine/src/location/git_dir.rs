//! Git folder: finds the git folder of a work tree, and the one that all work trees share.
//!
//! The answer "there is none" is given only if every file on the way could be read. Otherwise it is an error: see
//! [`LocationError`].

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use thiserror::Error;

/// The longest file `.git` or `commondir`: a path and a few words.
const MAX_POINTER: u64 = 8192;

/// Why the state folder is not known.
#[derive(Debug, Error)]
pub enum LocationError {
    /// The file system does not say what is there.
    #[error("cannot look at {}, so it is not known which store this folder shares", path.display())]
    Unreadable {
        /// The file or folder.
        path: PathBuf,
        /// What the system answered.
        source: io::Error,
    },
    /// The `.git` of a work tree leads to a folder that does not exist here.
    #[error("{} leads to {}, which is not visible here", pointer.display(), target.display())]
    NotVisible {
        /// The `.git`.
        pointer: PathBuf,
        /// Where it leads to.
        target: PathBuf,
    },
    /// A `.git` is neither a git folder nor a file that names one.
    #[error("{} is not a git folder, and does not name one", .0.display())]
    NotGit(PathBuf),
    /// A variable names something else than a git folder.
    #[error("{name} is `{}`, which is not a git folder", value.display())]
    Variable {
        /// The variable.
        name: &'static str,
        /// Its value.
        value: PathBuf,
    },
}

impl LocationError {
    pub(super) fn variable(name: &'static str, value: &OsString) -> Self {
        Self::Variable { name, value: value.into() }
    }

    /// What the user can do about it.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Unreadable { .. } => {
                "make it readable, or name the state folder that all others use with --dir or LOCKKEEPER_DIR"
            }
            Self::NotVisible { .. } => {
                "mount the main repository's git folder at the same path as outside, repair it with `git worktree \
                 repair`, or name the state folder that all others use with --dir or LOCKKEEPER_DIR"
            }
            Self::NotGit(_) => {
                "repair or remove it, or name the state folder that all others use with --dir or LOCKKEEPER_DIR"
            }
            Self::Variable { .. } => {
                "correct or unset it, or name the state folder that all others use with --dir or LOCKKEEPER_DIR"
            }
        }
    }
}

/// Looks at a file or folder. Returns `None` only if there is certainly nothing.
pub(super) fn look(path: &Path) -> Result<Option<fs::Metadata>, LocationError> {
    match fs::metadata(path) {
        Ok(meta) => Ok(Some(meta)),
        Err(source) if is_absent(&source) => match fs::read_link(path) {
            Ok(target) => Err(LocationError::NotVisible { pointer: path.to_owned(), target }),
            Err(_) => Ok(None),
        },
        Err(source) => Err(LocationError::Unreadable { path: path.to_owned(), source }),
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// The git folder of a work tree: the folder `.git`, or the one that the file `.git` names.
pub(super) fn git_dir_of(folder: &Path) -> Result<Option<PathBuf>, LocationError> {
    let dot_git = folder.join(".git");
    let Some(meta) = look(&dot_git)? else { return Ok(None) };
    let git_dir = if meta.is_dir() {
        if !has_head(&dot_git)? {
            // Git passes over such a folder. But a sandbox may hide the real one behind it. If a damaged one has the state folder, others use that.
            let is_used = look(&dot_git.join("lockkeeper"))?.is_some_and(|meta| meta.is_dir());
            return if is_used { Ok(Some(dot_git)) } else { Err(LocationError::NotGit(dot_git)) };
        }
        dot_git.clone()
    } else {
        let pointer = read_small(&dot_git)?;
        let target = pointer.as_deref().and_then(|text| text.strip_prefix(b"gitdir: "));
        let target = target.ok_or_else(|| LocationError::NotGit(dot_git.clone()))?;
        folder.join(OsStr::from_bytes(target))
    };
    if is_git_dir(&git_dir)? {
        return Ok(Some(git_dir));
    }
    let target = if has_head(&git_dir)? { common_dir(&git_dir)? } else { git_dir };
    Err(LocationError::NotVisible { pointer: dot_git, target })
}

/// The git folder that all work trees share.
pub(super) fn common_dir(git_dir: &Path) -> Result<PathBuf, LocationError> {
    Ok(match read_small(&git_dir.join("commondir"))? {
        Some(relative) => normalize(&git_dir.join(OsStr::from_bytes(&relative))),
        None => git_dir.to_owned(),
    })
}

pub(super) fn is_git_dir(folder: &Path) -> Result<bool, LocationError> {
    Ok(has_head(folder)? && has_objects(&common_dir(folder)?)?)
}

/// `HEAD` may be a link to a branch that has no commit yet.
fn has_head(folder: &Path) -> Result<bool, LocationError> {
    let path = folder.join("HEAD");
    match fs::symlink_metadata(&path) {
        Ok(_) => Ok(true),
        Err(source) if is_absent(&source) => Ok(false),
        Err(source) => Err(LocationError::Unreadable { path, source }),
    }
}

pub(super) fn has_objects(folder: &Path) -> Result<bool, LocationError> {
    Ok(look(&folder.join("objects"))?.is_some_and(|meta| meta.is_dir()))
}

/// Reads a file of one short line. Returns `None` if there is no such file, or something else than such a file.
fn read_small(path: &Path) -> Result<Option<Vec<u8>>, LocationError> {
    match look(path)? {
        Some(meta) if meta.is_file() && meta.len() <= MAX_POINTER => {}
        Some(_) | None => return Ok(None),
    }
    let text =
        fs::read(path).map_err(|source| LocationError::Unreadable { path: path.to_owned(), source })?;
    Ok(Some(text.trim_ascii_end().to_owned()))
}

/// Removes `.` and `..` without reading the file system.
pub(super) fn normalize(path: &Path) -> PathBuf {
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
