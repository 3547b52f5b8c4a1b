//! Program lookup: searches `PATH` for a program, and caches the last result.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lockkeeper_core::time::Moment;
use rustix::fs::Access;
use rustix::io::Errno;

use super::spec::Spec;
use crate::clock;

/// How long a result is valid. A program that somebody adds to an earlier folder of `PATH` is found after that.
const VALID_FOR: Duration = Duration::from_millis(100);

/// Remembers where the last program was found, for many starts of the same program.
#[derive(Debug, Default)]
pub struct ProgramCache {
    last: Option<Entry>,
}

#[derive(Debug)]
struct Entry {
    program: OsString,
    path: Option<OsString>,
    dir: Option<PathBuf>,
    file: PathBuf,
    at: Moment,
}

impl ProgramCache {
    /// Returns where the program was found a moment ago.
    pub(super) fn get(&self, spec: &Spec) -> Option<&Path> {
        let last = self.last.as_ref()?;
        let same = last.program == spec.program && last.path.as_deref() == path(spec) && last.dir == spec.dir;
        (same && clock::now().since(last.at) < VALID_FOR).then_some(&last.file)
    }

    /// Remembers where a program was found, if it was searched in `PATH`.
    pub(super) fn set(&mut self, spec: &Spec, file: Option<&Path>) {
        self.last = file.filter(|_| is_searched(spec)).map(|file| Entry {
            program: spec.program.clone(),
            path: path(spec).map(ToOwned::to_owned),
            dir: spec.dir.clone(),
            file: file.to_owned(),
            at: clock::now(),
        });
    }
}

fn path(spec: &Spec) -> Option<&OsStr> {
    spec.env.iter().rfind(|(name, _)| name == "PATH").map(|(_, value)| value.as_os_str())
}

fn is_searched(spec: &Spec) -> bool {
    spec.only_env && !spec.program.as_bytes().contains(&b'/')
}

/// Returns the file of the program. Searches the `PATH` of the command's own environment, so that the child does not try
/// one folder after the other at every start. A command with the environment of this process is left to std.
pub(super) fn find_program(spec: &Spec) -> io::Result<Cow<'_, Path>> {
    if !is_searched(spec) {
        return Ok(Path::new(&spec.program).into());
    }
    let folders = std::env::split_paths(path(spec).unwrap_or(OsStr::new("/bin:/usr/bin")));
    let mut refused = Errno::NOENT;
    for folder in folders {
        let file = match &spec.dir {
            Some(dir) => dir.join(folder).join(&spec.program),
            None => folder.join(&spec.program),
        };
        if !file.is_absolute() || !file.is_file() {
            continue;
        }
        if rustix::fs::access(&file, Access::EXEC_OK).is_ok() {
            return Ok(file.into());
        }
        refused = Errno::ACCESS;
    }
    Err(refused.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_in_the_path_of_its_own_environment() {
        let folder = tempfile::tempdir().unwrap();
        let spec = |program: &str, path: Option<&str>| Spec {
            program: program.into(),
            env: path.map(|path| ("PATH".into(), path.into())).into_iter().collect(),
            only_env: true,
            dir: Some(folder.path().to_owned()),
            ..Spec::default()
        };
        std::fs::write(folder.path().join("plain"), "").unwrap();
        let found = |program, path| {
            find_program(&spec(program, path)).map(Cow::into_owned).map_err(|error| error.kind())
        };
        assert_eq!(found("sh", None), Ok("/bin/sh".into()));
        assert_eq!(found("sh", Some("/nowhere:/bin")), Ok("/bin/sh".into()));
        assert_eq!(found("sh", Some("/nowhere")), Err(io::ErrorKind::NotFound));
        assert_eq!(found("plain", Some("/nowhere:.")), Err(io::ErrorKind::PermissionDenied));
        assert_eq!(found("/bin/sh", Some("/nowhere")), Ok("/bin/sh".into()));
    }

    #[test]
    fn a_cached_program_is_used_for_the_same_path_and_folder_only() {
        let spec = |path: &str, dir: &str| Spec {
            program: "sh".into(),
            env: vec![("PATH".into(), path.into())],
            only_env: true,
            dir: Some(dir.into()),
            ..Spec::default()
        };
        let mut cache = ProgramCache::default();
        cache.set(&spec("/bin", "/"), Some(Path::new("/bin/sh")));
        assert_eq!(cache.get(&spec("/bin", "/")), Some(Path::new("/bin/sh")));
        assert_eq!(cache.get(&spec("/usr/bin:/bin", "/")), None);
        assert_eq!(cache.get(&spec("/bin", "/tmp")), None);
        cache.set(&Spec { program: "/bin/sh".into(), ..spec("/bin", "/") }, Some(Path::new("/bin/sh")));
        assert_eq!(cache.get(&spec("/bin", "/")), None);
    }
}
