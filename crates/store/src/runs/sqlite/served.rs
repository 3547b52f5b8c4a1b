//! Served runs: carries out the calls of other machines in the run store of this machine's state folder.
//!
//! The moments of records are on the boot clock of this machine. Other machines get them with the distance of the served leases added.

mod importing;
mod reads;
mod sessions;

use std::sync::Arc;

use lockkeeper_core::request::{Request, RequestStatus};
use lockkeeper_core::run::transition::{self, Transition};
use lockkeeper_core::run::{Run, Stamp};
use serde_json::value::RawValue;

use self::importing::Step;
use self::sessions::Sessions;
use super::tables::Tables;
use super::{SqliteRunStore, schema};
use crate::runs::messages::{Answer, Read, RunCall, Write};
use crate::runs::wire::{ClaimsMessage, Form, OutputMessage, SubmissionMessage, Wire};
use crate::runs::{ChangeSignal, MovedAndClaimed, Removed, Requeue, RunStore, spec};
use crate::sqlite::Purpose;
use crate::{Examination, StoreError};

/// An answer as text.
type Text = Box<RawValue>;

/// Requests and runs of a state folder that other machines use.
pub(crate) struct ServedRuns {
    store: Arc<SqliteRunStore>,
    /// What is added to moments for other machines, in microseconds.
    distance: i64,
    snapshots: Arc<Sessions<Read>>,
    imports: Arc<Sessions<Step>>,
}

impl SqliteRunStore {
    /// Prepares the folder for other machines. The first time, requests that wait are converted: their folders may be written
    /// differently.
    pub(crate) fn serve(&self, translate: &dyn Fn(Request) -> Request) -> Result<(), StoreError> {
        let connection = self.connection(Purpose::Write)?;
        if schema::is_served(&connection, &self.path)? {
            return Ok(());
        }
        drop(connection);
        self.transact(|tables| tables.translate(translate))?;
        let _alone = self.write_lock.lock().map_err(|error| StoreError::lock(&self.lock_path(), error))?;
        schema::serve(&*self.connection(Purpose::Write)?, &self.path)
    }
}

impl Tables<'_> {
    /// Converts the requests that are not done: they may be executed, now or once more.
    fn translate(&self, translate: &dyn Fn(Request) -> Request) -> Result<(), StoreError> {
        for stored in self
            .requests_in_order(None, usize::MAX)?
            .into_iter()
            .filter(|stored| stored.status != RequestStatus::Done)
        {
            let text = spec::write(&translate(stored.request.clone()));
            self.execute("UPDATE request SET spec = ?2 WHERE id = ?1", [stored.request.id.as_str(), &text])?;
        }
        Ok(())
    }
}

impl ServedRuns {
    /// The runs of a folder. `distance` is that of its leases.
    pub(crate) fn new(store: SqliteRunStore, distance: i64) -> Self {
        let (snapshots, imports) = (Arc::default(), Arc::default());
        Self { store: Arc::new(store), distance, snapshots, imports }
    }

    /// Answers one call.
    pub(crate) fn answer(&self, call: RunCall) -> Answer<Text> {
        match call {
            RunCall::Begin { snapshot } => {
                let (store, distance) = (Arc::clone(&self.store), self.distance);
                self.snapshots.begin(snapshot, move |asked| reads::serve(&store, distance, &asked))
            }
            RunCall::Read { snapshot, read } => self.snapshots.ask(snapshot, Some(read)),
            RunCall::End { snapshot } => {
                self.snapshots.forget(snapshot);
                self.answered(Ok(()))
            }
            RunCall::Write { number, write } => {
                let waits = write.waits_for_disk();
                let written = self.write(number, *write).map(|found| {
                    let synced = if waits { self.store.sync() } else { Ok(()) };
                    synced.map(|()| found)
                });
                match written {
                    Ok(Err(error)) => Answer::InDoubt(error.to_string()),
                    Ok(Ok(found)) => Answer::Done { now: self.store.now().form(self.distance), found },
                    Err(error) => failed(&error),
                }
            }
            RunCall::KeepOutput(changes) => self.answered(self.keep_output(changes)),
            RunCall::Examine { thorough } => {
                self.answered(self.store.examine(thorough).map(|Examination { flaws, .. }| flaws))
            }
            RunCall::MovedTo => self.answered(self.store.moved_to()),
            RunCall::SetMovedTo(to) => self.answered(self.store.set_moved_to(to.as_deref())),
            RunCall::BeginImport { import } => {
                let (store, distance) = (Arc::clone(&self.store), self.distance);
                self.imports.begin(import, move |asked| importing::serve(&store, distance, &asked))
            }
            RunCall::Import { import, step, fill } => {
                self.imports.ask(import, Some(Step { number: step, fill: *fill }))
            }
        }
    }

    /// Subscribes to all changes from now on, of all processes.
    pub(crate) fn changes(&self) -> Result<Box<dyn ChangeSignal>, StoreError> {
        self.store.subscribe()
    }

