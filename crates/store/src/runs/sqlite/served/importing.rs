//! Imports of clients: a write transaction that the client fills. Local processes wait for it.

use std::collections::HashMap;
use std::io;
use std::sync::mpsc::{Receiver, SyncSender};

use lockkeeper_core::request::Request;
use lockkeeper_core::run::Run;

use super::sessions::{Asked, IDLE};
use super::{Text, answered, failed, text};
use crate::StoreError;
use crate::runs::import::Filling;
use crate::runs::messages::{Answer, Fill};
use crate::runs::sqlite::SqliteRunStore;
use crate::runs::sqlite::tables::Tables;
use crate::runs::wire::Wire;
use crate::runs::{RunStore, StoredEvent, StoredRequest};

/// A step of an import.
pub(super) struct Step {
    pub(super) number: u64,
    pub(super) fill: Fill,
}

/// The last step and its answer: a step that comes again is not made again.
type Last = Option<(u64, Answer<Text>)>;

/// Makes the steps of one transaction, and commits it if the client says so.
pub(super) fn serve(store: &SqliteRunStore, distance: i64, asked: &Receiver<Asked<Step>>) {
    let mut last = None;
    let mut end: Option<(u64, SyncSender<Answer<Text>>)> = None;
    let filled = store.transact(|tables| {
        let (number, reply, commits) = make_steps(tables, distance, asked, &mut last)?;
        end = Some((number, reply));
        if commits { Ok(()) } else { Err(given_up(store)) }
    });
    let Some((number, reply)) = end else {
        // The transaction did not begin, or the client is gone.
        if let (Err(error), Ok(Asked { reply, .. })) = (&filled, asked.try_recv()) {
            let _ = reply.send(failed(error));
        }
        return;
    };
    let answer = answered(filled.and_then(|()| store.sync()), store.now(), distance);
    let _ = reply.send(answer.clone());
    while let Ok(Asked { what: Some(step), reply }) = asked.recv_timeout(IDLE) {
        if step.number != number {
            return;
        }
        let _ = reply.send(answer.clone());
    }
}

/// Makes all steps but the last one, which ends the transaction: its number, where its answer goes, and whether it commits.
fn make_steps(
    tables: &Tables<'_>,
    distance: i64,
    asked: &Receiver<Asked<Step>>,
    last: &mut Last,
) -> Result<(u64, SyncSender<Answer<Text>>, bool), StoreError> {
    loop {
        let received = asked.recv_timeout(IDLE);
        let Asked { what, reply } =
            received.map_err(|_| StoreError::Mismatch("the client is gone".to_owned()))?;
        let answer = match what {
            None => answered(Ok(()), Tables::now(tables), distance),
            Some(Step { number, fill }) => match last {
                Some((made, answer)) if *made == number => answer.clone(),
                _ => match fill {
                    Fill::Commit => return Ok((number, reply, true)),
                    Fill::GiveUp => return Ok((number, reply, false)),
                    fill => {
                        let answer = match make(tables, fill, distance) {
                            Ok(found) => Answer::Done { now: Tables::now(tables).form(distance), found },
                            Err(error) => failed(&error),
                        };
                        *last = Some((number, answer.clone()));
                        answer
                    }
                },
            },
        };
        // The client may be gone.
        let _ = reply.send(answer);
    }
}

fn make(tables: &Tables<'_>, fill: Fill, by: i64) -> Result<Text, StoreError> {
    match fill {
        Fill::RemoveAll => text(tables.remove_all()?, by),
        Fill::AddRequests(form) => text(tables.add_requests(&argument::<Vec<_>>(form, by)?)?, by),
        Fill::AddDependencies(form) => {
            text(tables.add_dependencies(&argument::<Vec<StoredRequest>>(form, by)?)?, by)
        }
        Fill::AddRuns(form) => {
            text(tables.add_runs(&argument::<Vec<(Run, Request)>>(form, by)?, &HashMap::new())?, by)
        }
        Fill::AddEvents(form) => text(tables.add_events(&argument::<Vec<StoredEvent>>(form, by)?)?, by),
        Fill::SetAutoRun(form) => text(tables.set_auto_run(&argument(form, by)?)?, by),
        Fill::SetLastPosition(position) => text(tables.set_last_position(position)?, by),
        Fill::RequestsInOrder(after, limit) => {
            text(Tables::requests_in_order(tables, argument::<Option<_>>(after, by)?.as_ref(), limit)?, by)
        }
        Fill::RunsInOrder(after, limit) => {
            text(Tables::runs_in_order(tables, argument::<Option<_>>(after, by)?.as_ref(), limit)?, by)
        }
        Fill::EventsAfter(position, limit) => text(Tables::events_after(tables, position, limit)?, by),
        Fill::AutoRun => text(Tables::auto_run(tables)?, by),
        Fill::LastPosition => text(Tables::last_position(tables)?, by),
        Fill::QueueHead(limit) => text(Tables::queue_head(tables, limit)?, by),
        // They end the transaction.
        Fill::Commit | Fill::GiveUp => text((), by),
    }
}

fn argument<T: Wire>(form: T::Form, distance: i64) -> Result<T, StoreError> {
    T::read(form, -distance).map_err(StoreError::Mismatch)
}

fn given_up(store: &SqliteRunStore) -> StoreError {
    StoreError::io("fill", &store.path, io::Error::other("the client gave up"))
}
