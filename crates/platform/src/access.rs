//! Access to new files: what a process creates in a state folder belongs to the owner of the folder, and to its group if the
//! folder is shared.
//!
//! Without this, root (`sudo`, a container) would leave files that the owner of the folder cannot open. A folder is shared if its
//! group may write and new files get its group (`g+ws`), as git makes folders with `core.sharedRepository`.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

use rustix::fs::{Gid, Mode, OFlags, Uid, fchmod, fchown, fstat};

/// Group write access, and the bit that gives new files the group of the folder.
const SHARED: u32 = 0o2020;

/// Whether the group of a folder shares what is in it.
pub fn is_shared(folder: &fs::Metadata) -> bool {
    folder.mode() & SHARED == SHARED
}

/// Gives a file or folder that this process has created the owner and the group access of the folder that it is in.
///
/// If the system refuses the change, the file stays as it is: a container may not know the owner. `doctor` reports such files.
pub fn inherit(new: impl AsFd, folder: &Path) -> io::Result<()> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let above = fs::metadata(folder)?;
    let is_root = rustix::process::geteuid().is_root();
    if !is_root && !is_shared(&above) {
        return Ok(());
    }
    let own = fstat(&new)?;
    let is_folder = rustix::fs::FileType::from_raw_mode(own.st_mode) == rustix::fs::FileType::Directory;
    // A file with two names may be a file of root to which another user has made a hard link.
    if !is_folder && own.st_nlink != 1 {
        return Ok(());
    }
    if is_root && (own.st_uid, own.st_gid) != (above.uid(), above.gid()) {
        let _ = fchown(&new, Some(Uid::from_raw(above.uid())), Some(Gid::from_raw(above.gid())));
    }
    if is_shared(&above) {
        let mode = if is_folder { 0o2770 } else { 0o660 };
        let _ = fchmod(&new, Mode::from_raw_mode(mode));
    }
    Ok(())
}

/// Makes a folder with mode 0700, and those above it that are missing. Each inherits the access of the folder that it is in.
/// Does nothing if the folder exists. Returns whether it was made.
pub fn make_folder(path: &Path) -> io::Result<bool> {
    let create = || fs::DirBuilder::new().mode(0o700).create(path);
    let created = match (create(), path.parent().filter(|above| !above.as_os_str().is_empty())) {
        (Err(error), Some(above)) if error.kind() == io::ErrorKind::NotFound => {
            make_folder(above)?;
            create()
        }
        (created, _) => created,
    };
    match created {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => return Ok(false),
        Err(error) => return Err(error),
    }
    inherit(open_new_folder(path)?, &path.join(".."))?;
    Ok(true)
}

/// Whether a state folder in this folder is for a group: the folder is shared, or the git repository says so.
pub fn is_for_group(around: &Path) -> bool {
    fs::metadata(around).is_ok_and(|facts| is_shared(&facts)) || is_shared_repository(around)
}

/// Makes a state folder. It is also shared if the git repository around it says so.
pub fn make_state_folder(path: &Path) -> io::Result<()> {
    if make_folder(path)? && is_shared_repository(&path.join("..")) {
        let new = open_new_folder(path)?;
        let group = fs::metadata(path.join(".."))?.gid();
        fchown(&new, None, Some(Gid::from_raw(group)))?;
        fchmod(&new, Mode::from_raw_mode(0o2770))?;
    }
    Ok(())
}

fn open_new_folder(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Whether the configuration of a git folder has a `core.sharedRepository` that lets the group write.
fn is_shared_repository(git: &Path) -> bool {
    let is_repository = git.join("HEAD").exists() && git.join("objects").is_dir();
    let config = File::open(git.join("config")).and_then(io::read_to_string);
    is_repository && config.is_ok_and(|config| shares(&config))
}

/// Whether the last `core.sharedRepository` of a git configuration lets the group write.
fn shares(config: &str) -> bool {
    let (mut in_core, mut shared) = (false, false);
    for line in config.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[') {
            in_core = section.trim_end_matches(']').trim().eq_ignore_ascii_case("core");
            continue;
        }
        let (key, value) = line.split_once('=').unwrap_or((line, "true"));
        if in_core && key.trim().eq_ignore_ascii_case("sharedRepository") {
            let value = value.split(['#', ';']).next().unwrap_or_default().trim().to_ascii_lowercase();
            shared = match value.as_str() {
                "group" | "true" | "yes" | "on" | "all" | "world" | "everybody" | "1" | "2" => true,
                mode => u32::from_str_radix(mode, 8).is_ok_and(|mode| mode & 0o020 != 0),
            };
        }
    }
    shared
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().mode() & 0o7777
    }

    #[test]
    fn a_folder_is_for_its_owner_only_unless_the_one_above_is_shared() {
        let temp = tempfile::tempdir().unwrap();
        assert!(make_folder(&temp.path().join("a/b")).unwrap());
        assert!(!make_folder(&temp.path().join("a/b")).unwrap());
        assert!(make_folder(Path::new("/proc/none/x")).is_err());
        assert_eq!((mode(&temp.path().join("a")), mode(&temp.path().join("a/b"))), (0o700, 0o700));
        fs::set_permissions(temp.path(), fs::Permissions::from_mode(0o2775)).unwrap();
        make_folder(&temp.path().join("c/d")).unwrap();
        assert_eq!((mode(&temp.path().join("c")), mode(&temp.path().join("c/d"))), (0o2770, 0o2770));
        let file = File::create(temp.path().join("c/file")).unwrap();
        inherit(&file, &temp.path().join("c")).unwrap();
        assert_eq!(mode(&temp.path().join("c/file")), 0o660);
    }

    #[test]
    fn the_configuration_of_git_is_read_as_git_reads_it() {
        for shared in ["group", "true", "all", "world", "0660", "0664", "1", "Group ; for us"] {
            let text = format!("[user]\n\tname = x\n[Core]\n\tbare = false\n\tsharedrepository = {shared}\n");
            assert!(shares(&text), "{shared}");
        }
        assert!(shares("[core]\nsharedRepository\n"));
        for private in ["umask", "false", "0", "0600", "0640"] {
            assert!(!shares(&format!("[core]\nsharedRepository = {private}\n")), "{private}");
        }
        assert!(!shares("[core]\n[other]\nsharedRepository = group\n"));
        assert!(!shares("[core]\nsharedRepository = group\nsharedRepository = umask\n"));
    }
}
