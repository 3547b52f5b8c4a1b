//! Replaces a file in one step: follows symlinks, keeps mode and owner, and never overwrites what somebody else has just written.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use lockkeeper_platform::random;

use crate::repository::real_path;

/// The longest settings file, in bytes.
const MAX_BYTES: u64 = 16 << 20;

/// Reads a text file. None if there is no such file.
pub fn read(path: &Path) -> io::Result<Option<String>> {
    let meta = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        meta => meta?,
    };
    if !meta.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a file"));
    }
    if meta.len() > MAX_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is too large for settings"));
    }
    fs::read_to_string(path).map(Some)
}

/// Replaces the text of a file that has the text `before` now, or makes it. Returns the folders that were made for it.
pub fn write(path: &Path, before: Option<&str>, text: &str) -> io::Result<Vec<PathBuf>> {
    // A dotfile is often a symlink into another folder: its target is what changes.
    let path = behind_links(path)?;
    let folder = path.parent().ok_or_else(|| io::Error::other("it has no folder"))?;
    let made = make_folders(folder)?;
    let meta = fs::metadata(&path).ok();
    let mode = meta.as_ref().map_or(0o600, |meta| meta.permissions().mode() & 0o7777);
    let new = folder.join(format!(".lockkeeper-{:016x}.new", random::number()?));
    let written = (|| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(text.as_bytes())?;
        let own = file.metadata()?;
        // What root changes still belongs to its owner. If the system refuses, nothing is replaced.
        if let Some(meta) = meta.filter(|meta| (meta.uid(), meta.gid()) != (own.uid(), own.gid())) {
            chown(&new, Some(meta.uid()), Some(meta.gid()))?;
        }
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        file.sync_all()?;
        if read(&path)?.as_deref() != before {
            return Err(changed());
        }
        fs::rename(&new, &path)?;
        // After a power cut the folder may otherwise have the old file. Not all file systems can do this.
        let _ = File::open(folder).and_then(|folder| folder.sync_all());
        Ok(())
    })();
    if written.is_err() {
        let _ = fs::remove_file(&new);
        remove_folders(&made);
    }
    written.map(|()| made)
}

/// Removes a file that has the text `before` now, and the folders that were made for it, if they are empty. A symlink to it stays.
pub fn remove(path: &Path, before: &str, made: &[PathBuf]) -> io::Result<()> {
    if read(path)?.as_deref() != Some(before) {
        return Err(changed());
    }
    fs::remove_file(behind_links(path)?)?;
    remove_folders(made);
    Ok(())
}

fn behind_links(path: &Path) -> io::Result<PathBuf> {
    real_path(path)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "its path is not absolute, or too long"))
}

/// The text is not what it was when the change was worked out.
fn changed() -> io::Error {
    io::Error::new(io::ErrorKind::ResourceBusy, "another program has just changed it")
}

/// Whether an error may come from another program that changed the file or its folder at the same time.
pub fn is_race(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ResourceBusy | io::ErrorKind::NotFound)
}

/// Makes missing folders, with the access that the user's other folders have. Returns them, the innermost first.
fn make_folders(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let missing: Vec<PathBuf> =
        folder.ancestors().take_while(|folder| !folder.exists()).map(Path::to_owned).collect();
    for folder in missing.iter().rev() {
        match fs::create_dir(folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    Ok(missing)
}

fn remove_folders(made: &[PathBuf]) {
    // A folder that is not empty is used by somebody else, and stays.
    made.iter().for_each(|folder| drop(fs::remove_dir(folder)));
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn mode_and_symlinks_stay() {
        let temp = tempfile::tempdir().unwrap();
        let (file, link) = (temp.path().join("dotfiles/settings.json"), temp.path().join("settings.json"));
        fs::create_dir(temp.path().join("dotfiles")).unwrap();
        fs::write(&file, "old").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        symlink("dotfiles/settings.json", &link).unwrap();
        assert!(write(&link, Some("old"), "new").unwrap().is_empty());
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o640);
        assert_eq!(fs::read_dir(temp.path().join("dotfiles")).unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_was_changed_meanwhile_stays() {
        let temp = tempfile::tempdir().unwrap();
        let file = temp.path().join("settings.json");
        fs::write(&file, "theirs").unwrap();
        write(&file, Some("old"), "new").unwrap_err();
        write(&file, None, "new").unwrap_err();
        remove(&file, "old", &[]).unwrap_err();
        assert_eq!(fs::read_to_string(&file).unwrap(), "theirs");
        assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 1);
    }

    #[test]
    fn folders_that_were_made_are_removed_again() {
        let temp = tempfile::tempdir().unwrap();
        let file = temp.path().join("a/b/settings.json");
        let made = write(&file, None, "new").unwrap();
        assert_eq!(
            made,
            [temp.path().join("a/b"), temp.path().join("a")].map(|path| path.canonicalize().unwrap())
        );
        remove(&file, "new", &made).unwrap();
        assert!(!temp.path().join("a").exists());
    }
}
