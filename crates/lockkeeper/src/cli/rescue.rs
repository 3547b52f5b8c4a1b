//! The rescue watch of commands that wait for a run: it looks after the run if its worker is gone.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lockkeeper_core::id::RequestId;
use lockkeeper_core::run::Run;
use lockkeeper_engine::open::open_leases;
use lockkeeper_engine::report::Report;
use lockkeeper_engine::runs::Runs;
use lockkeeper_engine::work::{RescueWatch, Settings, Worker};

use super::context::Context;
use super::obtain::grace;
use super::session_guardian::Spawner;
use super::{print, task};

/// Begins to look after a run and those of the requests that it waits for.
pub(super) fn watch(context: &Context, runs: &Runs, run: &Run) -> Result<RescueWatch, Report> {
    let location = context.location.clone();
    let settings = Settings { grace: grace(context), swarm: Some(task::swarm()?), ..Settings::default() };
    let wanted = needed_by(runs, &run.request)?;
    let start = {
        let location = location.clone();
        let (guardian, is_guarded) = (Spawner::of(context), AtomicBool::new(false));
        move || {
            if let Some(guardian) = guardian.as_ref().filter(|_| !is_guarded.swap(true, Ordering::SeqCst)) {
                guardian.start(None)?.stay();
            }
            Worker::begin(
                Runs::at(&location)?,
                open_leases(&location)?,
                settings.clone(),
                0,
                None,
                Box::new(|_| {}),
            )
        }
    };
    Ok(RescueWatch::begin(
        Runs::at(&location)?,
        open_leases(&location)?,
        Arc::new(move |run: &Run| wanted.contains(&run.request)),
        Box::new(start),
        Box::new(|error| print::talk(&format!("warning: cannot look after runs: {error}"))),
    )?)
}

/// A request and all requests that have to be done before it.
fn needed_by(runs: &Runs, request: &RequestId) -> Result<HashSet<RequestId>, Report> {
    let (mut all, mut open) = (HashSet::new(), vec![request.clone()]);
    while let Some(id) = open.pop() {
        if all.insert(id.clone()) {
            // A dependency may have been removed.
            open.extend(runs.request(&id).map(|entry| entry.request.request.after).unwrap_or_default());
        }
    }
    Ok(all)
}
