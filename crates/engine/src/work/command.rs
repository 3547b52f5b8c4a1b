//! A run's command: what it is started with, and what is written down about it.

use std::ffi::OsString;
use std::path::PathBuf;

use lockkeeper_core::record::Lease;
use lockkeeper_core::run::Run;
use serde_json::{Value, json};

use super::output::Output;
use super::{Executor, Job};
use lockkeeper_platform::exec::{Mode, Spec, StartError};
use lockkeeper_platform::wall_clock::WallTime;

/// The variable by which every process of a run is known.
pub(crate) const RUN_ID: &str = "LOCKKEEPER_RUN_ID";

/// `NAME=value` in the environment of every process of a run.
pub(super) fn mark(run: &Run) -> String {
    format!("{RUN_ID}={}", run.id)
}

impl Executor {
    pub(super) fn spec(&self, job: &Job, output: &Output) -> Spec {
        let mut words = job.request.command.iter().map(OsString::from);
        Spec {
            program: words.next().unwrap_or_default(),
            args: words.collect(),
            env: self.environment(job),
            only_env: true,
            dir: Some(PathBuf::from(&job.request.dir)),
            log: Some(output.path()),
            mode: Mode::Worker,
        }
    }

    fn environment(&self, job: &Job) -> Vec<(OsString, OsString)> {
        let own = job.request.env.iter().chain(&self.settings.variables);
        let mut all: Vec<(OsString, OsString)> =
            own.map(|(name, value)| (name.into(), value.into())).collect();
        let mut set = |name: &str, value: OsString| all.push((name.into(), value));
        set(RUN_ID, job.run.id.as_str().into());
        set("LOCKKEEPER_REQUEST_ID", job.run.request.as_str().into());
        set("LOCKKEEPER_ATTEMPT", job.run.attempt.to_string().into());
        set("LOCKKEEPER_DIR", self.runs.folder().into());
        if let Some(lease) = &job.lease {
            set("LOCKKEEPER_LEASE", lease.id.to_string().into());
            set("LOCKKEEPER_TOKEN", lease.token.to_string().into());
            let mut under = self.runs.folder().as_os_str().to_owned();
            under.push(format!(":{}", lease.id));
            set("LOCKKEEPER_UNDER", under);
        }
        all
    }

    /// Writes down who holds what for the run. It is for people: that it cannot be written is only told.
    pub(super) fn write_stage(&self, run: &Run, lease: Option<&Lease>) {
        let folder = self.runs.folder_of(&run.id);
        let text = format!("{:#}\n", self.stage(run, lease));
        if let Err(error) = folder.make().and_then(|()| folder.put(&folder.stage(), text.as_bytes())) {
            self.trouble(format!("cannot write {}: {error}", folder.stage().display()));
        }
    }

    fn stage(&self, run: &Run, lease: Option<&Lease>) -> Value {
        let time = |micros: i64| WallTime::from_micros(micros).to_string();
        let resources = lease.map(|lease| {
            lease.claim.resources.iter().map(|resource| resource.target.to_string()).collect::<Vec<_>>()
        });
        json!({
            "version": "1.0",
            "request_id": run.request.as_str(),
            "run_id": run.id.as_str(),
            "status": run.status.as_str(),
            "attempt": run.attempt,
            "claim": run.claim,
            "started_at": run.started_at.map(|at| time(at.unix_micros)),
            "completed_at": run.completed_at.map(|at| time(at.unix_micros)),
            "lock": {
                "lock_type": "request",
                "holder": {
                    "worker": self.worker.id.as_str(),
                    "pid": self.worker.process.pid,
                    "host": self.worker.origin.host,
                },
                "lease": lease.map(|lease| lease.id.to_string()),
                "token": lease.map(|lease| lease.token.0),
                "resources": resources,
            },
        })
    }
}

/// Says why a command did not start, so that the person who wrote it knows what to change.
pub(super) fn why_not_started(error: &StartError, dir: &str) -> String {
    if !std::path::Path::new(dir).is_dir() {
        return format!("the folder {dir} is not there");
    }
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}
