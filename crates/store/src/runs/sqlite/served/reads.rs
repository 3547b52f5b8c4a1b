//! Snapshots of clients.

use std::sync::mpsc::Receiver;

use lockkeeper_core::id::RunId;

use super::sessions::{Asked, IDLE};
use super::{Text, answered, failed, text};
use crate::StoreError;
use crate::runs::messages::{Answer, Read};
use crate::runs::sqlite::SqliteRunStore;
use crate::runs::wire::Wire;
use crate::runs::{RunRecords, RunStore};

/// Answers what is read of one moment.
pub(super) fn serve(store: &SqliteRunStore, distance: i64, asked: &Receiver<Asked<Read>>) {
    let opened = store.snapshot();
    while let Ok(Asked { what, reply }) = asked.recv_timeout(IDLE) {
        let answer = match (&opened, what) {
            (Err(error), _) => failed(error),
            (Ok(records), None) => answered(Ok(()), records.now(), distance),
            (Ok(records), Some(read)) => match read_of(&**records, read, distance) {
                Ok(found) => Answer::Done { now: store.now().form(distance), found },
                Err(error) => failed(&error),
            },
        };
        // The client may be gone.
        let _ = reply.send(answer);
        if opened.is_err() {
            return;
        }
    }
}

fn read_of(records: &dyn RunRecords, read: Read, by: i64) -> Result<Text, StoreError> {
    match read {
        Read::Run(id) => text(records.run(&argument(id, by)?)?, by),
        Read::LatestRun(id) => text(records.latest_run(&argument(id, by)?)?, by),
        Read::RunsByPart(part) => text(records.runs_by_part(&part)?, by),
        Read::Runs(filter) => text(records.runs(&argument(filter, by)?)?, by),
        Read::RunsWithRequests(filter) => text(records.runs_with_requests(&argument(filter, by)?)?, by),
        Read::OldestQueuedAt => text(records.oldest_queued_at()?, by),
        Read::RunCounts => text(records.run_counts()?, by),
        Read::Timings(since) => text(records.timings(since)?, by),
        Read::Request(id) => text(records.request(&argument(id, by)?)?, by),
        Read::Requests(filter) => text(records.requests(&argument(filter, by)?)?, by),
        Read::RequestsWithRuns(filter) => text(records.requests_with_runs(&argument(filter, by)?)?, by),
        Read::RequestsInOrder(after, limit) => {
            text(records.requests_in_order(argument::<Option<_>>(after, by)?.as_ref(), limit)?, by)
        }
        Read::RunsInOrder(after, limit) => {
            text(records.runs_in_order(argument::<Option<_>>(after, by)?.as_ref(), limit)?, by)
        }
        Read::Matching(filter) => text(records.matching(&argument(filter, by)?)?, by),
        Read::CountMatching(filter) => text(records.count_matching(&argument(filter, by)?)?, by),
        Read::RequestCounts => text(records.request_counts()?, by),
        Read::OpenRequests(next, others) => text(records.open_requests(next, others)?, by),
        Read::Unmet(id) => text(records.unmet(&argument(id, by)?)?, by),
        Read::Prunable(before) => text(records.prunable(before)?, by),
        Read::Claimable(listing, limit) => text(records.claimable(argument(listing, by)?, limit)?, by),
        Read::HasWork => text(records.has_work()?, by),
        Read::QueueHead(limit) => text(records.queue_head(limit)?, by),
        Read::QueuePosition(run) => text(records.queue_position(&argument(run, by)?)?, by),
        Read::Overdue(limit) => text(records.overdue(limit)?, by),
        Read::NextDue(looked_at) => text(records.next_due(argument(looked_at, by)?)?, by),
        Read::QueuedInStages => text(records.queued_in_stages()?, by),
        Read::ActiveRuns => text(records.active_runs()?, by),
        Read::RunWithLock(holder) => text(records.run_with_lock(argument(holder, by)?)?, by),
        Read::Workers => text(records.workers()?, by),
        Read::Hosts(runs) => {
            let runs: Vec<RunId> = argument(runs, by)?;
            text(records.hosts(&runs.iter().collect::<Vec<_>>())?, by)
        }
        Read::Output { run, attempt, from } => text(records.output(&argument(run, by)?, attempt, from)?, by),
        Read::AutoRun => text(records.auto_run()?, by),
        Read::EventsOf(run, after, limit) => text(records.events_of(&argument(run, by)?, after, limit)?, by),
        Read::EventsAfter(position, limit) => text(records.events_after(position, limit)?, by),
        Read::LastPosition => text(records.last_position()?, by),
    }
}

fn argument<T: Wire>(form: T::Form, distance: i64) -> Result<T, StoreError> {
    T::read(form, -distance).map_err(StoreError::Mismatch)
}
