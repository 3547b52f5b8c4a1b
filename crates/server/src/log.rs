//! Log of the server on stderr: lines for people, or JSON for programs.

use std::io;

use lockkeeper_engine::work::WorkerEvent;
use tracing_subscriber::filter::LevelFilter;

/// Format of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Lines for people.
    Text,
    /// One JSON object per line.
    Json,
}

/// How much is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verbosity {
    /// Failures.
    Error,
    /// Also suspicious events.
    Warn,
    /// Also changes.
    Info,
    /// Also every request.
    Debug,
}

/// Starts the log of this process. Later calls change nothing.
pub fn start(format: Format, verbosity: Verbosity) {
    let level = match verbosity {
        Verbosity::Error => LevelFilter::ERROR,
        Verbosity::Warn => LevelFilter::WARN,
        Verbosity::Info => LevelFilter::INFO,
        Verbosity::Debug => LevelFilter::DEBUG,
    };
    let builder = tracing_subscriber::fmt()
        .with_writer(io::stderr)
        .with_max_level(level)
        .with_target(false)
        .with_ansi(false);
    // It fails when the process has a logger already; that one stays.
    let _ = match format {
        Format::Text => builder.try_init(),
        Format::Json => builder.json().flatten_event(true).try_init(),
    };
}

/// Logs an event of a worker.
pub fn worker_event(event: &WorkerEvent) {
    match event {
        WorkerEvent::Started(run) => tracing::info!(run = %run.id, request = %run.request, "started"),
        WorkerEvent::Waiting(run, why) => tracing::info!(run = %run.id, why, "waits"),
        WorkerEvent::Retrying(run) => tracing::info!(run = %run.id, "failed, will be retried"),
        WorkerEvent::Ended(run) => tracing::info!(run = %run.id, status = %run.status(), "ended"),
        WorkerEvent::Adopted(run) => {
            tracing::info!(run = %run.id, "its worker is gone, adopted by this worker");
        }
        WorkerEvent::Superseded(run) => tracing::warn!(run = %run.id, "another worker has it now"),
        WorkerEvent::Draining => tracing::info!("no more runs are begun"),
        WorkerEvent::Stopping => tracing::info!("running commands are stopped"),
        WorkerEvent::Warning(what) => tracing::warn!(what, "trouble"),
    }
}
