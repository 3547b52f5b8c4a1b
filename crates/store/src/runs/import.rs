//! Import: copies the records of one store into another one, reads all of them back and compares them. The same for all engines.

use std::collections::HashMap;

use lockkeeper_core::id::{RequestId, RunId};
use lockkeeper_core::request::Request;
use lockkeeper_core::run::{Run, Stamp};
use lockkeeper_core::time::Moment;

use super::{AutoRun, RunRecords, StoredEvent, StoredRequest};
use crate::StoreError;

/// How many records are read and written at once. A store on another machine has to answer within its timeout.
const PAGE: usize = 200;

/// What is copied into a store, and how.
pub struct Import<'i> {
    /// The records of another store.
    pub from: &'i dyn RunRecords,
    /// Converts a request of the other store for this store: folders may be written differently.
    pub translate: &'i dyn Fn(Request) -> Request,
    /// Whether the records that this store has are removed first. Otherwise it has to be empty.
    pub replaces: bool,
    /// Is called with the number of records that were copied and compared so far. Each record counts twice.
    pub progress: &'i dyn Fn(u64),
}

/// How many records were copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Requests.
    pub requests: u64,
    /// Runs.
    pub runs: u64,
    /// Events.
    pub events: u64,
}

/// A transaction that fills a store. The functions that read are those of [`RunRecords`] with the same names.
pub(super) trait Filling {
    /// When the transaction began.
    fn now(&self) -> Stamp;
    /// Whether the store keeps on which machines runs were executed.
    const KEEPS_HOSTS: bool;

    fn remove_all(&self) -> Result<(), StoreError>;
    /// Adds requests in this order, without their latest runs and dependencies.
    fn add_requests(&self, requests: &[StoredRequest]) -> Result<(), StoreError>;
    /// Adds the dependencies of requests on others that exist. All requests were added.
    fn add_dependencies(&self, requests: &[StoredRequest]) -> Result<(), StoreError>;
    /// Adds runs in this order. The last one of each request that was not rejected is its latest.
    fn add_runs(&self, runs: &[(Run, Request)], hosts: &HashMap<RunId, String>) -> Result<(), StoreError>;
    fn add_events(&self, events: &[StoredEvent]) -> Result<(), StoreError>;
    fn set_auto_run(&self, auto_run: &AutoRun) -> Result<(), StoreError>;
    /// Makes all later positions larger than this one.
    fn set_last_position(&self, position: u64) -> Result<(), StoreError>;

    fn requests_in_order(
        &self,
        after: Option<&RequestId>,
        limit: usize,
    ) -> Result<Vec<StoredRequest>, StoreError>;
    fn runs_in_order(&self, after: Option<&RunId>, limit: usize) -> Result<Vec<(Run, Request)>, StoreError>;
    fn hosts(&self, runs: &[&RunId]) -> Result<HashMap<RunId, String>, StoreError>;
    fn events_after(&self, position: u64, limit: usize) -> Result<Vec<StoredEvent>, StoreError>;
    fn auto_run(&self) -> Result<Option<AutoRun>, StoreError>;
    fn last_position(&self) -> Result<u64, StoreError>;
    fn queue_head(&self, limit: usize) -> Result<Vec<RunId>, StoreError>;
}

/// Copies everything, then reads it back and compares it. The caller commits.
pub(super) fn fill<F: Filling>(import: &Import<'_>, into: &F, address: &str) -> Result<Imported, StoreError> {
    if import.replaces {
        into.remove_all()?;
    } else if !into.requests_in_order(None, 1)?.is_empty() || into.last_position()? > 0 {
        return Err(StoreError::NotEmpty { address: address.to_owned() });
    }
    let Import { from, translate, progress, .. } = *import;
    let mut counted = Imported::default();
    let source = Source { from, translate, here: from.now().moment, there: into.now().moment };
    source.requests(|page| {
        counted.requests += page.len() as u64;
        into.add_requests(page)
    })?;
    source.requests(|page| into.add_dependencies(page))?;
    source.runs(|page| {
        counted.runs += page.len() as u64;
        progress(counted.requests + counted.runs);
        into.add_runs(page, &source.hosts(page)?)
    })?;
    source.events(|page| {
        counted.events += page.len() as u64;
        progress(counted.requests + counted.runs + counted.events);
        into.add_events(page)
    })?;
    if let Some(auto_run) = from.auto_run()? {
        into.set_auto_run(&auto_run)?;
    }
    into.set_last_position(from.last_position()?)?;
    compare(&source, into, counted, progress)?;
    Ok(counted)
}

