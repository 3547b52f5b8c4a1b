//! Runtime folder: a private folder of this user on this machine, for what must not outlive the machine's boot.

use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

/// The folder, which is created if it is missing: `$LOCKKEEPER_RUNTIME_DIR`, else `lockkeeper/` in `$XDG_RUNTIME_DIR`, else
/// `lockkeeper-UID/` in the folder for temporary files.
pub fn runtime_folder() -> io::Result<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let xdg = variable("XDG_RUNTIME_DIR").filter(|folder| folder.is_dir());
    let folder = variable("LOCKKEEPER_RUNTIME_DIR")
        .or_else(|| xdg.map(|folder| folder.join("lockkeeper")))
        .unwrap_or_else(|| std::env::temp_dir().join(format!("lockkeeper-{}", geteuid().as_raw())));
    make_private(&folder)?;
    Ok(folder)
}

/// Creates a folder that nobody else can enter. Refuses a folder that somebody else has made, or others may enter.
fn make_private(folder: &Path) -> io::Result<()> {
    match std::fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let found = folder.symlink_metadata()?;
    let is_ours = found.is_dir() && found.uid() == geteuid().as_raw();
    if is_ours && found.permissions().mode() & 0o077 == 0 {
        return Ok(());
    }
    let problem = format!("{} is not a private folder of this user", folder.display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_private_folder_of_this_user_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("run");
        make_private(&folder).unwrap();
        make_private(&folder).unwrap();
        assert_eq!(folder.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o750)).unwrap();
        assert!(make_private(&folder).is_err());
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(dir.path(), &link).unwrap();
        assert!(make_private(&link).is_err());
    }
}
