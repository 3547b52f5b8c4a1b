//! Long paths for SQLite: a short path to a database whose own path is longer than SQLite accepts.
//!
//! SQLite refuses paths of more than about 500 bytes. It resolves links before it counts, so a short link does not help. On
//! Linux this module opens the folder of the database and gives SQLite the path `/proc/self/fd/N/FILE`. A VFS of our own
//! (SQLite's layer for files) takes this path as it is; for everything else it is SQLite's own.

use std::ffi::CStr;
use std::io;
use std::path::{Path, PathBuf};

/// SQLite accepts 512 bytes, with the endings that it adds for its other files.
const LONG: usize = 400;

/// A path for SQLite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqlitePath {
    /// The path to open.
    pub path: PathBuf,
    /// The VFS to open it with, if not the default one.
    pub vfs: Option<&'static CStr>,
}

/// Returns the path under which SQLite can open a database. The folder of the database exists.
pub fn for_sqlite(path: &Path) -> io::Result<SqlitePath> {
    let own = || SqlitePath { path: path.to_owned(), vfs: None };
    match (path.parent(), path.file_name()) {
        (Some(folder), Some(file)) if path.as_os_str().len() > LONG => {
            let alias = alias::of_folder(folder)?;
            Ok(alias.map_or_else(own, |(alias, vfs)| SqlitePath { path: alias.join(file), vfs: Some(vfs) }))
        }
        _ => Ok(own()),
    }
}

#[cfg(target_os = "linux")]
mod alias {
    use std::collections::BTreeMap;
    use std::ffi::{CStr, c_char, c_int};
    use std::io;
    use std::os::fd::{AsRawFd, OwnedFd};
    use std::path::{Path, PathBuf};
    use std::ptr;
    use std::sync::{Mutex, OnceLock, PoisonError};

    use rusqlite::ffi;
    use rustix::fs::{Mode, OFlags};

    /// The name of the VFS.
    const NAME: &CStr = c"lockkeeper-path";

    /// The folders that have a short path, by device and inode. They stay open until the process ends, because a connection
    /// opens further files by this path.
    static FOLDERS: Mutex<BTreeMap<(u64, u64), OwnedFd>> = Mutex::new(BTreeMap::new());

    /// Returns a short path to a folder, and the VFS that takes it.
    pub(super) fn of_folder(folder: &Path) -> io::Result<Option<(PathBuf, &'static CStr)>> {
        register()?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::open(folder, flags, Mode::empty())?;
        let facts = rustix::fs::fstat(&opened)?;
        let mut folders = FOLDERS.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = folders.entry((facts.st_dev, facts.st_ino)).or_insert(opened);
        Ok(Some((PathBuf::from(format!("/proc/self/fd/{}", kept.as_raw_fd())), NAME)))
    }

    /// Registers the VFS: a copy of SQLite's default one that does not resolve links.
    #[expect(unsafe_code, reason = "rusqlite has no interface for a VFS")]
    fn register() -> io::Result<()> {
        static OUTCOME: OnceLock<c_int> = OnceLock::new();
        let code = *OUTCOME.get_or_init(|| {
            // SAFETY: SQLite initialises itself in this call. Its default VFS is never freed.
            let Some(default) = (unsafe { ffi::sqlite3_vfs_find(ptr::null()).as_ref() }) else {
                return ffi::SQLITE_ERROR;
            };
            let own = ffi::sqlite3_vfs {
                zName: NAME.as_ptr(),
                pNext: ptr::null_mut(),
                xFullPathname: Some(as_it_is),
                ..*default
            };
            // SAFETY: the structure lives until the process ends. SQLite keeps it in its list.
            unsafe { ffi::sqlite3_vfs_register(Box::leak(Box::new(own)), 0) }
        });
        if code == ffi::SQLITE_OK {
            Ok(())
        } else {
            Err(io::Error::other(format!("SQLite does not accept a VFS (error {code})")))
        }
    }

    /// `xFullPathname`: returns an absolute path as it is.
    #[expect(unsafe_code, reason = "SQLite calls it with pointers")]
    unsafe extern "C" fn as_it_is(
        _vfs: *mut ffi::sqlite3_vfs,
        name: *const c_char,
        room: c_int,
        out: *mut c_char,
    ) -> c_int {
        // SAFETY: SQLite gives a text that ends with a zero.
        let name = unsafe { CStr::from_ptr(name) }.to_bytes_with_nul();
        if usize::try_from(room).is_ok_and(|room| name.len() <= room) {
            // SAFETY: `out` has `room` bytes, and it is not a part of `name`.
            unsafe { ptr::copy_nonoverlapping(name.as_ptr().cast(), out, name.len()) };
            ffi::SQLITE_OK
        } else {
            ffi::SQLITE_CANTOPEN
        }
    }
}

/// Elsewhere a descriptor of a folder is no path. SQLite reports long paths as errors there.
#[cfg(not(target_os = "linux"))]
mod alias {
    use std::ffi::CStr;
    use std::io;
    use std::path::{Path, PathBuf};

    pub(super) fn of_folder(_folder: &Path) -> io::Result<Option<(PathBuf, &'static CStr)>> {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_path_stays_as_it_is() {
        let path = Path::new("/a/leases.db");
        assert_eq!(for_sqlite(path).unwrap(), SqlitePath { path: path.to_owned(), vfs: None });
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn sqlite_opens_a_database_with_a_log_by_a_long_path() {
        use rusqlite::{Connection, OpenFlags};

        let temp = tempfile::tempdir().unwrap();
        let folder = (0..6).fold(temp.path().to_owned(), |path, _| path.join("f".repeat(200)));
        std::fs::create_dir_all(&folder).unwrap();
        let open = || {
            let short = for_sqlite(&folder.join("x.db")).unwrap();
            Connection::open_with_flags_and_vfs(short.path, OpenFlags::default(), short.vfs.unwrap()).unwrap()
        };
        let (writer, reader) = (open(), open());
        writer.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(())).unwrap();
        writer.execute_batch("CREATE TABLE t (n); INSERT INTO t VALUES (42)").unwrap();
        let found: i64 = reader.query_row("SELECT n FROM t", [], |row| row.get(0)).unwrap();
        assert_eq!(found, 42);
        assert!(folder.join("x.db-wal").is_file() && folder.join("x.db-shm").is_file());
    }
}
