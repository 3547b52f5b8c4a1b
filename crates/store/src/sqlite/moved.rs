//! The mark of a store that was moved: the file `moved` in the state folder. It names the other store.
//!
//! The mark is about requests, runs, and leases of commands. The leases of agents stay in the state folder of their machine.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use lockkeeper_platform::fs::open_private;

use crate::StoreError;

const MARK: &str = "moved";

/// The store that this one was moved to.
pub(crate) fn moved_to(folder: &Path) -> Result<Option<String>, StoreError> {
    let path = folder.join(MARK);
    match fs::read_to_string(&path) {
        Ok(text) => Ok(Some(text.trim_end().to_owned())),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(StoreError::io("read", &path, error)),
    }
}

/// Fails if the store was moved.
pub(crate) fn refuse(folder: &Path) -> Result<(), StoreError> {
    match moved_to(folder)? {
        Some(to) => Err(StoreError::Moved { address: folder.display().to_string(), to }),
        None => Ok(()),
    }
}

/// Writes the mark, or removes it. It is on the disk when this returns.
pub(crate) fn set_moved_to(folder: &Path, to: Option<&str>) -> Result<(), StoreError> {
    let path = folder.join(MARK);
    let written = match to {
        Some(to) => write(&path, to),
        None => fs::remove_file(&path),
    };
    match written.and_then(|()| File::open(folder)?.sync_all()) {
        Err(error) if to.is_none() && error.kind() == io::ErrorKind::NotFound => Ok(()),
        written => written.map_err(|error| StoreError::io("write", &path, error)),
    }
}

/// Other processes see the whole mark or none.
fn write(path: &Path, to: &str) -> io::Result<()> {
    let new = path.with_extension("tmp");
    let mut file = File::from(open_private(&new)?);
    file.set_len(0)?;
    writeln!(file, "{to}")?;
    file.sync_all()?;
    fs::rename(&new, path)
}
