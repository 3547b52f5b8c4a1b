//! The folder of a run: the output of its command, and small files about it.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use lockkeeper_core::id::RunId;

use lockkeeper_platform::{access, fs as local};

/// A stage file is never longer than this.
const MOST_STAGE: u64 = 1 << 20;

/// The number of an attempt is never longer than this.
const MOST_ATTEMPT: u64 = 10;

/// `runs/RUN_ID/` in the state folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunFolder {
    path: PathBuf,
}

impl RunFolder {
    /// The folder of this run in a state folder.
    pub fn new(state: &Path, run: &RunId) -> Self {
        Self { path: state.join("runs").join(run.as_str()) }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The output of the current attempt: stdout and stderr in the order of the writes.
    pub fn output(&self) -> PathBuf {
        self.path.join("output.log")
    }

    /// The output of an earlier attempt; attempts count from 1.
    pub fn output_of(&self, attempt: u32) -> PathBuf {
        self.path.join(format!("output.{attempt}.log"))
    }

    /// Which bytes of the output of an earlier attempt were cut out.
    pub fn cut_of(&self, attempt: u32) -> PathBuf {
        self.path.join(format!("output.{attempt}.cut"))
    }

    /// The number of the attempt that wrote the latest output here. Written for all attempts but the first.
    fn attempt(&self) -> PathBuf {
        self.path.join("attempt")
    }

    /// The attempt that wrote the latest output here. Other machines may have made later ones.
    pub(crate) fn current_attempt(&self) -> u32 {
        // The command of the run could have put anything there.
        let mut text = String::new();
        let file = local::open_in(&self.path, "attempt".as_ref());
        let read = file.and_then(|file| file.take(MOST_ATTEMPT).read_to_string(&mut text));
        let noted = read.ok().and_then(|_| text.parse().ok());
        // Earlier versions did not note it.
        let ended = || (1..).take_while(|attempt| self.output_of(*attempt).exists()).last().unwrap_or(0);
        noted.unwrap_or_else(|| ended() + 1)
    }

    /// Keeps the output of the attempt before, and notes that this one comes now.
    pub(crate) fn begin_attempt(&self, attempt: u32) -> io::Result<()> {
        let before = self.current_attempt();
        if attempt <= before {
            return Ok(());
        }
        rename_if_there(&self.cut(), &self.cut_of(before))?;
        rename_if_there(&self.output(), &self.output_of(before))?;
        write_whole(&self.attempt(), attempt.to_string().as_bytes())
    }

    /// Its executor and the resources that it holds, as JSON.
    pub fn stage(&self) -> PathBuf {
        self.path.join("stage.json")
    }

    /// The answer of a person to the question of the run before.
    pub fn answer(&self) -> PathBuf {
        self.path.join("answer")
    }

    /// Which bytes of the output were cut out because it was too large: `{"cut_from":N,"cut_to":M}`.
    pub fn cut(&self) -> PathBuf {
        self.path.join("output.cut")
    }

    /// The root of the project whose `.aiflow/locks` has its lock files.
    fn aiflow_root(&self) -> PathBuf {
        self.path.join("aiflow_root")
    }

    /// Notes where its lock files are, before they are taken: the process that ends the run removes them.
    pub(crate) fn write_aiflow_root(&self, root: &Path) -> io::Result<()> {
        self.make()?;
        write_whole(&self.aiflow_root(), root.as_os_str().as_bytes())
    }

    /// Where its lock files are; none if it has none.
    pub(crate) fn read_aiflow_root(&self) -> io::Result<Option<PathBuf>> {
        let file = match local::open_in(&self.path, "aiflow_root".as_ref()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let mut bytes = Vec::new();
        file.take(MOST_STAGE).read_to_end(&mut bytes)?;
        Ok(Some(OsString::from_vec(bytes).into()))
    }

    /// The text of its stage file. A symbolic link in its place is refused.
    pub(crate) fn read_stage(&self) -> io::Result<String> {
        let mut text = String::new();
        let mut options = OpenOptions::new();
        let file = options.read(true).custom_flags(local::NO_FOLLOW | local::NO_WAIT).open(self.stage())?;
        file.take(MOST_STAGE).read_to_string(&mut text)?;
        Ok(text)
    }

    /// Writes one of its small files atomically.
    pub fn put(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        write_whole(path, bytes)
    }

    /// Creates it, with access for its owner only. A symbolic link in its place is refused.
    pub fn make(&self) -> io::Result<()> {
        access::make_folder(&self.path)?;
        local::require_folder(&self.path)
    }

    /// Removes it with everything in it. It is no error if it does not exist.
    pub fn remove(&self) -> io::Result<()> {
        match fs::remove_dir_all(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

fn rename_if_there(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Writes a small file atomically (write, then rename), with access for its owner only.
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
    access::inherit(&file, path.parent().unwrap_or(path))?;
    file.write_all(bytes)?;
    fs::rename(&name, path)
}
