//! Logs of hooks, of bounded size: calls that failed open in `<state>/hooks.log`, and files of others that were changed in
//! `<state>/incidents.log`. One line each.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use lockkeeper_engine::open::lost_store;
use lockkeeper_platform::fs::{NO_FOLLOW, NO_WAIT};
use lockkeeper_platform::wall_clock::WallTime;

use crate::quote::{cut, one_line};

/// A log beyond this many bytes is renamed to `NAME.log.1`.
const MAX_BYTES: u64 = 64 * 1024;
/// What the log and the board say of a lease store that is gone.
pub(crate) const LOST_STORE: &str = "the lease store is gone: leases.db is missing or empty, and with it all claims; who edits next has the files";
/// How many of the last lines count as recent.
const RECENT: usize = 20;
/// The longest message, in characters.
const MAX_MESSAGE: usize = 500;

/// A log of one repository.
#[derive(Clone, Debug)]
pub struct HookLog {
    path: PathBuf,
}

impl HookLog {
    /// The log of calls that failed open, in a state folder.
    pub fn new(state: &Path) -> Self {
        Self { path: state.join("hooks.log") }
    }

    /// The log of files that were changed although another owner had claimed them.
    pub fn incidents(state: &Path) -> Self {
        Self { path: state.join("incidents.log") }
    }

    /// The last lines, at most `most`.
    pub fn last(&self, most: usize) -> Vec<String> {
        let is_small =
            fs::symlink_metadata(&self.path).is_ok_and(|meta| meta.is_file() && meta.len() <= 2 * MAX_BYTES);
        let text = Some(&self.path).filter(|_| is_small).and_then(|path| fs::read_to_string(path).ok());
        let lines: Vec<String> = text.unwrap_or_default().lines().map(one_line).collect();
        lines[lines.len().saturating_sub(most)..].to_vec()
    }

    /// What the doctor shows: that the lease store is gone, else the last line, if it was written since then.
    pub fn trouble(state: &Path, since: WallTime) -> Option<String> {
        let last = || Self::new(state).last(1).pop().filter(|line| *line >= since.to_string());
        lost_store(state).then(|| LOST_STORE.to_owned()).or_else(last)
    }

    /// Appends a line, unless one of the last ones says the same.
    pub fn add_once(&self, who: &str, message: &str) {
        let text = format!(" {} {}", one_line(who), cut(&one_line(message), MAX_MESSAGE));
        if !self.last(RECENT).iter().any(|line| line.ends_with(&text)) {
            self.add(who, message);
        }
    }

    /// Appends a line. A log that cannot be written stops nobody.
    pub fn add(&self, who: &str, message: &str) {
        if fs::symlink_metadata(&self.path).is_ok_and(|meta| meta.is_file() && meta.len() > MAX_BYTES) {
            let _ = fs::rename(&self.path, self.path.with_extension("log.1"));
        }
        let line =
            format!("{} {} {}\n", WallTime::now(), one_line(who), cut(&one_line(message), MAX_MESSAGE));
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            // Opening a FIFO waits for a reader, and writing waits when it is full.
            .custom_flags(NO_FOLLOW | NO_WAIT)
            .open(&self.path);
        let is_file = |file: &File| file.metadata().is_ok_and(|meta| meta.is_file());
        let _ = file.ok().filter(is_file).map(|mut file| file.write_all(line.as_bytes()));
    }
}
