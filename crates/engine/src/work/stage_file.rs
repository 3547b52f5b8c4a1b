//! The run state file, `stage.json`: who executes a run and what is held for it, for people and other programs. It has nothing
//! to do with STAGES.yml.

use std::collections::BTreeSet;
use std::io;

use lockkeeper_core::id::RunId;
use lockkeeper_core::record::Lease;
use lockkeeper_core::run::Run;
use serde_json::{Value, json};

use crate::runs::{RunFolder, Runs};
use lockkeeper_platform::wall_clock::WallTime;
use lockkeeper_store::StoreError;
use lockkeeper_store::runs::Worker as WorkerRecord;

/// A worker that is killed leaves the files of its last few runs behind. They are looked for among the runs of this many events.
const LATEST: u64 = 500;

/// Writes the file, whole or not at all.
pub(super) fn write(
    folder: &RunFolder,
    run: &Run,
    lease: Option<&Lease>,
    worker: &WorkerRecord,
) -> io::Result<()> {
    let text = format!("{:#}\n", document(run, lease, worker));
    folder.make()?;
    folder.put(&folder.stage(), text.as_bytes())
}

/// Writes the end of a run that no worker executes any more into its file, if it has one. All else stays.
pub(crate) fn write_end(folder: &RunFolder, run: &Run) -> io::Result<()> {
    let text = match folder.read_stage() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        read => read?,
    };
    let mut document: Value = serde_json::from_str(&text)?;
    document["status"] = run.status().as_str().into();
    document["completed_at"] =
        run.completed_at().map(|at| WallTime::from_micros(at.unix_micros).to_string()).into();
    folder.put(&folder.stage(), format!("{document:#}\n").as_bytes())
}

/// Writes the end of a run into its file, if the file has another state: its worker was killed after the end was committed. Returns
/// whether it wrote.
pub(crate) fn mend(folder: &RunFolder, run: &Run) -> io::Result<bool> {
    let text = match folder.read_stage() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        read => read?,
    };
    let document: Value = serde_json::from_str(&text)?;
    if !run.status().is_terminal() || document["status"] == run.status().as_str() {
        return Ok(false);
    }
    write_end(folder, run).map(|()| true)
}

/// Mends the files of the runs with the latest events, after a worker was found dead. The files are for people: failures are
/// ignored.
pub(super) fn mend_latest(runs: &Runs) -> Result<(), StoreError> {
    let records = runs.store().snapshot()?;
    let from = records.last_position()?.saturating_sub(LATEST);
    let events = records.events_after(from, usize::MAX)?;
    let ids: BTreeSet<RunId> = events.into_iter().map(|event| event.id.run).collect();
    for id in ids {
        if let Some(run) = records.run(&id)? {
            let _ = mend(&runs.folder_of(&id), &run);
        }
    }
    Ok(())
}

fn document(run: &Run, lease: Option<&Lease>, worker: &WorkerRecord) -> Value {
    let time = |micros: i64| WallTime::from_micros(micros).to_string();
    let resources = lease.map(|lease| {
        lease.claim.resources.iter().map(|resource| resource.target.to_string()).collect::<Vec<_>>()
    });
    json!({
        "version": "1.0",
        "request_id": run.request.as_str(),
        "run_id": run.id.as_str(),
        "status": run.status().as_str(),
        "attempt": run.attempt(),
        "claim": run.claim(),
        "started_at": run.started_at().map(|at| time(at.unix_micros)),
        "completed_at": run.completed_at().map(|at| time(at.unix_micros)),
        "lock": {
            "lock_type": "request",
            "holder": {
                "worker": worker.id.as_str(),
                "pid": worker.process.pid,
                "host": worker.origin.host,
            },
            "lease": lease.map(|lease| lease.id.to_string()),
            "token": lease.map(|lease| lease.token.0),
            "resources": resources,
        },
    })
}
