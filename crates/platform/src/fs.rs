//! Which folders can carry locks at all, and how the files there are opened.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags};

/// A flag for opening files: a symbolic link in the last place is an error.
pub const NO_FOLLOW: i32 = libc::O_NOFOLLOW;

/// A flag for opening files: opening a named pipe does not wait for its other end.
pub const NO_WAIT: i32 = libc::O_NONBLOCK;

/// Names the network file system that `dir` lies on, or nothing when it is a local one.
///
/// Network file systems lose locks with the connection, grant them per machine, or leave SQLite's shared memory
/// incoherent: a store there would be unsafe without anybody noticing. Cluster file systems (GFS2, OCFS2) keep their
/// locks and pass; so does FUSE, whose many kinds cannot be told apart here.
pub fn refuse_network(dir: &Path) -> io::Result<Option<&'static str>> {
    let facts = rustix::fs::statfs(dir)?;
    Ok(network_name(&facts))
}

#[cfg(target_os = "linux")]
fn network_name(facts: &rustix::fs::StatFs) -> Option<&'static str> {
    // The kernel's 32-bit magic numbers, sign-extended on some machines.
    name_of_magic(facts.f_type as u32)
}

#[cfg(target_os = "linux")]
fn name_of_magic(magic: u32) -> Option<&'static str> {
    match magic {
        0x0000_6969 => Some("nfs"),
        0x0000_517b => Some("smb"),
        0xff53_4d42 => Some("cifs"),
        0xfe53_4d42 => Some("smb2"),
        0x0102_1997 => Some("9p"),
        0x5346_414f | 0x6b41_4653 => Some("afs"),
        0x00c3_6400 => Some("ceph"),
        0x7375_7245 => Some("coda"),
        0x0000_564c => Some("ncp"),
        _ => None,
    }
}

#[cfg(target_vendor = "apple")]
fn network_name(facts: &rustix::fs::StatFs) -> Option<&'static str> {
    if facts.f_flags & (libc::MNT_LOCAL as u32) != 0 {
        return None;
    }
    let name: Vec<u8> = facts.f_fstypename.iter().map(|c| *c as u8).take_while(|byte| *byte != 0).collect();
    Some(match name.as_slice() {
        b"nfs" => "nfs",
        b"smbfs" => "smb",
        b"afpfs" => "afp",
        b"webdav" => "webdav",
        _ => "a network file system",
    })
}

/// Other systems are taken at their word: a store on a network file system is not noticed there.
#[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
fn network_name(_facts: &rustix::fs::StatFs) -> Option<&'static str> {
    None
}

/// Opens a file of our own to read and write, made for its owner only if it is not there. Anything but a regular file is
/// refused, and not waited for.
pub fn open_private(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let descriptor = rustix::io::retry_on_intr(|| rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR))?;
    if FileType::from_raw_mode(rustix::fs::fstat(&descriptor)?.st_mode) == FileType::RegularFile {
        Ok(descriptor)
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{} is not a regular file", path.display())))
    }
}

/// Opens a file in a folder for reading. Neither the folder nor the file may be a symbolic link. Anything but a regular file
/// is refused, and not waited for.
pub fn open_in(folder: &Path, name: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let open = || rustix::fs::open(folder, flags | OFlags::DIRECTORY, Mode::empty());
    let within = rustix::io::retry_on_intr(open).map_err(|error| match error {
        rustix::io::Errno::NOTDIR | rustix::io::Errno::LOOP => not_a_folder(folder),
        error => error.into(),
    })?;
    let open = || rustix::fs::openat(&within, name, flags | OFlags::NONBLOCK, Mode::empty());
    only_regular(rustix::io::retry_on_intr(open).map(File::from).map_err(Into::into), &folder.join(name))
}

/// Refuses a symbolic link, or anything else that is not a folder.
pub fn require_folder(path: &Path) -> io::Result<()> {
    if std::fs::symlink_metadata(path)?.is_dir() { Ok(()) } else { Err(not_a_folder(path)) }
}

/// Refuses what was opened with [`NO_WAIT`] and is not a regular file, such as a named pipe.
pub fn only_regular(opened: io::Result<File>, path: &Path) -> io::Result<File> {
    let refused = || {
        let message = format!("{} is not a regular file", path.display());
        io::Error::new(io::ErrorKind::InvalidInput, message)
    };
    match opened {
        Ok(file) if file.metadata()?.is_file() => Ok(file),
        Ok(_) => Err(refused()),
        // A named pipe that nobody reads, opened for writing.
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => Err(refused()),
        Err(error) => Err(error),
    }
}

fn not_a_folder(path: &Path) -> io::Error {
    let message = format!("{} is a symbolic link or a file, not a folder", path.display());
    io::Error::new(io::ErrorKind::NotADirectory, message)
}

/// Gives a part of a file back to the disk: it reads as zeros from then on, and the file stays as long as it was.
#[cfg(target_os = "linux")]
pub fn punch_hole(file: &File, from: u64, length: u64) -> io::Result<()> {
    use rustix::fs::{FallocateFlags, fallocate};

    Ok(fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, from, length)?)
}

/// Only Linux has a common way to do it.
#[cfg(not(target_os = "linux"))]
pub fn punch_hole(_file: &File, _from: u64, _length: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_of_real_folders_are_opened() {
        let temp = tempfile::tempdir().unwrap();
        let (folder, link) = (temp.path().join("folder"), temp.path().join("link"));
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("file"), "text").unwrap();
        std::os::unix::fs::symlink(&folder, &link).unwrap();
        std::os::unix::fs::symlink("file", folder.join("alias")).unwrap();
        let made = std::process::Command::new("mkfifo").arg(folder.join("pipe")).status().unwrap();
        assert!(made.success());
        open_in(&folder, Path::new("file")).unwrap();
        assert_eq!(open_in(&link, Path::new("file")).unwrap_err().kind(), io::ErrorKind::NotADirectory);
        assert_eq!(open_in(&folder, Path::new("pipe")).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(open_in(&folder, Path::new("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(open_in(&folder, Path::new("alias")).is_err());
        assert!(require_folder(&link).is_err() && require_folder(&folder).is_ok());
    }

    #[test]
    fn a_missing_folder_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(refuse_network(&dir.path().join("missing")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn local_file_systems_pass_and_remote_ones_are_named() {
        assert_eq!(refuse_network(Path::new("/proc")).unwrap(), None);
        // ext4, btrfs, xfs, tmpfs, overlayfs, fuse, gfs2, ocfs2.
        let local = [
            0xef53,
            0x9123_683e,
            0x5846_5342,
            0x0102_1994,
            0x794c_7630,
            0x6573_5546,
            0x0116_1970,
            0x7461_636f,
        ];
        assert!(local.into_iter().all(|magic| name_of_magic(magic).is_none()));
        assert_eq!(name_of_magic(0x6969), Some("nfs"));
        assert_eq!(name_of_magic(0xff53_4d42_u32 as i32 as i64 as u32), Some("cifs"));
    }
}
