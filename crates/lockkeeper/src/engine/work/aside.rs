//! Runs that were set aside for somebody who does not come for them.

use std::collections::HashMap;
use std::time::Duration;

use lockkeeper_core::id::{HolderId, RunId};
use lockkeeper_core::liveness::LockSight;
use lockkeeper_core::run::life::{self, Seen, Taker};
use lockkeeper_core::run::{Run, Status};
use lockkeeper_core::time::Moment;

use super::{Executor, Told};
use crate::engine::runs::{RunError, advance, terms};
use crate::platform::clock;
use crate::store::runs::Aside;

/// How long others leave it to whoever it is set aside for: many times longer than a hand keeps it.
const LEFT_TO_THEM: Duration = Duration::from_secs(1);

/// What is set aside, and since when that is known.
#[derive(Debug, Default)]
pub(super) struct Watched {
    since: HashMap<RunId, (HolderId, Moment)>,
}

impl Watched {
    /// Puts back what nobody comes for, and ends what may have begun before a power cut. Returns when to look again.
    pub(super) fn look(&mut self, executor: &Executor, asides: &[Aside]) -> Result<Option<Moment>, RunError> {
        let before = std::mem::take(&mut self.since);
        let now = clock::now();
        let mut put_back = Vec::new();
        for aside in asides {
            let id = &aside.run.id;
            let Some(holder) = aside.holder else {
                executor.lose(&aside.run)?;
                continue;
            };
            let known = before.get(id).filter(|(known, _)| *known == holder);
            let since = known.map_or(now, |(_, since)| *since);
            let gone = executor.leases.senses().life().look(holder) == LockSight::Free;
            if gone || now.since(since) >= LEFT_TO_THEM {
                put_back.push((id, holder));
            } else {
                self.since.insert(id.clone(), (holder, since));
            }
        }
        if !put_back.is_empty() {
            executor.runs.store().note(|tables| {
                put_back.iter().try_for_each(|(id, holder)| tables.put_back(id, *holder).map(|_| ()))
            })?;
        }
        Ok(self.since.values().map(|(_, since)| since.after(LEFT_TO_THEM)).min())
    }
}

impl Executor {
    /// Ends a run of which nobody knows whether it began, as one that began and was not seen again.
    fn lose(&self, run: &Run) -> Result<(), RunError> {
        let lost = self.runs.store().write(|tables| {
            let found = tables.run(&run.id)?.filter(|found| found.status == Status::Queued);
            let request = tables.request(&run.request)?;
            let Some((run, request)) = found.zip(request) else { return Ok(None) };
            let taker = Taker { worker: self.worker.id.clone(), holder: None, lease: None };
            let Ok(moved) = life::claim(&run, taker, tables.now()) else { return Ok(None) };
            let run = advance(tables, &run, moved)?;
            let terms = terms(&request.request);
            match life::finish(&run, run.claim, Seen::Vanished, terms, tables.now()) {
                Ok(moved) => Ok(Some((advance(tables, &run, moved)?, request.request))),
                Err(_) => Ok(None),
            }
        })?;
        if let Some((run, request)) = lost {
            let told = if run.waits_for_retry() { Told::Retrying(run) } else { Told::Ended(run) };
            self.tell(&told, Some(&request));
        }
        Ok(())
    }
}
