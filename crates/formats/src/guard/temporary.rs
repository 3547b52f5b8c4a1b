//! Temporary files with random names: new records, spares, and records that were moved aside.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};

use lockkeeper_platform::{folder, random};
use rustix::fs::{AtFlags, Dir, unlinkat};

use super::Guard;
use crate::safe_open::FileId;

const PREFIX: &str = ".lockkeeper-";
const SUFFIX: &str = ".tmp";

/// A file with a random name. Dropping it removes the name, unless [`Temporary::keep`] was called.
#[derive(Debug)]
pub(super) struct Temporary<'g, 'f> {
    guard: &'g Guard<'f>,
    name: String,
    file: File,
    kept: bool,
}

impl<'g, 'f> Temporary<'g, 'f> {
    /// Creates an empty file, under the guard, so that no sweep takes it for an orphan.
    pub(super) fn create(guard: &'g Guard<'f>, mode: u32) -> io::Result<Self> {
        let name = unused_name()?;
        let file = File::from(folder::create_new(guard.as_fd(), &name, mode)?);
        Ok(Self { guard, name, file, kept: false })
    }

    /// Writes the content, reads it back, and says whether it is the same.
    pub(super) fn fill(&self, content: &[u8]) -> io::Result<bool> {
        self.file.write_all_at(content, 0)?;
        reads_back(&self.file, content)
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn id(&self) -> io::Result<FileId> {
        FileId::of(&self.file)
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Returns the name and the file, and does not remove the name.
    pub(super) fn keep(mut self) -> io::Result<(String, File)> {
        self.kept = true;
        Ok((self.name.clone(), self.file.try_clone()?))
    }
}

impl Drop for Temporary<'_, '_> {
    fn drop(&mut self) {
        if !self.kept {
            // The next process that takes a lock sweeps a name that cannot be removed now.
            let _ = unlinkat(self.guard.as_fd(), &*self.name, AtFlags::empty());
        }
    }
}

/// Says whether the file has exactly this content.
pub(super) fn reads_back(file: &File, content: &[u8]) -> io::Result<bool> {
    let mut read = vec![0; content.len() + 1];
    let mut length = 0;
    while length < read.len() {
        match file.read_at(&mut read[length..], length as u64) {
            Ok(0) => break,
            Ok(count) => length += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(&read[..length] == content)
}

/// Returns a random name.
pub(super) fn unused_name() -> io::Result<String> {
    Ok(format!("{PREFIX}{:016x}{SUFFIX}", random::number()?))
}

/// Removes the files that killed processes left behind. A live holder has its spare locked. Any other file with such a
/// name exists only while a process has the guard, and we have it now.
pub(super) fn sweep(guard: &Guard<'_>) -> io::Result<()> {
    for name in orphans(guard)? {
        let _ = unlinkat(guard.as_fd(), &*name, AtFlags::empty());
    }
    Ok(())
}

/// Lists the files that killed processes left behind.
pub(super) fn orphans(guard: &Guard<'_>) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in Dir::read_from(guard.as_fd())? {
        let entry = entry?;
        let Ok(name) = entry.file_name().to_str() else { continue };
        let digits = name.strip_prefix(PREFIX).and_then(|rest| rest.strip_suffix(SUFFIX));
        let is_ours = digits
            .is_some_and(|digits| digits.len() == 16 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        if is_ours && is_orphan(guard, name) {
            found.push(name.to_owned());
        }
    }
    Ok(found)
}

/// Says whether it is a file of ours that nobody has locked. A file that cannot be opened is left alone. The file may
/// have a second name: where publishing takes two steps, its writer was killed between them.
fn is_orphan(guard: &Guard<'_>, name: &str) -> bool {
    let Ok(file) = folder::open_existing(guard.as_fd(), name).map(File::from) else { return false };
    let ours = file
        .metadata()
        .is_ok_and(|metadata| metadata.is_file() && metadata.uid() == rustix::process::geteuid().as_raw());
    // Closing the descriptor unlocks the file.
    ours && folder::try_lock(file).unwrap_or(false)
}
