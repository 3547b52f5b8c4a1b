//! File system properties and file operations: network file systems, private files, holes, other writers.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use super::access;

/// `O_NOFOLLOW`: opening fails when the last component of the path is a symbolic link.
pub const NO_FOLLOW: i32 = libc::O_NOFOLLOW;

/// A flag for opening files: opening a named pipe does not wait for its other end.
pub const NO_WAIT: i32 = libc::O_NONBLOCK;

/// Returns the name of the network file system that `dir` is on, or `None` for a local file system.
///
/// A network file system can lose locks when the connection drops, can grant them per machine, or does not keep
/// SQLite's shared memory coherent. A store there would be unsafe, and nobody would notice. The same is true for folders that a
/// virtual machine shares with its host. Cluster file systems (GFS2, OCFS2) keep their locks and pass. FUSE passes only if
/// the table of mounts names a kind that is known to be local.
pub fn network_file_system(dir: &Path) -> io::Result<Option<&'static str>> {
    let stat = rustix::fs::statfs(dir)?;
    Ok(network_name(&stat, dir))
}

#[cfg(target_os = "linux")]
fn network_name(stat: &rustix::fs::StatFs, dir: &Path) -> Option<&'static str> {
    // Some machines sign-extend the kernel's 32-bit magic numbers.
    match stat.f_type as u32 {
        FUSE => {
            let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
            let device = rustix::fs::stat(dir).map_or(0, |facts| facts.st_dev);
            let device = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
            fuse_name(type_in(&mounts, &device).unwrap_or_default())
        }
        magic => name_of_magic(magic),
    }
}

/// The magic number of all kinds of FUSE, and of virtiofs.
#[cfg(target_os = "linux")]
const FUSE: u32 = 0x6573_5546;

/// The type of the file system on a device (`MAJOR:MINOR`) in the text of `/proc/self/mountinfo`.
#[cfg(target_os = "linux")]
fn type_in<'m>(mounts: &'m str, device: &str) -> Option<&'m str> {
    let line = mounts.lines().find(|line| line.split(' ').nth(2) == Some(device))?;
    // After the separator come the type, the source and the options.
    line.split_once(" - ")?.1.split(' ').next()
}

/// The name of a kind of FUSE whose locks are not reliable; `None` for kinds that are local.
#[cfg(target_os = "linux")]
fn fuse_name(kind: &str) -> Option<&'static str> {
    match kind {
        // A local disk (NTFS, exFAT), and layers over local folders.
        "fuseblk"
        | "fuse.fuse-overlayfs"
        | "fuse.gocryptfs"
        | "fuse.encfs"
        | "fuse.cryfs"
        | "fuse.mergerfs"
        | "fuse.bindfs"
        | "fuse.lxcfs" => None,
        "virtiofs" => Some("virtiofs"),
        "fuse.sshfs" => Some("sshfs"),
        "fuse.vmhgfs-fuse" => Some("vmhgfs"),
        "fuse.grpcfuse" | "fuse.osxfs" | "fakeowner" => Some("a folder shared by Docker Desktop"),
        _ => Some("FUSE"),
    }
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
        0x786f_4256 => Some("vboxsf"),
        0xbacb_acbc => Some("vmhgfs"),
        _ => None,
    }
}

#[cfg(target_vendor = "apple")]
fn network_name(stat: &rustix::fs::StatFs, _dir: &Path) -> Option<&'static str> {
    if stat.f_flags & (libc::MNT_LOCAL as u32) != 0 {
        return None;
    }
    let name: Vec<u8> = stat.f_fstypename.iter().map(|c| *c as u8).take_while(|byte| *byte != 0).collect();
    Some(match name.as_slice() {
        b"nfs" => "nfs",
        b"smbfs" => "smb",
        b"afpfs" => "afp",
        b"webdav" => "webdav",
        _ => "a network file system",
    })
}

/// Not implemented on other systems: a store on a network file system is not detected there.
#[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
fn network_name(_stat: &rustix::fs::StatFs, _dir: &Path) -> Option<&'static str> {
    None
}

