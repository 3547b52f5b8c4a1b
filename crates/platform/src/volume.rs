//! Volume: the file system of a folder, with its type, free space and mount flags.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{StatVfsMountFlags, statvfs};

use super::fs;

/// The state of a file system at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// The device number, which is different for every file system.
    pub device: u64,
    /// The type, such as `ext4`, where it is known.
    pub kind: Option<&'static str>,
    /// The type if it is a network file system, whose locks are not reliable.
    pub network: Option<&'static str>,
    /// Whether it is mounted read-only.
    pub read_only: bool,
    /// Bytes that this user may still write.
    pub free_bytes: u64,
    /// Files that this user may still create; `None` where the file system has no fixed number of inodes.
    pub free_files: Option<u64>,
}

impl Volume {
    /// Reads the state of the file system that an existing folder is on.
    pub fn of(folder: &Path) -> io::Result<Self> {
        let stat = statvfs(folder)?;
        Ok(Self {
            device: folder.metadata()?.dev(),
            kind: kind_of(folder),
            network: fs::network_file_system(folder)?,
            read_only: stat.f_flag.contains(StatVfsMountFlags::RDONLY),
            free_bytes: stat.f_bavail.saturating_mul(stat.f_frsize),
            free_files: (stat.f_files > 0).then_some(stat.f_favail),
        })
    }
}

#[cfg(target_os = "linux")]
fn kind_of(folder: &Path) -> Option<&'static str> {
    // Some machines sign-extend the kernel's 32-bit magic numbers.
    match rustix::fs::statfs(folder).ok()?.f_type as u32 {
        0xef53 => Some("ext4"),
        0x5846_5342 => Some("xfs"),
        0x9123_683e => Some("btrfs"),
        0x0102_1994 => Some("tmpfs"),
        0x794c_7630 => Some("overlayfs"),
        0x2fc1_2fc1 => Some("zfs"),
        0x6573_5546 => Some("fuse"),
        0xf2f5_2010 => Some("f2fs"),
        0xca45_1a4e => Some("bcachefs"),
        0x4d44 => Some("vfat"),
        0x2011_bab0 => Some("exfat"),
        _ => None,
    }
}

/// Other systems have no magic numbers.
#[cfg(not(target_os = "linux"))]
fn kind_of(_folder: &Path) -> Option<&'static str> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_a_volume_and_a_missing_one_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let volume = Volume::of(dir.path()).unwrap();
        assert!(!volume.read_only && volume.free_bytes > 0 && volume.network.is_none(), "{volume:?}");
        assert_eq!(volume.device, dir.path().metadata().unwrap().dev());
        let missing = Volume::of(&dir.path().join("missing")).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }
}
