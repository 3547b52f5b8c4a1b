//! A state folder with requests in it.

use lockkeeper_core::request::Request;
use lockkeeper_engine::runs::{Runs, Submitted};

/// A request that does nothing, to be changed by tests.
pub(crate) fn request(id: &str) -> Request {
    let command = vec!["true".to_owned()];
    Request { title: format!("do {id}"), ..Request::new(id.parse().unwrap(), command, "/".to_owned()) }
}

/// A folder of its own.
pub(crate) struct World {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) runs: Runs,
}

impl World {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let runs = Runs::open(folder.path()).unwrap();
        Self { folder, runs }
    }

    pub(crate) fn submit(&self, id: &str) -> Submitted {
        self.runs.submit(&request(id), None).unwrap()
    }
}
