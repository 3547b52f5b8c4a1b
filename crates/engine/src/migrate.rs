//! Migration: moves requests, runs and events from one store to another one.
//!
//! | step | if it is interrupted there |
//! |---|---|
//! | 1. check that nothing is held, waits or runs in either store | nothing has changed |
//! | 2. make the next numbers of the target larger than all numbers of the source | nothing that users see |
//! | 3. mark the source as moved, check again | the source refuses everything, the target is empty; the same migration starts over |
//! | 4. copy, read back, compare and commit, in one transaction of the target | the same |
//! | 5. remove the mark of the target, if it was once moved to the source | both refuse everything; the same migration starts over |
//!
//! If a step fails, the migration removes the mark of the source. Leases and tickets belong to live processes, so there are none to
//! copy. The claims of agents stay in the state folder of their machine.

use std::sync::Arc;

use lockkeeper_core::id::RunId;
use lockkeeper_core::record::Claim;
use lockkeeper_core::request::Request;
use lockkeeper_store::StoreError;
use lockkeeper_store::runs::{Import, RunFilter, RunRecords, RunStore};
use thiserror::Error;

pub use lockkeeper_store::runs::Imported;

use crate::location::{Location, without_links};
use crate::open::{OpenError, has_run_store, has_store, open_to_move};
use crate::runs::portable::{for_any_machine, for_this_machine};
use crate::runs::{RunError, Runs};
use crate::{Engine, Listing};

/// How many of each kind an error names.
const NAMED: usize = 5;

/// What a migration did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Migrated {
    /// All records were copied and compared.
    Now {
        /// How many.
        records: Imported,
        /// All tokens of the target are above this number.
        tokens_above: u64,
    },
    /// An earlier call did it. Nothing was changed.
    Before,
}

/// Why nothing was moved.
#[derive(Debug, Error)]
pub enum MigrateError {
    /// Both addresses lead to one store.
    #[error("FROM and TO are the same store: {0}")]
    Same(String),
    /// There is nothing to move.
    #[error("there is no store in {0}")]
    NoStore(String),
    /// The server keeps leases only, or its folder is moved on its own machine.
    #[error("{0} is not moved from here")]
    NoRuns(String),
    /// A store is in use.
    #[error("{store} is in use: {}", by.join(", "))]
    InUse {
        /// Which store.
        store: String,
        /// What is held, waits or runs there, one phrase each.
        by: Vec<String>,
    },
    /// The target has records.
    #[error("{0} is not empty")]
    NotEmpty(String),
    /// A store was moved to a third one.
    #[error("{store} was moved to {to}")]
    MovedElsewhere {
        /// Which store.
        store: String,
        /// The third one.
        to: String,
    },
    /// A migration back, after one that was interrupted: the source does not have the records of the target.
    #[error("the move of {to} to {from} was interrupted, so that {from} does not have its records")]
    NotThere {
        /// The source.
        from: String,
        /// The target.
        to: String,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A store could not be opened, or the system gave no information about this machine.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The runs could not be read.
    #[error(transparent)]
    Runs(#[from] RunError),
}

impl MigrateError {
    /// What the user can do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Same(_) => "name two stores, such as sqlite:.git/lockkeeper and postgres://HOST/DATABASE".to_owned(),
            Self::NoRuns(_) => "nothing was changed; name the folder where the runs are: sqlite:PATH, on its own machine".to_owned(),
            Self::NoStore(_) => "`lockkeeper config` shows where the store of this repository is".to_owned(),
            Self::InUse { .. } => "nothing was changed; stop the workers and servers, let the runs end or cancel them (`lockkeeper runs`, \
                 `lockkeeper run cancel`), let the holders release (`lockkeeper locks`), then run it again; `lockkeeper work --drain` ends \
                 the runs of a worker that was killed"
                .to_owned(),
            Self::NotEmpty(_) => "nothing was changed; name a folder or a project that is not used yet".to_owned(),
            Self::MovedElsewhere { to, .. } => format!("nothing was changed; its records are in {to}"),
            Self::NotThere { from, to } => {
                format!("nothing was changed; `lockkeeper store migrate {to} {from}` finishes that move first")
            }
            Self::Store(error) => error.hint(),
            Self::Open(OpenError::Store(error)) => error.hint(),
            Self::Open(OpenError::Machine(_)) => String::new(),
            Self::Runs(error) => error.hint(),
        }
    }
}

