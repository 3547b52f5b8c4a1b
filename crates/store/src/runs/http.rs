//! `HttpRunStore`: requests and runs in the state folder of another machine, which `lockkeeper serve` serves.
//!
//! Each operation is one call of the server, which carries it out in the SQLite store of its folder. So local processes and those of
//! other machines use the same records in the same way.
//!
//! | what | how |
//! |---|---|
//! | snapshot | a read transaction of the server, which ends with the snapshot, or when nothing was read for half a minute |
//! | in doubt | each change has a number, which the server keeps with its answer: a call that is made again returns it |
//! | durable | the server forces the log to the disk before it answers |
//! | clock | that of the leases |
//! | changes | a response that does not end |

mod import;
mod snapshot;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use lockkeeper_core::id::{RequestId, WorkerId};
use lockkeeper_core::record::Priority;
use lockkeeper_core::run::admission::{Refusal, Submission, Submitted};
use lockkeeper_core::run::transition::Transition;
use lockkeeper_core::run::{Run, Stamp};
use lockkeeper_core::time::Ttl;

use self::import::HttpFilling;
use self::snapshot::Snapshot;
use super::import::fill;
use super::messages::{Answer, RunCall, Write};
use super::wire::{AutoRunMessage, ClaimsMessage, OutputMessage, SubmissionMessage, Wire};
use super::{
    AutoRunChange, ChangeSignal, Claims, Import, Imported, MovedAndClaimed, OutputChange, Removed, Renewal,
    Requeue, RunRecords, RunStore, Worker,
};
use crate::http::messages::Call;
use crate::optimistic::{OptimisticStore, TRIES, in_doubt, random_number};
use crate::{Examination, HttpAddress, HttpStore, StoreError, Waker};

/// Requests and runs of one project in a folder that another machine serves.
pub struct HttpRunStore {
    /// The leases of the project: their connections, and their clock.
    leases: HttpStore,
    /// How far the store's clock is ahead of the server's wall clock, in microseconds.
    ahead: AtomicI64,
    session: Option<Ttl>,
}

impl HttpRunStore {
    /// Opens the runs of a project. Fails if they were moved to another store.
    pub fn open(address: HttpAddress, project: &str, connect_timeout: Duration) -> Result<Self, StoreError> {
        let leases = HttpStore::open(address, project, connect_timeout)?;
        let store = Self { leases, ahead: AtomicI64::new(0), session: None };
        // The answer also sets the clock.
        match store.moved_to()? {
            Some(to) => Err(StoreError::Moved { address: store.address(), to }),
            None => Ok(store),
        }
    }

    /// Workers of this project have sessions of this span.
    #[must_use]
    pub fn with_session(self, session: Ttl) -> Self {
        Self { session: Some(session), ..self }
    }

    /// Makes a call that changes nothing, or that may be made twice.
    fn ask<T: Wire>(&self, call: RunCall) -> Result<T, StoreError> {
        self.call(call, false).map(|(_, found)| found)
    }

    /// Makes a change once.
    fn write<T: Wire>(&self, write: Write) -> Result<T, StoreError> {
        // As an integer of SQLite.
        let number = (random_number("draw a number for", self.leases.address())? >> 1).cast_signed();
        self.call(RunCall::Write { number, write: Box::new(write) }, true).map(|(_, found)| found)
    }

    /// Calls the server, again if a connection breaks. Returns the time of the store as well.
    fn call<T: Wire>(&self, call: RunCall, is_change: bool) -> Result<(Stamp, T), StoreError> {
        let call = Call::Runs(call);
        let (mut tries, mut may_be_made) = (1, false);
        let answer: Answer<T::Form> = loop {
            match self.leases.call_once(&call) {
                Ok(answer) => break answer,
                Err(failure) => {
                    may_be_made |= failure.is_broken();
                    // A server that did not answer in time was waited for long enough.
                    if failure.is_lost() && tries < TRIES {
                        tries += 1;
                        continue;
                    }
                    let explained = failure.explain(self.leases.address());
                    return Err(if is_change && may_be_made { in_doubt(explained) } else { explained });
                }
            }
        };
        match answer {
            Answer::Done { now, found } => {
                let now = Stamp::read(now, 0).map_err(StoreError::Mismatch)?;
                self.leases.clock().move_to(now.moment.as_micros());
                self.ahead.store(now.moment.as_micros() - now.unix_micros, Ordering::Relaxed);
                Ok((now, T::read(found, 0).map_err(|what| self.damaged(what))?))
            }
            Answer::Misfit(what) => Err(StoreError::Mismatch(what)),
            Answer::Failed(what) | Answer::Refused(what) => {
                let failed = StoreError::Unreachable { address: self.address(), source: what.into() };
                // An earlier try may have been made, whose answer was lost.
                Err(if is_change && may_be_made { in_doubt(failed) } else { failed })
            }
            Answer::InDoubt(what) => {
                Err(StoreError::InDoubt { address: self.address(), source: what.into() })
            }
            Answer::Damaged(what) => Err(self.damaged(what)),
            Answer::NotEmpty => Err(StoreError::NotEmpty { address: self.address() }),
            Answer::Moved(to) => Err(StoreError::Moved { address: self.address(), to }),
        }
    }

