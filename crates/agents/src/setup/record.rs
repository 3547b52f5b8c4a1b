//! Records of files that `init` has changed: the text before and after, so that `--remove` can give the former bytes back.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use lockkeeper_platform::access;
use serde::{Deserialize, Serialize};

use super::replace;
use crate::repository::real_path;

/// One file that was changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The file.
    pub file: PathBuf,
    /// Its text before. None: it did not exist.
    pub before: Option<String>,
    /// Its text after.
    pub after: String,
    /// Folders that were made for it, the innermost first.
    pub folders: Vec<PathBuf>,
}

/// The records in one folder. Settings may have secrets, so only their owner can read them.
#[derive(Clone, Debug)]
pub struct Records {
    folder: PathBuf,
}

impl Records {
    pub fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// The record of a file. One that cannot be read counts as missing: then our entries are removed one by one.
    pub fn get(&self, name: &str, file: &Path) -> Option<Record> {
        let text = replace::read(&self.path(name)).ok()??;
        let record: Record = serde_json::from_str(&text).ok()?;
        (record.file == file).then_some(record)
    }

    /// The record of the file behind this path by which it got this text, also under another name: two agents may have one file.
    pub fn of_text(&self, file: &Path, text: &str) -> Option<Record> {
        self.of_file(file).into_iter().map(|(_, record)| record).find(|record| record.after == text)
    }

    /// Removes all records of the file behind this path.
    pub fn remove_all(&self, file: &Path) -> io::Result<()> {
        self.of_file(file).iter().try_for_each(|(name, _)| self.remove(name))
    }

    fn of_file(&self, file: &Path) -> Vec<(String, Record)> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let names =
            entries.filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(".json")?.to_owned()));
        let read = |name: String| {
            let record: Record = serde_json::from_str(&replace::read(&self.path(&name)).ok()??).ok()?;
            (real_path(&record.file)? == real_path(file)?).then_some((name, record))
        };
        names.filter_map(read).collect()
    }

    pub fn put(&self, name: &str, record: &Record) -> io::Result<()> {
        access::make_folder(&self.folder)?;
        let text = serde_json::to_string(record).map_err(io::Error::other)?;
        let path = self.path(name);
        let before = replace::read(&path)?;
        if before.as_ref() != Some(&text) {
            replace::write(&path, before.as_deref(), &text)?;
        }
        Ok(())
    }

    /// Removes a record, and the folder with the last one.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        match fs::remove_file(self.path(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        // Other records may be in it, and other files in the folder above.
        let _ = fs::remove_dir(&self.folder);
        let _ = self.folder.parent().map(fs::remove_dir);
        Ok(())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.json"))
    }
}
