//! Portable requests: on a store that several machines share, a request contains no path of the machine that submits it.
//!
//! A folder of the project is kept relative to the root of the project, and looked up in the clone of the worker.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use lockkeeper_core::request::Request;

use super::Runs;

impl Runs {
    /// Whether several machines share the requests and runs. A folder of this machine is shared from the first call of another one.
    pub fn is_shared(&self) -> bool {
        self.shared_root().is_some()
    }

    /// The root of the project, if folders of requests are relative to it.
    fn shared_root(&self) -> Option<&PathBuf> {
        self.root.as_ref().filter(|_| self.store.session().is_some())
    }

    /// The requests as the store keeps them.
    pub(super) fn portable<'r>(&self, requests: &'r [Request]) -> Cow<'r, [Request]> {
        let Some(root) = self.shared_root() else { return Cow::Borrowed(requests) };
        Cow::Owned(requests.iter().map(|request| for_any_machine(root, request.clone())).collect())
    }

    /// The folder of a request on this machine.
    pub(crate) fn local_dir(&self, dir: &str) -> PathBuf {
        match self.shared_root() {
            Some(root) => root.join(dir),
            None => PathBuf::from(dir),
        }
    }

    /// Whether a folder names a place that other machines may not have: it is outside of the project.
    pub fn is_outside(&self, dir: &str) -> bool {
        let is_outside = |root: &PathBuf| Path::new(dir).is_absolute() && from_root(root, dir).is_none();
        self.shared_root().is_some_and(is_outside)
    }
}

/// Converts a request of one machine for a store that several machines share.
pub(crate) fn for_any_machine(root: &Path, request: Request) -> Request {
    match from_root(root, &request.dir) {
        Some(dir) => Request { dir, ..request },
        None => request,
    }
}

/// Converts a request of a shared store for a store of this machine, with this root of the project.
pub(crate) fn for_this_machine(root: &Path, request: Request) -> Request {
    let dir = if request.dir == "." { root.to_owned() } else { root.join(&request.dir) };
    match dir.into_os_string().into_string() {
        Ok(dir) => Request { dir, ..request },
        Err(_) => request,
    }
}

/// A folder of the project relative to its root, `.` for the root itself; none if it is elsewhere.
fn from_root(root: &Path, dir: &str) -> Option<String> {
    let below = Path::new(dir).strip_prefix(root).ok()?;
    if below.as_os_str().is_empty() {
        return Some(".".to_owned());
    }
    below.to_str().map(ToOwned::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_folder_of_the_project_is_relative() {
        let root = Path::new("/home/a/shop");
        assert_eq!(from_root(root, "/home/a/shop").as_deref(), Some("."));
        assert_eq!(from_root(root, "/home/a/shop/src/api").as_deref(), Some("src/api"));
        assert_eq!((from_root(root, "/home/a/shopping"), from_root(root, "/tmp")), (None, None));
    }
}