/// Moves all records of one store to another one. `progress` is called with the number of records that were copied or compared so
/// far.
pub fn migrate(from: &Location, to: &Location, progress: &dyn Fn(u64)) -> Result<Migrated, MigrateError> {
    let [from_name, to_name] = [from, to].map(name);
    if from_name == to_name {
        return Err(MigrateError::Same(from_name));
    }
    let is_there = from.shared.is_some() || has_store(&from.state) || has_run_store(&from.state);
    if !is_there {
        return Err(MigrateError::NoStore(from_name));
    }
    let (source, target) = (Place::open(from, from_name)?, Place::open(to, to_name)?);
    let is_marked = source.is_moved_to(&target)?;
    let is_return = target.is_moved_to(&source)?;
    source.check_idle()?;
    target.check_idle()?;
    if is_return {
        // Positions are copied: a store that has the records of another one never has smaller ones.
        if source.last_position()? < target.last_position()? {
            return Err(MigrateError::NotThere { from: source.name, to: target.name });
        }
    } else if !target.is_empty()? {
        let is_done = is_marked && has_copy(&*source.runs.snapshot()?, &*target.runs.snapshot()?)?;
        return if is_done { Ok(Migrated::Before) } else { Err(MigrateError::NotEmpty(target.name)) };
    }
    let tokens_above = source.leases.store().begin()?.next_number()?;
    if !target.leases.store().raise_numbers(tokens_above)? {
        return Err(MigrateError::NoRuns(target.name));
    }
    source.runs.set_moved_to(Some(&target.name))?;
    let copied = source.check_idle().and_then(|()| {
        let records = source.runs.snapshot()?;
        let translate = |request: Request| match (&from.shared, &to.shared) {
            (None, Some(_)) => for_any_machine(&from.root, request),
            (Some(_), None) => for_this_machine(&to.root, request),
            (None, None) | (Some(_), Some(_)) => request,
        };
        let import = Import { from: &*records, translate: &translate, replaces: is_return, progress };
        Ok(target.runs.import(&import)?)
    });
    match copied {
        Ok(records) => {
            target.runs.set_moved_to(None)?;
            Ok(Migrated::Now { records, tokens_above })
        }
        // The target may have the records: the mark stays, and the next call checks it.
        Err(error @ MigrateError::Store(StoreError::InDoubt { .. })) => Err(error),
        Err(error) => {
            source.runs.set_moved_to(None)?;
            Err(error)
        }
    }
}

/// The unique name of a store, as users write it.
fn name(location: &Location) -> String {
    match &location.shared {
        Some(shared) => shared.id(),
        None => format!("sqlite:{}", without_links(&location.state).display()),
    }
}

/// One of the two stores.
struct Place<'l> {
    location: &'l Location,
    name: String,
    leases: Engine,
    runs: Arc<dyn RunStore>,
}

impl<'l> Place<'l> {
    fn open(location: &'l Location, name: String) -> Result<Self, MigrateError> {
        let Some((leases, runs)) = open_to_move(location)? else { return Err(MigrateError::NoRuns(name)) };
        Ok(Self { location, name, leases, runs })
    }

    /// Whether it was moved to the other store. Fails if it was moved to a third one.
    fn is_moved_to(&self, other: &Self) -> Result<bool, MigrateError> {
        match self.runs.moved_to()? {
            None => Ok(false),
            Some(to) if to == other.name => Ok(true),
            Some(to) => Err(MigrateError::MovedElsewhere { store: self.name.clone(), to }),
        }
    }

    fn last_position(&self) -> Result<u64, MigrateError> {
        Ok(self.runs.snapshot()?.last_position()?)
    }

    fn is_empty(&self) -> Result<bool, MigrateError> {
        let records = self.runs.snapshot()?;
        Ok(records.requests_in_order(None, 1)?.is_empty() && records.last_position()? == 0)
    }

    /// Fails if something is held, waits or runs, or if a worker lives.
    fn check_idle(&self) -> Result<(), MigrateError> {
        let mut by = in_use(&self.leases.listing()?);
        let runs = Runs::over(Arc::clone(&self.runs), self.location)?;
        let active: Vec<RunId> = self.runs.snapshot()?.active_runs()?.into_iter().map(|run| run.id).collect();
        by.extend(some(active.iter().map(|run| format!("run {run}"))));
        let alive = runs.workers()?.into_iter().filter(|entry| entry.is_alive);
        by.extend(some(
            alive.map(|entry| format!("worker {} on {}", entry.worker.id, entry.worker.origin.host)),
        ));
        if by.is_empty() { Ok(()) } else { Err(MigrateError::InUse { store: self.name.clone(), by }) }
    }
}

/// The leases and tickets, in words, without the claims of agents, which are not moved.
fn in_use(listing: &Listing) -> Vec<String> {
    let held =
        listing.holders.iter().filter(|entry| !entry.verdict.is_free() && entry.lease.claim.agent.is_none());
    let held =
        held.map(|entry| format!("{} is held by {}", targets(&entry.lease.claim), entry.lease.claim.owner));
    let waiting =
        listing.waiters.iter().filter(|entry| !entry.verdict.is_free() && entry.ticket.claim.agent.is_none());
    let waiting = waiting
        .map(|entry| format!("{} waits for {}", entry.ticket.claim.owner, targets(&entry.ticket.claim)));
    some(held).into_iter().chain(some(waiting)).collect()
}

fn targets(claim: &Claim) -> String {
    let first = claim.resources.first().map_or("", |resource| resource.target.as_str());
    if claim.resources.len() > 1 { format!("{first} and more") } else { first.to_owned() }
}

/// The first phrases, and how many more there are.
fn some(phrases: impl Iterator<Item = String>) -> Vec<String> {
    let mut all: Vec<String> = phrases.collect();
    let more = all.len().saturating_sub(NAMED);
    all.truncate(NAMED);
    if more > 0 {
        all.push(format!("{more} more"));
    }
    all
}

/// Whether one store has the latest run of the other one, with the same events at the same positions.
fn has_copy(of: &dyn RunRecords, here: &dyn RunRecords) -> Result<bool, StoreError> {
    let latest = of.runs(&RunFilter { limit: 1, ..RunFilter::default() })?;
    let Some(run) = latest.first() else { return Ok(false) };
    let events = of.events_of(&run.id, 0, usize::MAX)?;
    Ok(here.events_of(&run.id, 0, events.len())? == events)
}
