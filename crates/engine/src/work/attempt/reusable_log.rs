//! A log file that one job slot uses for many runs, as long as their commands write nothing.
//!
//! Most short commands write nothing, and a folder and a file for each of them can cost as much as everything else that a worker
//! does for them. So the command of a slot writes to `spare/WORKER/SLOT`. Once something is in
//! it, or the command takes longer, the file is renamed to the log of the run. `spare/WORKER/SLOT.run` names the run, so
//! that a rescuer finds the log of a worker that was killed.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use lockkeeper_core::id::{RunId, WorkerId};

use super::log::append_only;
use crate::runs::RunFolder;
use lockkeeper_platform::access;
use lockkeeper_platform::fs as local;
use lockkeeper_platform::fs::has_writers;

/// The length of the text that names the run. A longer id gets a log of its own.
const WIDTH: usize = 96;

fn folder(state: &Path) -> PathBuf {
    state.join("spare")
}

/// The folder of one worker.
pub(in crate::work) fn folder_of(state: &Path, worker: &WorkerId) -> PathBuf {
    folder(state).join(worker.as_str())
}

/// The log file of a slot. A run uses it until it writes something or lasts longer than 20 ms.
#[derive(Debug)]
pub(super) struct ReusableLog {
    path: PathBuf,
    reader: File,
    /// Names the run.
    run: File,
}

impl ReusableLog {
    /// Makes the log of a slot, or opens the one that is there.
    pub(super) fn make(state: &Path, worker: &WorkerId, slot: u32) -> io::Result<Self> {
        let folder = folder(state).join(worker.as_str());
        access::make_folder(&folder)?;
        let path = folder.join(slot.to_string());
        access::inherit(append_only().create(true).open(&path)?, &folder)?;
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600).custom_flags(local::NO_FOLLOW);
        let run = options.open(name_of(&path))?;
        access::inherit(&run, &folder)?;
        let log = Self { reader: open(&path)?, path, run };
        if log.is_unused()? { Ok(log) } else { Err(io::ErrorKind::AlreadyExists.into()) }
    }

    /// Names the run that uses it from now on. Fails if the file was moved, or the run id is too long.
    pub(super) fn assign(&self, run: &RunId) -> io::Result<()> {
        let text = format!("{run:<width$}\n", width = WIDTH - 1);
        if text.len() != WIDTH || !self.path.try_exists()? {
            return Err(io::ErrorKind::NotFound.into());
        }
        self.run.write_all_at(text.as_bytes(), 0)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether nothing was written to it, and no process is left that could.
    pub(super) fn is_unused(&self) -> io::Result<bool> {
        Ok(self.reader.metadata()?.len() == 0 && has_writers(&self.reader) == Some(false))
    }

    /// Makes it the log of a run. A rescuer may have done so before, if this worker was frozen.
    pub(super) fn move_to(&self, folder: &RunFolder) -> io::Result<()> {
        folder.make()?;
        match fs::rename(&self.path, folder.output()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

/// Gives a run the log that a slot of its worker used for it, if something is in it or a process can still write to it.
pub(in crate::work) fn rescue(state: &Path, run: &RunId, to: &RunFolder) -> io::Result<()> {
    for worker in entries(&folder(state)) {
        for name in
            entries(&worker).into_iter().filter(|path| path.extension().is_some_and(|end| end == "run"))
        {
            if fs::read_to_string(&name).is_ok_and(|text| text.trim_end() == run.as_str()) {
                return move_if_used(&name.with_extension(""), to);
            }
        }
    }
    Ok(())
}

fn move_if_used(path: &Path, to: &RunFolder) -> io::Result<()> {
    let reader = match open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    let is_unused = reader.metadata()?.len() == 0 && has_writers(&reader) == Some(false);
    if is_unused || to.output().try_exists()? {
        return Ok(());
    }
    to.make()?;
    match fs::rename(path, to.output()) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Removes the worker's folder: logs, `begun`, `ended`.
pub(in crate::work) fn remove(state: &Path, worker: &WorkerId) {
    let _ = fs::remove_dir_all(folder(state).join(worker.as_str()));
}

/// The folders of all workers. Each is named by the id of its worker.
pub(in crate::work) fn folders(state: &Path) -> Vec<PathBuf> {
    entries(&folder(state))
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
}

fn name_of(path: &Path) -> PathBuf {
    path.with_extension("run")
}

fn open(path: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(local::NO_FOLLOW | local::NO_WAIT).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_found_by_the_run_that_used_it_last() {
        let state = tempfile::tempdir().unwrap();
        let state = state.path();
        let log = ReusableLog::make(state, &"W-1".parse().unwrap(), 2).unwrap();
        let [first, second]: [RunId; 2] = ["RUN-1", "RUN-2"].map(|id| id.parse().unwrap());
        log.assign(&first).unwrap();
        assert!(log.is_unused().unwrap());
        log.assign(&second).unwrap();
        fs::write(log.path(), "written").unwrap();
        let [of_first, of_second] = [&first, &second].map(|run| RunFolder::new(state, run));
        rescue(state, &first, &of_first).unwrap();
        assert!(!of_first.output().exists() && log.path().exists());
        rescue(state, &second, &of_second).unwrap();
        assert_eq!(fs::read_to_string(of_second.output()).unwrap(), "written");
        // The worker was only frozen: its log is gone, and it removes nothing from the run.
        log.move_to(&of_second).unwrap();
        assert_eq!(fs::read_to_string(of_second.output()).unwrap(), "written");
        assert!(log.assign(&first).is_err());
    }

    #[test]
    fn an_unused_log_belongs_to_no_run() {
        let state = tempfile::tempdir().unwrap();
        let state = state.path();
        let (worker, run): (WorkerId, RunId) = ("W-1".parse().unwrap(), "RUN-1".parse().unwrap());
        let log = ReusableLog::make(state, &worker, 1).unwrap();
        log.assign(&run).unwrap();
        let folder = RunFolder::new(state, &run);
        rescue(state, &run, &folder).unwrap();
        assert!(!folder.path().exists());
        remove(state, &worker);
        assert!(folders(state).is_empty());
    }
}
