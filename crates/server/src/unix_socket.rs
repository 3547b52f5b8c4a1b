//! Unix socket of a server: the same API as the port, for programs of the same user, without a token.
//!
//! The socket is `server.sock` in the state folder. The path of a socket has to be short (108 bytes on Linux). Where that one is
//! too long, the socket is in the runtime folder of the user, and `server.sock` is a symbolic link to it. The server that
//! started last has the name; a socket that a killed server left is replaced.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};

use lockkeeper_platform::random;
use rustix::process::geteuid;

use crate::ServeError;

/// The name in the state folder.
const NAME: &str = "server.sock";

/// A listening Unix socket.
#[derive(Debug)]
pub struct UnixSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl UnixSocket {
    /// Makes the socket of a state folder. `runtime` is the runtime folder of the user (`XDG_RUNTIME_DIR`), if there is one.
    pub fn bind(state: &Path, runtime: Option<&Path>) -> Result<Self, ServeError> {
        let named = state.join(NAME);
        if SocketAddr::from_pathname(&named).is_ok() {
            let listener = bind_at(&named).map_err(|source| failed(&named, source))?;
            return Ok(Self { listener, path: named });
        }
        let folder = match runtime.map(|runtime| runtime.join("lockkeeper")) {
            Some(folder) => folder,
            None => PathBuf::from(format!("/tmp/lockkeeper-{}", geteuid().as_raw())),
        };
        make_private(&folder).map_err(|source| failed(&folder, source))?;
        let path = folder.join(format!("{:016x}.sock", fingerprint(state)));
        let listener = bind_at(&path).map_err(|source| failed(&path, source))?;
        replace(&named, |aside| symlink(&path, aside)).map_err(|source| failed(&named, source))?;
        Ok(Self { listener, path })
    }

    /// Where programs connect.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn into_listener(self) -> io::Result<tokio::net::UnixListener> {
        self.listener.set_nonblocking(true)?;
        tokio::net::UnixListener::from_std(self.listener)
    }
}

/// Makes a socket for its owner only, and gives it its name when it is ready.
fn bind_at(path: &Path) -> io::Result<UnixListener> {
    replace(path, |aside| {
        let listener = UnixListener::bind(aside)?;
        fs::set_permissions(aside, Permissions::from_mode(0o600))?;
        Ok(listener)
    })
}

/// Makes something under a temporary name, and then replaces what has the name.
fn replace<T>(path: &Path, make: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    // Shorter than the name itself, so that the path of a socket still fits.
    let aside = path.with_file_name(format!(".s{:08x}", random::number()? >> 32));
    let made = make(&aside).and_then(|made| fs::rename(&aside, path).map(|()| made));
    if made.is_err() {
        let _ = fs::remove_file(&aside);
    }
    made
}

/// Makes a folder for its owner only. One that belongs to somebody else, or that others can enter, is refused.
fn make_private(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let facts = fs::symlink_metadata(folder)?;
    if facts.is_dir() && facts.uid() == geteuid().as_raw() && facts.mode() & 0o077 == 0 {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::PermissionDenied, "it is not a folder of this user alone"))
}

/// FNV-1a of a path: the same in every version, so that the next server of this state folder finds the name again.
fn fingerprint(path: &Path) -> u64 {
    path.as_os_str().as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

fn failed(path: &Path, source: io::Error) -> ServeError {
    ServeError::UnixSocket { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_others_can_enter_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let open = folder.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, Permissions::from_mode(0o755)).unwrap();
        assert!(make_private(&open).is_err());
        let link = folder.path().join("link");
        let private = folder.path().join("private");
        make_private(&private).unwrap();
        make_private(&private).unwrap();
        symlink(&private, &link).unwrap();
        assert!(make_private(&link).is_err());
    }

    #[test]
    fn the_last_one_has_the_name_and_nothing_else_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let first = UnixSocket::bind(folder.path(), None).unwrap();
        let second = UnixSocket::bind(folder.path(), None).unwrap();
        assert_eq!(first.path(), second.path());
        drop(first);
        std::os::unix::net::UnixStream::connect(second.path()).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