    fn damaged(&self, what: String) -> StoreError {
        StoreError::Damaged { address: self.address(), what }
    }
}

impl RunStore for HttpRunStore {
    fn now(&self) -> Stamp {
        let moment = self.leases.clock().now();
        Stamp { moment, unix_micros: moment.as_micros() - self.ahead.load(Ordering::Relaxed) }
    }

    fn session(&self) -> Option<Ttl> {
        self.session
    }

    fn snapshot(&self) -> Result<Box<dyn RunRecords + '_>, StoreError> {
        Ok(Box::new(Snapshot::begin(self)?))
    }

    fn submit(&self, submission: &Submission<'_>) -> Result<Result<Vec<Submitted>, Refusal>, StoreError> {
        self.write(Write::Submit(SubmissionMessage::from(submission).form(0)))
    }

    fn replace(&self, submission: &Submission<'_>) -> Result<Result<Vec<Submitted>, Refusal>, StoreError> {
        self.write(Write::Replace(SubmissionMessage::from(submission).form(0)))
    }

    fn requeue(&self, runs: &[Requeue]) -> Result<Vec<bool>, StoreError> {
        self.write(Write::Requeue(runs.to_vec().form(0)))
    }

    fn move_and_claim(
        &self,
        transitions: &[Transition],
        claims: Option<&Claims<'_>>,
    ) -> Result<MovedAndClaimed, StoreError> {
        let transitions = transitions.to_vec().form(0);
        let claims = claims.map(|claims| ClaimsMessage::from(claims).form(0));
        self.write(Write::MoveAndClaim { transitions, claims })
    }

    fn clear_processes(&self, run: &Run) -> Result<(), StoreError> {
        self.write(Write::ClearProcesses(run.clone().form(0)))
    }

    fn register_worker(&self, worker: &Worker) -> Result<(), StoreError> {
        self.write(Write::RegisterWorker(worker.clone().form(0)))
    }

    fn renew_worker(&self, id: &WorkerId, expected: &[i64], beat: i64) -> Result<Renewal, StoreError> {
        let worker = id.clone().form(0);
        self.write(Write::RenewWorker { worker, expected: expected.to_vec(), beat })
    }

    fn remove_worker(&self, id: &WorkerId) -> Result<(), StoreError> {
        self.write(Write::RemoveWorker(id.clone().form(0)))
    }

    fn change_auto_run(&self, change: &AutoRunChange<'_>) -> Result<(), StoreError> {
        self.write(Write::ChangeAutoRun(AutoRunMessage::from(change)))
    }

    fn set_priority(&self, request: &RequestId, priority: Priority) -> Result<bool, StoreError> {
        self.write(Write::SetPriority(request.clone().form(0), priority.form(0)))
    }

    fn prune(&self, before_unix_micros: i64) -> Result<Vec<Removed>, StoreError> {
        self.write(Write::Prune(before_unix_micros))
    }

    fn import(&self, import: &Import<'_>) -> Result<Imported, StoreError> {
        let filling = HttpFilling::begin(self)?;
        let imported = fill(import, &filling, &self.address())?;
        filling.commit().map(|()| imported)
    }

    fn moved_to(&self) -> Result<Option<String>, StoreError> {
        self.ask(RunCall::MovedTo)
    }

    fn set_moved_to(&self, to: Option<&str>) -> Result<(), StoreError> {
        self.ask(RunCall::SetMovedTo(to.map(ToOwned::to_owned)))
    }

    fn keep_output(&self, changes: &[OutputChange<'_>]) -> Result<(), StoreError> {
        let changes = changes.iter().map(|change| OutputMessage::from(change).form(0));
        self.ask(RunCall::KeepOutput(changes.collect()))
    }

    /// Nothing is left to do: the server waits for the disk before it answers.
    fn sync(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn subscribe(&self) -> Result<Box<dyn ChangeSignal>, StoreError> {
        let waker = self.leases.changes()?;
        let reader = waker.as_fd().try_clone_to_owned().map_err(|source| StoreError::Io {
            action: "listen to changes of",
            address: self.address(),
            source,
        })?;
        Ok(Box::new(HttpChanges { reader, waker: Mutex::new(waker) }))
    }

    fn examine(&self, thorough: bool) -> Result<Examination, StoreError> {
        let flaws = self.ask(RunCall::Examine { thorough })?;
        Ok(Examination { backend: "lockkeeper serve".to_owned(), flaws, ..Examination::default() })
    }

    fn address(&self) -> String {
        self.leases.address().to_owned()
    }
}

/// The changes of the folder, which the server reports.
struct HttpChanges {
    /// That of the waker, for which the waker need not be locked.
    reader: OwnedFd,
    waker: Mutex<Box<dyn Waker>>,
}

impl ChangeSignal for HttpChanges {
    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.reader.as_fd())
    }

    fn drain(&self) {
        let _ = self.waker.lock().unwrap_or_else(PoisonError::into_inner).receive();
    }
}