/// Opens one of our own files for reading and writing. If it is missing, creates it with mode 0600, or with the access of a
/// shared folder. Refuses anything but a regular file, and does not block on a FIFO.
pub fn open_private(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let open = |flags| rustix::io::retry_on_intr(|| rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR));
    let descriptor = loop {
        match open(flags) {
            Ok(descriptor) => break descriptor,
            Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        match open(flags | OFlags::CREATE | OFlags::EXCL) {
            Ok(descriptor) => {
                access::inherit(&descriptor, path.parent().unwrap_or(path))?;
                break descriptor;
            }
            // Another process was faster.
            Err(Errno::EXIST) if path.symlink_metadata().is_ok_and(|found| !found.is_symlink()) => {}
            Err(error) => return Err(error.into()),
        }
    };
    regular(descriptor, path)
}

/// Opens one of our own files for reading only, where the folder may be read-only.
pub fn open_to_read(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let descriptor = rustix::io::retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty()))?;
    regular(descriptor, path)
}

/// Refuses anything but a regular file.
fn regular(descriptor: OwnedFd, path: &Path) -> io::Result<OwnedFd> {
    if FileType::from_raw_mode(rustix::fs::fstat(&descriptor)?.st_mode) == FileType::RegularFile {
        Ok(descriptor)
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{} is not a regular file", path.display())))
    }
}

/// The inode of an open file and the nanosecond of its creation; zero where the file system does not keep that.
///
/// File systems give the inode of a deleted file to a new one. The creation time distinguishes the two.
#[cfg(target_os = "linux")]
pub fn inode_and_birth(file: impl AsFd) -> io::Result<(u64, u64)> {
    use rustix::fs::{AtFlags, StatxFlags, statx};

    let facts = statx(&file, "", AtFlags::EMPTY_PATH, StatxFlags::INO | StatxFlags::BTIME)?;
    let nanoseconds = facts.stx_btime.tv_sec.cast_unsigned().wrapping_mul(1_000_000_000);
    Ok((facts.stx_ino, nanoseconds.wrapping_add(u64::from(facts.stx_btime.tv_nsec))))
}

/// The inode of an open file and the nanosecond of its creation.
#[cfg(target_vendor = "apple")]
pub fn inode_and_birth(file: impl AsFd) -> io::Result<(u64, u64)> {
    let facts = rustix::fs::fstat(file)?;
    let nanoseconds = facts.st_birthtime.cast_unsigned().wrapping_mul(1_000_000_000);
    Ok((facts.st_ino, nanoseconds.wrapping_add(facts.st_birthtime_nsec.cast_unsigned())))
}

/// The inode of an open file. The creation time is not known here.
#[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
pub fn inode_and_birth(file: impl AsFd) -> io::Result<(u64, u64)> {
    Ok((rustix::fs::fstat(file)?.st_ino, 0))
}

/// The nanosecond in which an open file was last changed in any way (`ctime`). No program can set it, so a file that was
/// restored from a copy has another one.
pub fn changed_at(file: &File) -> io::Result<u64> {
    use std::os::unix::fs::MetadataExt;

    let facts = file.metadata()?;
    Ok(facts
        .ctime()
        .cast_unsigned()
        .wrapping_mul(1_000_000_000)
        .wrapping_add(facts.ctime_nsec().cast_unsigned()))
}

/// Reads an extended attribute of a file or folder. None if it has none, or if the file system has no attributes.
#[cfg(any(target_os = "linux", target_vendor = "apple"))]
pub fn attribute(path: &Path, name: &str) -> Option<String> {
    let mut value = [0; 64];
    let length = rustix::fs::getxattr(path, name, &mut value[..]).ok()?;
    Some(std::str::from_utf8(value.get(..length)?).ok()?.to_owned())
}

/// Sets an extended attribute of a file or folder.
#[cfg(any(target_os = "linux", target_vendor = "apple"))]
pub fn set_attribute(path: &Path, name: &str, value: &str) -> io::Result<()> {
    Ok(rustix::fs::setxattr(path, name, value.as_bytes(), rustix::fs::XattrFlags::empty())?)
}

/// Other systems have other attributes.
#[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
pub fn attribute(_path: &Path, _name: &str) -> Option<String> {
    None
}

/// Other systems have other attributes.
#[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
pub fn set_attribute(_path: &Path, _name: &str, _value: &str) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
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