    /// Makes a change, unless it was made before. Returns its answer.
    fn write(&self, number: i64, write: Write) -> Result<Text, StoreError> {
        let mut removed = Vec::new();
        let answer = self.store.write(|tables| {
            if let Some(answer) = tables.answer_of(number)? {
                return RawValue::from_string(answer).map_err(|error| tables.damaged(error.to_string()));
            }
            let before = tables.changes();
            let answer = self.make(tables, write, &mut removed)?;
            // What has changed nothing may be made again.
            if tables.changes() != before {
                tables.note_answer(number, answer.get())?;
            }
            Ok(answer)
        })?;
        self.store.remove_outputs(&removed)?;
        Ok(answer)
    }

    fn make(
        &self,
        tables: &Tables<'_>,
        write: Write,
        removed: &mut Vec<Removed>,
    ) -> Result<Text, StoreError> {
        match write {
            Write::Submit(form) => {
                self.text(tables.submit(&self.argument::<SubmissionMessage>(form)?.submission())?)
            }
            Write::Replace(form) => {
                self.text(tables.replace_requests(&self.argument::<SubmissionMessage>(form)?.submission())?)
            }
            Write::Requeue(form) => {
                let runs = self.argument::<Vec<Requeue>>(form)?;
                self.text(runs.iter().map(|run| tables.requeue(run)).collect::<Result<Vec<_>, _>>()?)
            }
            Write::MoveAndClaim { transitions, claims } => {
                let transitions = self.argument::<Vec<Transition>>(transitions)?;
                let moved = transitions.iter().map(|transition| tables.move_run(transition));
                let moved = moved.collect::<Result<_, _>>()?;
                let claims = self.argument::<Option<ClaimsMessage>>(claims)?;
                let claimed =
                    claims.map_or_else(|| Ok(Vec::new()), |claims| tables.claim(&claims.claims()))?;
                self.text(MovedAndClaimed { moved, claimed })
            }
            Write::ClearProcesses(form) => {
                let cleared = transition::clear_processes(&self.argument::<Run>(form)?);
                self.text(tables.replace(&cleared, cleared.version).map(|_| ())?)
            }
            Write::RegisterWorker(form) => {
                let worker = self.argument(form)?;
                tables.insert_worker(&worker)?;
                self.text(tables.begin_session(&worker)?)
            }
            Write::RenewWorker { worker, expected, beat } => {
                self.text(tables.renew_session(&self.argument(worker)?, &expected, beat)?)
            }
            Write::RemoveWorker(worker) => self.text(tables.remove_worker(&self.argument(worker)?)?),
            Write::ChangeAutoRun(change) => {
                let changed = change.with(|change| tables.change_auto_run(change));
                self.text(changed.map_err(StoreError::Mismatch)??)
            }
            Write::SetPriority(request, priority) => {
                self.text(tables.set_priority(&self.argument(request)?, self.argument(priority)?)?)
            }
            Write::Prune(before) => {
                *removed = tables.prune(before)?;
                self.text(removed.clone())
            }
        }
    }

    fn keep_output(&self, changes: Form<Vec<OutputMessage>>) -> Result<(), StoreError> {
        let changes = self.argument::<Vec<OutputMessage>>(changes)?;
        let changes: Vec<_> = changes.iter().map(OutputMessage::change).collect();
        self.store.keep_output(&changes)
    }

    /// Reads an argument of a call.
    fn argument<T: Wire>(&self, form: T::Form) -> Result<T, StoreError> {
        T::read(form, -self.distance).map_err(StoreError::Mismatch)
    }

    fn text<T: Wire>(&self, found: T) -> Result<Text, StoreError> {
        text(found, self.distance)
    }

    fn answered<T: Wire>(&self, found: Result<T, StoreError>) -> Answer<Text> {
        answered(found, self.store.now(), self.distance)
    }
}

impl Write {
    /// Whether it has to survive a power cut. A heartbeat need not.
    fn waits_for_disk(&self) -> bool {
        !matches!(self, Self::RenewWorker { .. })
    }
}

fn text<T: Wire>(found: T, distance: i64) -> Result<Text, StoreError> {
    serde_json::value::to_raw_value(&found.form(distance))
        .map_err(|error| StoreError::Mismatch(error.to_string()))
}

fn answered<T: Wire>(found: Result<T, StoreError>, now: Stamp, distance: i64) -> Answer<Text> {
    match found.and_then(|found| text(found, distance)) {
        Ok(found) => Answer::Done { now: now.form(distance), found },
        Err(error) => failed(&error),
    }
}

/// What a client is told of a failure that has changed nothing.
fn failed(error: &StoreError) -> Answer<Text> {
    match error {
        StoreError::Mismatch(what) => Answer::Misfit(what.clone()),
        StoreError::Damaged { what, .. } => Answer::Damaged(what.clone()),
        StoreError::NotEmpty { .. } => Answer::NotEmpty,
        StoreError::Moved { to, .. } => Answer::Moved(to.clone()),
        other => Answer::Failed(other.to_string()),
    }
}
