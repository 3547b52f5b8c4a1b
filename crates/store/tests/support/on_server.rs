//! Engines whose stores are projects on a server.

use std::sync::Arc;

use lockkeeper_testing::{PostgresProxy, ServerProxy};

use super::harness::{Harness, Place};

/// Names the PostgreSQL server of the tests, as `host=… port=… user=… dbname=…`.
pub const SERVER: &str = "LOCKKEEPER_TEST_POSTGRES";

/// What the tests of these engines need.
pub const NEEDED: &str = "a PostgreSQL server in LOCKKEEPER_TEST_POSTGRES (scripts/with-postgres COMMAND)";

/// A kind of server.
pub struct Kind {
    /// The environment variable that names the server of the tests.
    pub variable: &'static str,
    /// What the tests need, if there is no such variable.
    pub needed: &'static str,
    /// Starts a proxy in front of it.
    pub proxy: fn(&str) -> Box<dyn ServerProxy>,
}

pub const POSTGRES_SERVER: Kind =
    Kind { variable: SERVER, needed: NEEDED, proxy: |server| Box::new(PostgresProxy::start(server)) };

impl Kind {
    /// The server of the tests.
    pub fn address(&self) -> String {
        std::env::var(self.variable).unwrap()
    }
}

/// An engine whose stores are projects on a server.
pub struct OnServer<S: ?Sized> {
    pub name: &'static str,
    pub kind: Kind,
    /// Opens the store of a project on a server.
    pub open: fn(&str, &str) -> Arc<S>,
}

impl<S: ?Sized + 'static> Harness<S> for OnServer<S> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn lacks(&self) -> Option<&'static str> {
        std::env::var_os(self.kind.variable).is_none().then_some(self.kind.needed)
    }

    fn place(&self) -> Box<dyn Place<S>> {
        let project = format!("conformance-{:x}", lockkeeper_platform::random::number().unwrap());
        Box::new(Project { server: self.kind.address(), project, open: self.open })
    }

    fn open(&self, address: &str) -> Arc<S> {
        (self.open)(&self.kind.address(), address)
    }
}

struct Project<S: ?Sized> {
    server: String,
    project: String,
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
