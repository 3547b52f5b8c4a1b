//! Backends whose stores are projects on a server.

use std::sync::Arc;

use super::harness::{Harness, Place};

/// Names the PostgreSQL server of the tests, as `host=… port=… user=… dbname=…`.
pub const SERVER: &str = "LOCKKEEPER_TEST_POSTGRES";

/// What the tests on PostgreSQL need.
pub const NEEDED: &str = "a PostgreSQL server in LOCKKEEPER_TEST_POSTGRES (scripts/with-postgres COMMAND)";

/// A backend whose stores are projects on a server.
pub struct OnServer<S: ?Sized> {
    pub name: &'static str,
    /// The environment variable that names the server, and the message if it is not set; empty if the test
    /// itself starts the server.
    pub server: (&'static str, &'static str),
    /// Opens the store of a project on a server.
    pub open: fn(&str, &str) -> Arc<S>,
}

impl<S: ?Sized + 'static> Harness<S> for OnServer<S> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn lacks(&self) -> Option<&'static str> {
        let is_missing = !self.server.1.is_empty() && std::env::var_os(self.server.0).is_none();
        is_missing.then_some(self.server.1)
    }

    fn place(&self) -> Box<dyn Place<S>> {
        let project = format!("conformance-{:x}", lockkeeper_platform::random::number().unwrap());
        Box::new(Project { project, server: self.address(), open: self.open })
    }

    fn open(&self, address: &str) -> Arc<S> {
        (self.open)(&self.address(), address)
    }
}

impl<S: ?Sized> OnServer<S> {
    /// The address of the server.
    pub fn address(&self) -> String {
        std::env::var(self.server.0).unwrap_or_else(|_| super::serving::address())
    }
}

struct Project<S: ?Sized> {
    project: String,
    server: String,
    open: fn(&str, &str) -> Arc<S>,
}

impl<S: ?Sized> Place<S> for Project<S> {
    fn open(&self) -> Arc<S> {
        (self.open)(&self.server, &self.project)
    }

    fn address(&self) -> Option<String> {
        Some(self.project.clone())
    }
}