/// Frees the disk blocks of a range of a file. The range then reads as zeros, and the file keeps its length.
#[cfg(target_os = "linux")]
pub fn punch_hole(file: &File, from: u64, length: u64) -> io::Result<()> {
    use rustix::fs::{FallocateFlags, fallocate};

    Ok(fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, from, length)?)
}

/// Only Linux has one call for it that many file systems support.
#[cfg(not(target_os = "linux"))]
pub fn punch_hole(_file: &File, _from: u64, _length: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// The libc crate lacks this constant. It has the same value on every architecture.
#[cfg(target_os = "linux")]
const F_SETSIG: libc::c_int = 10;

/// Says whether another process has this file open for writing; `None` when the system cannot say.
///
/// Linux grants a read lease (`F_SETLEASE`) only while nobody has the file open for writing. `descriptor` must be open
/// for reading only.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "rustix has no leases")]
pub fn has_writers(descriptor: impl AsFd) -> Option<bool> {
    let number = descriptor.as_fd().as_raw_fd();
    // The kernel signals us when somebody opens the file at this moment. SIGIO would kill; SIGURG is ignored by default.
    // SAFETY: the descriptor is open, and the commands take integers.
    unsafe { libc::fcntl(number, F_SETSIG, libc::SIGURG) };
    // SAFETY: as above.
    let outcome = unsafe { libc::fcntl(number, libc::F_SETLEASE, libc::F_RDLCK) };
    if outcome == -1 {
        return (io::Error::last_os_error().raw_os_error() == Some(libc::EAGAIN)).then_some(true);
    }
    // SAFETY: as above. Returning a lease that was just granted cannot fail.
    unsafe { libc::fcntl(number, libc::F_SETLEASE, libc::F_UNLCK) };
    Some(false)
}

/// Says whether another process has this file open for writing. Only Linux knows.
#[cfg(not(target_os = "linux"))]
pub fn has_writers(descriptor: impl AsFd) -> Option<bool> {
    let _ = descriptor.as_fd().as_raw_fd();
    None
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
        assert_eq!(
            network_file_system(&dir.path().join("missing")).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_writer_is_noticed_until_it_closes_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let writer = File::create(&path).unwrap();
        let reader = File::open(&path).unwrap();
        assert_eq!(has_writers(&reader), Some(true));
        drop(writer);
        assert_eq!(has_writers(&reader), Some(false));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn local_file_systems_pass_and_network_ones_are_named() {
        assert_eq!(network_file_system(Path::new("/proc")).unwrap(), None);
        // ext4, btrfs, xfs, tmpfs, overlayfs, gfs2, ocfs2.
        let local = [0xef53, 0x9123_683e, 0x5846_5342, 0x0102_1994, 0x794c_7630, 0x0116_1970, 0x7461_636f];
        assert!(local.into_iter().all(|magic| name_of_magic(magic).is_none()));
        assert_eq!(name_of_magic(0x786f_4256), Some("vboxsf"));
        assert_eq!(name_of_magic(0xbacb_acbc), Some("vmhgfs"));
        assert_eq!(name_of_magic(0x6969), Some("nfs"));
        assert_eq!(name_of_magic(0xff53_4d42_u32 as i32 as i64 as u32), Some("cifs"));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn fuse_passes_only_where_it_is_known_to_be_local() {
        let mounts = "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw\n\
            40 35 0:52 / /home/me/shared rw,relatime - virtiofs shared rw\n\
            41 35 0:53 / /mnt/x rw shared:7 - fuse.sshfs me@host:/ rw\n";
        assert_eq!(type_in(mounts, "98:0"), Some("ext3"));
        assert_eq!(type_in(mounts, "0:52").and_then(fuse_name), Some("virtiofs"));
        assert_eq!(type_in(mounts, "0:53").and_then(fuse_name), Some("sshfs"));
        assert_eq!(type_in(mounts, "0:54"), None);
        for local in ["fuseblk", "fuse.fuse-overlayfs"] {
            assert_eq!(fuse_name(local), None, "{local}");
        }
        for unknown in ["", "fuse", "fuse.s3fs"] {
            assert_eq!(fuse_name(unknown), Some("FUSE"), "{unknown}");
        }
    }
}
