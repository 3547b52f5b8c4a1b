//! The leases that a process runs under. `exec` and workers pass them to their commands: `LOCKKEEPER_UNDER=FOLDER:L1,L2`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use lockkeeper_core::id::LeaseId;

/// The variable that names them.
pub const VARIABLE: &str = "LOCKKEEPER_UNDER";

/// Reads the variable: the leases of the store in `state`. Those of other stores are left out.
pub fn read(value: &OsStr, state: &Path) -> Vec<LeaseId> {
    let Some(colon) = value.as_bytes().iter().rposition(|byte| *byte == b':') else { return Vec::new() };
    let (folder, ids) = value.as_bytes().split_at(colon);
    if !is_same_folder(Path::new(OsStr::from_bytes(folder)), state) {
        return Vec::new();
    }
    let ids = String::from_utf8_lossy(&ids[1..]);
    ids.split(',').filter_map(|id| id.parse().ok()).collect()
}

/// The value of the variable for a command that runs under these leases.
pub fn value(state: &Path, leases: &[LeaseId]) -> OsString {
    let ids: Vec<String> = leases.iter().map(ToString::to_string).collect();
    let mut value = state.as_os_str().to_owned();
    value.push(format!(":{}", ids.join(",")));
    value
}

/// Whether two paths lead to one folder, also through a link or a bind mount.
fn is_same_folder(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| path.metadata().map(|meta| (meta.dev(), meta.ino()));
    one == other || matches!((identity(one), identity(other)), (Ok(one), Ok(other)) if one == other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_are_read_for_their_own_store_only() {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let leases = [LeaseId(7), LeaseId(12)];
        let value = value(here.path(), &leases);
        assert_eq!(read(&value, here.path()), leases);
        assert_eq!(read(&value, there.path()), []);
        assert_eq!(read(OsStr::new("junk"), here.path()), []);
    }
}
