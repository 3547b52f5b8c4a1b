//! A project in a folder of its own, records of the past, and processes to stand in them.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lockkeeper_core::time::Ttl;
use lockkeeper_formats::aiflow::{Aiflow, AiflowLock, Attempt, DEFAULT_TTL, Subject, Terms};
use lockkeeper_platform::wall_clock::WallTime;
use serde_json::{Value, json};
use tempfile::TempDir;

pub(crate) const HOUR: Duration = Duration::from_secs(3600);

pub(crate) struct Project {
    pub(crate) root: TempDir,
}

impl Project {
    pub(crate) fn new() -> Self {
        Self { root: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn aiflow(&self) -> Aiflow {
        Aiflow::new(self.root.path())
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.root.path().join(".aiflow/locks").join(name)
    }

    pub(crate) fn write(&self, name: &str, content: &str) {
        fs::create_dir_all(self.file("")).unwrap();
        fs::write(self.file(name), content).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> Value {
        serde_json::from_slice(&fs::read(self.file(name)).unwrap()).unwrap()
    }

    pub(crate) fn lock(&self, subject: &Subject, now: WallTime) -> Attempt {
        self.aiflow().lock(subject, terms(), now).unwrap()
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lockkeeper"));
        command.args(args).current_dir(self.root.path());
        command
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

pub(crate) fn ago(span: Duration) -> WallTime {
    WallTime::from_micros(WallTime::now().as_micros() - i64::try_from(span.as_micros()).unwrap())
}

/// A record of request RQ-1 that ran out an hour ago.
pub(crate) fn expired(pid: &Value, host: &str) -> Value {
    json!({
        "version": "1.0", "lock_type": "request", "request_id": "RQ-1", "run_id": "RUN-0", "pid": pid, "host": host,
        "created_at": ago(2 * HOUR).local(), "expires_at": ago(HOUR).local(),
    })
}

/// A process that runs until it is dropped, or has ended and been waited for already.
pub(crate) struct Other(pub(crate) Child);

impl Other {
    pub(crate) fn running() -> Self {
        Self(Command::new("cat").stdin(Stdio::piped()).spawn().unwrap())
    }

    pub(crate) fn ended() -> u32 {
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        child.id()
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
