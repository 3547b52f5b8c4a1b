//! Engines whose stores are projects on a PostgreSQL server.

use std::sync::Arc;

use super::harness::{Harness, Place};

/// Names the PostgreSQL server of the tests, as `host=… port=… user=… dbname=…`.
pub const SERVER: &str = "LOCKKEEPER_TEST_POSTGRES";

/// What the tests of these engines need.
pub const NEEDED: &str = "a PostgreSQL server in LOCKKEEPER_TEST_POSTGRES (scripts/with-postgres COMMAND)";

/// An engine whose stores are projects on a PostgreSQL server.
pub struct OnServer<S: ?Sized> {
    pub name: &'static str,
    /// Opens the store of a project on a server.
    pub open: fn(&str, &str) -> Arc<S>,
}

impl<S: ?Sized + 'static> Harness<S> for OnServer<S> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn lacks(&self) -> Option<&'static str> {
        std::env::var_os(SERVER).is_none().then_some(NEEDED)
    }

    fn place(&self) -> Box<dyn Place<S>> {
        let project = format!("conformance-{:x}", lockkeeper_platform::random::number().unwrap());
        Box::new(Project { project, open: self.open })
    }

    fn open(&self, address: &str) -> Arc<S> {
        (self.open)(&std::env::var(SERVER).unwrap(), address)
    }
}

struct Project<S: ?Sized> {
    project: String,
    open: fn(&str, &str) -> Arc<S>,
}

impl<S: ?Sized> Place<S> for Project<S> {
    fn open(&self) -> Arc<S> {
        (self.open)(&std::env::var(SERVER).unwrap(), &self.project)
    }

    fn address(&self) -> Option<String> {
        Some(self.project.clone())
    }
}
