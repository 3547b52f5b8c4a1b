//! A job slot: what a thread that executes one run after the other keeps between them.

use std::io;
use std::sync::Arc;

use lockkeeper_core::id::RunId;

use super::AttemptContext;
use super::reusable_log::ReusableLog;
use crate::work::control::WakePipe;
use lockkeeper_platform::exec::{GuardianLine, ProgramCache};

/// The slot of one thread.
pub(in crate::work) struct Slot {
    /// From 1; none for a thread that executes a single run.
    pub(super) number: Option<u32>,
    /// Wakes the thread.
    pub(in crate::work) pipe: Arc<WakePipe>,
    /// Where programs were found.
    pub(super) programs: ProgramCache,
    /// The log that runs of this slot use until they write something.
    pub(super) log: Option<ReusableLog>,
    /// The connection to the guardian, once a command was started.
    connection: Option<Arc<GuardianLine>>,
    /// Whether the last command was over at once: then the next one probably is, too.
    pub(super) was_short: bool,
}

impl Slot {
    pub(in crate::work) fn new(number: Option<u32>) -> io::Result<Self> {
        let pipe = Arc::new(WakePipe::new()?);
        Ok(Self {
            number,
            pipe,
            programs: ProgramCache::default(),
            log: None,
            connection: None,
            was_short: false,
        })
    }

    /// A connection to the guardian, over which the next command is started. None if this process has to start it.
    pub(super) fn connection(&mut self, context: &AttemptContext) -> Option<Arc<GuardianLine>> {
        if self.connection.as_ref().is_none_or(|one| !one.is_free()) {
            self.connection = context.guardian.connect(&context.start_records);
        }
        self.connection.clone()
    }

    /// The log of the slot, for this run. It is made if it is not there. None when the run should have its own log: the
    /// command before took long, or the thread executes a single run.
    pub(super) fn take_log(
        &mut self,
        context: &AttemptContext,
        run: &RunId,
    ) -> Option<io::Result<ReusableLog>> {
        let number = self.number.filter(|_| self.was_short)?;
        if let Some(log) = self.log.take_if(|log| log.assign(run).is_ok()) {
            return Some(Ok(log));
        }
        let made = ReusableLog::make(&context.state, &context.worker, number);
        Some(made.and_then(|log| log.assign(run).map(|()| log)))
    }
}
