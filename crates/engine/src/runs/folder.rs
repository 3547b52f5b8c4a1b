//! The folder of a run: what its command wrote, and who held what.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use lockkeeper_core::id::RunId;

use lockkeeper_platform::fs as local;

/// `runs/RUN_ID/` in the state folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunFolder {
    path: PathBuf,
}

impl RunFolder {
    pub(crate) fn new(state: &Path, run: &RunId) -> Self {
        Self { path: state.join("runs").join(run.as_str()) }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the present attempt wrote to its output, both streams as they came.
    pub fn output(&self) -> PathBuf {
        self.path.join("output.log")
    }

    /// What an earlier attempt wrote, from 1.
    pub fn output_of(&self, attempt: u32) -> PathBuf {
        self.path.join(format!("output.{attempt}.log"))
    }

    /// Which part of an earlier attempt's output was given up.
    pub fn cut_of(&self, attempt: u32) -> PathBuf {
        self.path.join(format!("output.{attempt}.cut"))
    }

    /// Who holds what for it.
    pub fn stage(&self) -> PathBuf {
        self.path.join("stage.json")
    }

    /// Which part of the output was given up because there was too much: `{"cut_from":N,"cut_to":M}`.
    pub fn cut(&self) -> PathBuf {
        self.path.join("output.cut")
    }

    /// Writes one of its small files, whole or not at all.
    pub fn put(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        write_whole(path, bytes)
    }

    /// Makes it, for its owner only. A symbolic link in its place is refused.
    pub fn make(&self) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.path)?;
        local::require_folder(&self.path)
    }

    /// Removes it with everything in it; that it is not there is no failure.
    pub fn remove(&self) -> io::Result<()> {
        match fs::remove_dir_all(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

/// Writes a small file for its owner only, whole or not at all.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".tmp");
    let opened = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .custom_flags(local::NO_FOLLOW | local::NO_WAIT)
        .open(&name);
    let mut file = local::only_regular(opened, Path::new(&name))?;
    file.write_all(bytes)?;
    fs::rename(&name, path)
}