/// The records of the other store as they are kept here, in pages.
struct Source<'i> {
    from: &'i dyn RunRecords,
    translate: &'i dyn Fn(Request) -> Request,
    /// The present moment on the clock of this store, and on that of the other one.
    here: Moment,
    there: Moment,
}

impl Source<'_> {
    fn requests(
        &self,
        mut each: impl FnMut(&[StoredRequest]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let mut last = None;
        loop {
            let page = self.from.requests_in_order(last.as_ref(), PAGE)?;
            let Some(end) = page.last() else { return Ok(()) };
            last = Some(end.request.id.clone());
            let translated =
                |stored: StoredRequest| StoredRequest { request: (self.translate)(stored.request), ..stored };
            each(&page.into_iter().map(translated).collect::<Vec<_>>())?;
        }
    }

    fn runs(
        &self,
        mut each: impl FnMut(&[(Run, Request)]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let mut last = None;
        loop {
            let page = self.from.runs_in_order(last.as_ref(), PAGE)?;
            let Some((end, _)) = page.last() else { return Ok(()) };
            last = Some(end.id.clone());
            let translated = |(run, request): (Run, Request)| {
                (run.on_clock(self.here, self.there), (self.translate)(request))
            };
            each(&page.into_iter().map(translated).collect::<Vec<_>>())?;
        }
    }

    fn events(
        &self,
        mut each: impl FnMut(&[StoredEvent]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let mut last = 0;
        loop {
            let page = self.from.events_after(last, PAGE)?;
            let Some(end) = page.last() else { return Ok(()) };
            last = end.position;
            each(&page)?;
        }
    }

    fn hosts(&self, page: &[(Run, Request)]) -> Result<HashMap<RunId, String>, StoreError> {
        self.from.hosts(&page.iter().map(|(run, _)| &run.id).collect::<Vec<_>>())
    }
}

/// Reads everything back.
fn compare<F: Filling>(
    source: &Source<'_>,
    into: &F,
    counted: Imported,
    progress: &dyn Fn(u64),
) -> Result<(), StoreError> {
    let from = source.from;
    let mut compared = counted.requests + counted.runs + counted.events;
    let mut count = |more: usize| {
        compared += more as u64;
        progress(compared);
    };
    let mut last = None;
    source.requests(|page| {
        same(page, &into.requests_in_order(last.as_ref(), page.len())?, |stored| {
            format!("request {}", stored.request.id)
        })?;
        last = page.last().map(|stored| stored.request.id.clone());
        count(page.len());
        Ok(())
    })?;
    nothing_more(into.requests_in_order(last.as_ref(), 1)?.is_empty())?;
    let mut last = None;
    source.runs(|page| {
        same(page, &into.runs_in_order(last.as_ref(), page.len())?, |(run, _)| format!("run {}", run.id))?;
        if F::KEEPS_HOSTS {
            let ids: Vec<&RunId> = page.iter().map(|(run, _)| &run.id).collect();
            same(&[source.hosts(page)?], &[into.hosts(&ids)?], |_| "the host of a run".to_owned())?;
        }
        last = page.last().map(|(run, _)| run.id.clone());
        count(page.len());
        Ok(())
    })?;
    nothing_more(into.runs_in_order(last.as_ref(), 1)?.is_empty())?;
    let mut last = 0;
    source.events(|page| {
        same(page, &into.events_after(last, page.len())?, |event| format!("event {}", event.id))?;
        last = page.last().map_or(last, |event| event.position);
        count(page.len());
        Ok(())
    })?;
    nothing_more(into.events_after(last, 1)?.is_empty())?;
    same(&[from.auto_run()?], &[into.auto_run()?], |_| "the auto-run".to_owned())?;
    same(&[from.last_position()?], &[into.last_position()?], |_| "the last position".to_owned())?;
    same(&[from.queue_head(usize::MAX)?], &[into.queue_head(usize::MAX)?], |_| "the queue".to_owned())
}

fn same<T: PartialEq>(expected: &[T], found: &[T], name: impl Fn(&T) -> String) -> Result<(), StoreError> {
    let mut pairs = expected.iter().zip(found.iter().map(Some).chain(std::iter::repeat(None)));
    match pairs.find(|(expected, found)| *found != Some(*expected)) {
        Some((expected, _)) => {
            Err(StoreError::Mismatch(format!("{} was read back differently", name(expected))))
        }
        None => Ok(()),
    }
}

fn nothing_more(is_so: bool) -> Result<(), StoreError> {
    if is_so {
        Ok(())
    } else {
        Err(StoreError::Mismatch("a record was read back that was not copied".to_owned()))
    }
}
