//! Which runs may have begun although the disk has not heard of their claim.
//!
//! A worker whose commands are short names the next runs in a file of its own, many at once, and forces that to the
//! disk. They stay queued, and anybody may claim them as ever. But their command may begin before the claim is on the
//! disk: a run that is found queued after a power cut, and is named in a file of an earlier boot, may have begun.
//!
//! Nothing else can take a claim back. When a worker is killed, what it claimed is in the log of the store; whoever
//! removes its file has that forced to the disk before.

use std::collections::HashSet;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use lockkeeper_core::id::{RunId, WorkerId};
use lockkeeper_core::run::Run;
use rusqlite::params;

use super::rows::COLUMNS;
use super::{RunStore, Tables, failed};
use crate::StoreError;

/// The folder of these files, beside the database. A file is called after its boot and its worker.
const FOLDER: &str = "ahead";

/// The file of one worker: names, one a line.
#[derive(Debug)]
pub struct AheadFile {
    file: File,
    path: PathBuf,
    length: u64,
}

impl AheadFile {
    /// Names these as well. When this returns, a power cut does not make anybody forget them.
    pub fn name(&mut self, runs: &[RunId]) -> Result<(), StoreError> {
        // Whatever is before it, a name is a line of its own.
        let lines: String = runs.iter().map(|run| format!("\n{run}\n")).collect();
        // At its place, not at the end: what a full disk cut short is written over.
        let written = self.file.write_all_at(lines.as_bytes(), self.length);
        written.and_then(|()| self.file.sync_data()).map_err(|error| failed("write", &self.path, error))?;
        self.length += lines.len() as u64;
        Ok(())
    }

    /// How many bytes of names there are.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Names nobody any more. The claims of those that began have to be on the disk before.
    pub fn clear(&mut self) -> Result<(), StoreError> {
        if self.length > 0 {
            let cleared = self.file.set_len(0).and_then(|()| self.file.sync_data());
            cleared.map_err(|error| failed("write", &self.path, error))?;
            self.length = 0;
        }
        Ok(())
    }
}

impl RunStore {
    /// Makes the file of a worker, which names nobody yet.
    pub fn ahead_file(&self, worker: &WorkerId) -> Result<AheadFile, StoreError> {
        let folder = self.ahead_folder();
        let path = self.ahead_path(worker);
        let make = || {
            DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
            let file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&path)?;
            // A file that the disk does not know names nobody.
            File::open(&folder)?.sync_all()?;
            File::open(folder.parent().unwrap_or(Path::new(".")))?.sync_all()?;
            Ok(AheadFile { file, path: path.clone(), length: 0 })
        };
        make().map_err(|error| failed("make", &path, error))
    }

    /// Removes the file of a worker that is gone, if it had one.
    pub fn remove_ahead_file(&self, worker: &WorkerId) -> Result<(), StoreError> {
        let path = self.ahead_path(worker);
        if !path.try_exists().unwrap_or(true) {
            return Ok(());
        }
        self.force()?;
        remove(&path)
    }

    fn ahead_path(&self, worker: &WorkerId) -> PathBuf {
        self.ahead_folder().join(format!("{}.{worker}", self.boot))
    }

    fn ahead_folder(&self) -> PathBuf {
        self.path.with_file_name(FOLDER)
    }

    /// Removes the files of workers of this boot that nobody knows any more.
    pub fn sweep_ahead_files(&self) -> Result<(), StoreError> {
        // Looked at first: whoever has a file by now was written down before.
        let files = self.ahead_files(true)?;
        let known = if files.is_empty() { Vec::new() } else { self.read(|tables| tables.workers())? };
        let known: Vec<PathBuf> = known.iter().map(|worker| self.ahead_path(&worker.id)).collect();
        let stray: Vec<PathBuf> = files.into_iter().filter(|path| !known.contains(path)).collect();
        if stray.is_empty() {
            return Ok(());
        }
        self.force()?;
        self.remove_files(&stray)
    }

    /// Whom the files of other boots name, and those files.
    pub(super) fn named_before(&self) -> Result<(HashSet<RunId>, Vec<PathBuf>), StoreError> {
        let files = self.ahead_files(false)?;
        let mut named = HashSet::new();
        for path in &files {
            let text = fs::read(path).map_err(|error| failed("read", path, error))?;
            // A line that was not finished is nobody's name: no run of it had begun.
            named
                .extend(String::from_utf8_lossy(&text).lines().filter_map(|line| line.parse::<RunId>().ok()));
        }
        Ok((named, files))
    }

    fn ahead_files(&self, of_this_boot: bool) -> Result<Vec<PathBuf>, StoreError> {
        let folder = self.ahead_folder();
        let entries = match fs::read_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(|error| failed("read", &folder, error))?,
        };
        let this_boot = format!("{}.", self.boot);
        let mut files = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|error| failed("read", &folder, error))?;
            if entry.file_name().to_string_lossy().starts_with(&this_boot) == of_this_boot {
                files.push(entry.path());
            }
        }
        Ok(files)
    }

    /// Removes files whose names were taken over into the records.
    pub(super) fn remove_files(&self, files: &[PathBuf]) -> Result<(), StoreError> {
        files.iter().try_for_each(|path| remove(path))
    }
}

fn remove(path: &Path) -> Result<(), StoreError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("remove", path, error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

impl Tables<'_> {
    /// The names of the next runs that want nothing but somebody who executes them.
    pub fn next_plain(&self, limit: usize) -> Result<Vec<RunId>, StoreError> {
        let sql = "SELECT id FROM run INDEXED BY run_wish WHERE status = 'queued' AND ready = 1 AND wish = ''
                   ORDER BY priority DESC, seq LIMIT ?1";
        self.rows(sql, [i64::try_from(limit).unwrap_or(i64::MAX)], |row| {
            Ok(row.get::<_, String>(0)?.parse().map_err(|error| format!("{error}")))
        })
    }

    /// Notes of those that are still queued that they may have begun: nobody begins with them again.
    pub(super) fn doubt<'r>(&self, runs: impl IntoIterator<Item = &'r RunId>) -> Result<(), StoreError> {
        let sql = "UPDATE run SET ready = -1 WHERE id = ?1 AND status = 'queued'";
        runs.into_iter().try_for_each(|run| self.execute(sql, [run.as_str()]))
    }

    /// Queued runs that may have begun before a power cut.
    pub fn doubtful(&self) -> Result<Vec<Run>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM run INDEXED BY run_doubtful JOIN request ON request.seq = run.request
             WHERE run.ready < 0 ORDER BY run.seq"
        );
        self.many(&sql, [])
    }

    /// Notes that it was seen to what may have begun.
    pub fn end_doubt(&self, run: &RunId) -> Result<(), StoreError> {
        self.execute("UPDATE run SET ready = 1 WHERE id = ?1 AND ready < 0", params![run.as_str()])
    }
}
