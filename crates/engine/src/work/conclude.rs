//! The end of a run: said once, kept, and told.

use std::thread;
use std::time::Duration;

use lockkeeper_core::record::Lease;
use lockkeeper_core::request::Request;
use lockkeeper_core::run::life::{self, Lost, Seen};
use lockkeeper_core::run::{Run, Stamp, Status};

use super::files::LockFiles;
use super::take::{Line, with_request};
use super::{Executor, Job, Told};
use crate::runs::{RunError, advance, terms};
use lockkeeper_store::StoreError;
use lockkeeper_store::runs::{Tables, now};

/// How long to wait before the store is tried again that could not be written.
pub(super) const STORE_PAUSES: [Duration; 4] =
    [Duration::from_millis(100), Duration::from_millis(500), Duration::from_secs(2), Duration::from_secs(5)];

/// A run whose command is over, and what was seen of that.
#[derive(Debug)]
pub struct Done {
    pub(super) run: Run,
    pub(super) request: Request,
    pub(super) lease: Option<Lease>,
    pub(super) files: LockFiles,
    pub(super) end: End,
    /// When that was.
    pub(super) ended_at: Stamp,
}

impl Done {
    /// The run as it was when it was taken.
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// A run that was found, and what was seen of it.
    pub(super) fn found(run: Run, request: Request, seen: Seen) -> Self {
        Self::plain(run, request, End::Seen(seen))
    }

    /// A run that was said to be over before its processes were ended.
    pub(super) fn said(run: Run, request: Request) -> Self {
        Self::plain(run, request, End::Said)
    }

    /// A run that was taken and will not begin here.
    pub(super) fn not_begun(job: Job) -> Self {
        Self::plain(job.run, job.request, End::NotBegun)
    }

    fn plain(run: Run, request: Request, end: End) -> Self {
        Self { run, request, lease: None, files: LockFiles::default(), end, ended_at: now() }
    }
}

#[derive(Debug)]
pub(super) enum End {
    /// To be said.
    Seen(Seen),
    /// It was said before the command was ended.
    Said,
    /// The command has not begun: the run is given back.
    NotBegun,
    /// Somebody else has the run.
    NotOurs,
}

impl Executor {
    /// Says how a run ended, gives back what it held, and takes the next one in the same transaction if it may.
    ///
    /// A store that cannot be written is tried again for as long as it takes: what was seen is known to nobody else.
    pub fn conclude(&self, done: Done, line: Option<&mut Line>) -> Result<Option<Job>, RunError> {
        let mut line = line;
        let life = line.as_deref_mut().and_then(|line| match self.next_life(line) {
            Ok(life) => Some(life),
            Err(error) => {
                // The end has to be said in any case; the next run can wait.
                self.trouble(format!("cannot take another run: {error}"));
                None
            }
        });
        let mut again = false;
        let (ended, next) = self.insist(&format!("note the end of {}", done.run.id), || {
            // What failed before may have been only that the disk was not told.
            let claimed_before = std::mem::replace(&mut again, true);
            self.runs.store().write(|tables| {
                let ended = self.say_end(tables, &done)?;
                let Some(life) = life else { return Ok((ended, None)) };
                let known = if claimed_before { tables.run_of_holder(life.holder())? } else { None };
                let next = match known {
                    Some(run) => with_request(tables, Some(run))?,
                    None => self.claim_first(tables, life)?,
                };
                Ok((ended, next))
            })
        });
        self.give_back(&done);
        if let Err(error) = done.files.release() {
            self.trouble(format!("cannot release the lock files of {}: {error}", done.run.id));
        }
        self.leave(&done.run);
        match ended {
            Some(run) => {
                self.write_stage(&run, done.lease.as_ref());
                let waits = run.waits_for_retry();
                let told = if waits { Told::Retrying(run) } else { Told::Ended(run) };
                self.tell(&told, Some(&done.request));
            }
            None => self.tell(&Told::Superseded(done.run), None),
        }
        Ok(next.map(|(run, request)| {
            let life = line.and_then(Line::take_life);
            Job { run, request, life, lease: None, files: LockFiles::default() }
        }))
    }

    /// Does something to the store until it works: what is not written now is known to nobody else.
    pub(super) fn insist<T>(&self, what: &str, mut act: impl FnMut() -> Result<T, StoreError>) -> T {
        let mut pauses = STORE_PAUSES.iter();
        loop {
            match act() {
                Ok(done) => return done,
                Err(error) => {
                    self.trouble(format!("cannot {what}: {error}; trying again"));
                    thread::sleep(*pauses.next().unwrap_or(&STORE_PAUSES[3]));
                }
            }
        }
    }

    /// None when somebody else has the run by now.
    pub(super) fn say_end(&self, tables: &Tables<'_>, done: &Done) -> Result<Option<Run>, StoreError> {
        let claim = done.run.claim;
        let tables = &tables.at(done.ended_at);
        // Mostly nothing happened to the record since the claim, and it need not be read again.
        if let End::Seen(seen @ Seen::Ended(_)) = &done.end
            && let Ok(moved) =
                life::finish(&done.run, claim, seen.clone(), terms(&done.request), tables.now())
            && tables.advance(&done.run, &moved)?
        {
            return Ok(Some(moved.run));
        }
        let Some(run) = tables.run(&done.run.id)?.filter(|run| run.claim == claim) else {
            return Ok(None);
        };
        let run = Run { started_at: done.run.started_at, ..run };
        let settle = |run: &Run| {
            let settled = life::settle(run);
            tables.settle(run, &settled).map(|_| Some(settled))
        };
        match &done.end {
            End::NotOurs => Ok(None),
            // It was said before, and only the disk was not told.
            End::Seen(_) | End::NotBegun if run.waits_for_retry() => Ok(Some(run)),
            End::Said => settle(&run),
            End::NotBegun => match life::give_back(&run, claim, tables.now()) {
                Ok(moved) => advance(tables, &run, moved).map(Some),
                Err(Lost::Status(_)) => settle(&run),
                Err(Lost::Claim { .. } | Lost::NotDue | Lost::Nobody) => Ok(None),
            },
            End::Seen(seen) => {
                // A worker that was told to stop ends its commands even when nobody called them off.
                let run = match seen {
                    Seen::Stopped(_) if run.status == Status::Running => {
                        match life::cancel(&run, tables.now(), Some("the worker was stopped".to_owned())) {
                            Ok(moved) => advance(tables, &run, moved)?,
                            Err(_) => run,
                        }
                    }
                    _ => run,
                };
                match life::finish(&run, claim, seen.clone(), terms(&done.request), tables.now()) {
                    Ok(moved) => advance(tables, &run, moved).map(Some),
                    // Its time was up in the same moment: that was said already.
                    Err(Lost::Status(_)) => settle(&run),
                    Err(Lost::Claim { .. } | Lost::NotDue | Lost::Nobody) => Ok(None),
                }
            }
        }
    }

    /// What could not be ended keeps the lease, by the kernel lock that it shares.
    fn give_back(&self, done: &Done) {
        let Some((lease, token)) = done.run.lease else { return };
        if done.run.process.is_some_and(|process| !self.others_of(process.holder).is_empty()) {
            return;
        }
        // The end of its processes frees it all the same.
        if let Err(error) = self.leases.release(lease, Some(token)) {
            self.trouble(format!("cannot release the lease of {}: {error}", done.run.id));
        }
    }
}
