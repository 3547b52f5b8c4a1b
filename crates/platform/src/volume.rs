//! The file system that a folder lies on: its kind, what it has left, and whether it can be written.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{StatVfsMountFlags, statvfs};

use super::fs;

/// A file system as it is at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// Tells file systems apart.
    pub device: u64,
    /// Its name, such as `ext4`, where it is known.
    pub kind: Option<&'static str>,
    /// Its name when its locks cannot be relied on because it is a network's.
    pub network: Option<&'static str>,
    /// Whether nobody can write to it.
    pub read_only: bool,
    /// Bytes that this user may still write.
    pub free_bytes: u64,
    /// Files that this user may still make; none where the file system does not count them.
    pub free_files: Option<u64>,
}

impl Volume {
    /// Looks at the file system of a folder that is there.
    pub fn of(folder: &Path) -> io::Result<Self> {
        let facts = statvfs(folder)?;
        Ok(Self {
            device: folder.metadata()?.dev(),
            kind: kind_of(folder),
            network: fs::refuse_network(folder)?,
            read_only: facts.f_flag.contains(StatVfsMountFlags::RDONLY),
            free_bytes: facts.f_bavail.saturating_mul(facts.f_frsize),
            free_files: (facts.f_files > 0).then_some(facts.f_favail),
        })
    }
}

#[cfg(target_os = "linux")]
fn kind_of(folder: &Path) -> Option<&'static str> {
    // The kernel's 32-bit magic numbers, sign-extended on some machines.
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

/// Other systems have no numbers for it.
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
