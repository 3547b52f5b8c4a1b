//! A project of its own for each test, and lock records for it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use lockkeeper_core::time::Ttl;
use lockkeeper_formats::aiflow::{Aiflow, AiflowLock, Attempt, DEFAULT_TTL, Subject, Terms};
use lockkeeper_platform::wall_clock::WallTime;
use lockkeeper_testing::files::{self, ago};
use lockkeeper_testing::{World, world};
use serde_json::{Value, json};

pub(crate) const HOUR: Duration = Duration::from_secs(3600);

/// A world whose working folder is a project.
pub(crate) struct Project {
    pub(crate) world: World,
}

impl Project {
    pub(crate) fn new() -> Self {
        Self { world: world!() }
    }

    pub(crate) fn aiflow(&self) -> Aiflow {
        Aiflow::new(self.root())
    }

    pub(crate) fn root(&self) -> &Path {
        self.world.cwd()
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.root().join(".aiflow/locks").join(name)
    }

    pub(crate) fn write(&self, name: &str, content: &str) {
        files::write(&self.file(name), content);
    }

    pub(crate) fn read(&self, name: &str) -> Value {
        serde_json::from_slice(&std::fs::read(self.file(name)).unwrap()).unwrap()
    }

    pub(crate) fn lock(&self, subject: &Subject, now: WallTime) -> Attempt {
        self.aiflow().lock(subject, terms(), now).unwrap()
    }
}

pub(crate) fn terms() -> Terms<'static> {
    Terms { run_id: Some("RUN-1"), pid: std::process::id(), ttl: Ttl::new(DEFAULT_TTL).unwrap() }
}

pub(crate) fn request(id: &str) -> Subject {
    Subject::Request(id.to_owned())
}

pub(crate) fn locked(attempt: Attempt) -> AiflowLock {
    match attempt {
        Attempt::Locked { lock, .. } => lock,
        Attempt::Busy(standing) => panic!("{standing:?}"),
    }
}

/// A record of request RQ-1 that expired an hour ago.
pub(crate) fn expired(pid: &Value, host: &str) -> Value {
    json!({
        "version": "1.0", "lock_type": "request", "request_id": "RQ-1", "run_id": "RUN-0", "pid": pid, "host": host,
        "created_at": ago(2 * HOUR).local(), "expires_at": ago(HOUR).local(),
    })
}
