//! A state folder with requests in it.

use lockkeeper::core::record::Priority;
use lockkeeper::core::request::Request;
use lockkeeper::core::retry::RetryPolicy;
use lockkeeper::engine::runs::{Runs, Submitted};

/// A request that does nothing, to be changed by tests.
pub(crate) fn request(id: &str) -> Request {
    Request {
        id: id.parse().unwrap(),
        title: format!("do {id}"),
        command: vec!["true".to_owned()],
        dir: "/".to_owned(),
        env: Vec::new(),
        locks: Vec::new(),
        paths: Vec::new(),
        shared: false,
        priority: Priority::new(0).unwrap(),
        after: Vec::new(),
        queue_timeout: None,
        timeout: None,
        retry: RetryPolicy::default(),
        success: vec![0],
        key: None,
        origin: None,
    }
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
