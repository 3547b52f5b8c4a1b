//! How the cases of a conformance suite open stores of one backend. `S` is the trait of the store.

use std::path::Path;
use std::sync::Arc;

use tempfile::TempDir;

/// A backend of stores.
pub trait Harness<S: ?Sized>: Sync {
    /// The name of the backend.
    fn name(&self) -> &'static str;

    /// A place with no store in it. It is cleared when it is dropped.
    fn place(&self) -> Box<dyn Place<S>>;

    /// What the tests need and do not find, if anything.
    fn lacks(&self) -> Option<&'static str> {
        None
    }

    /// Opens the store at an address that another process was given.
    fn open(&self, address: &str) -> Arc<S>;
}

/// Skips a test and says so. In CI it fails instead.
pub fn skip(what: &str) {
    assert!(std::env::var_os("CI").is_none_or(|value| value != "true"), "missing: {what}");
    println!("SKIPPED: needs {what}");
}

/// Where one store is.
pub trait Place<S: ?Sized>: Send + Sync {
    /// Opens the store for one more user.
    fn open(&self) -> Arc<S>;

    /// The address by which another process opens it; none for a backend of one process.
    fn address(&self) -> Option<String>;
}

/// A backend whose stores are folders.
pub struct InFolder<S: ?Sized> {
    pub name: &'static str,
    pub open: fn(&Path) -> Arc<S>,
}

impl<S: ?Sized + 'static> Harness<S> for InFolder<S> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn place(&self) -> Box<dyn Place<S>> {
        Box::new(Folder { folder: tempfile::tempdir().unwrap(), open: self.open })
    }

    fn open(&self, address: &str) -> Arc<S> {
        (self.open)(Path::new(address))
    }
}

struct Folder<S: ?Sized> {
    folder: TempDir,
    open: fn(&Path) -> Arc<S>,
}

impl<S: ?Sized> Place<S> for Folder<S> {
    fn open(&self) -> Arc<S> {
        (self.open)(self.folder.path())
    }

    fn address(&self) -> Option<String> {
        Some(self.folder.path().to_str().unwrap().to_owned())
    }
}
