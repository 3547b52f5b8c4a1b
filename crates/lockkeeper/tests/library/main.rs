//! The library as a program uses it: locks, guards, runs and futures.
#![expect(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

#[cfg(feature = "tokio")]
mod futures;
mod guards;
mod locks;
mod runs;

use std::path::Path;

use lockkeeper::Keeper;
use lockkeeper_engine::Engine;
use lockkeeper_engine::open::open_engine;
use lockkeeper_testing::until_seen;
use tempfile::TempDir;

/// A state folder for one test, and an engine that looks into it.
struct Site {
    folder: TempDir,
    engine: Engine,
}

impl Site {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let engine = open_engine(folder.path()).unwrap();
        Self { folder, engine }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn keeper(&self) -> Keeper {
        Keeper::open(self.path()).unwrap()
    }

    /// How many locks are held, and how many tickets wait.
    fn counts(&self) -> (usize, usize) {
        let listing = self.engine.listing().unwrap();
        (listing.holders.len(), listing.waiters.len())
    }

    /// Waits until this many locks are held and this many tickets wait.
    fn until(&self, holders: usize, waiters: usize) {
        until_seen("holders and waiters", || self.counts(), |counts| *counts == (holders, waiters));
    }
}
