//! Executing runs.
//!
//! An [`Executor`] takes a run, holds what it needs, executes its command and says how that ended. A [`Crew`] is an
//! executor with several pairs of hands that works through the queue.
//!
//! What a crash leaves behind is enough to go on from, at every step:
//!
//! 1. The lease is taken first, for a kernel lock that only this run's processes will share. Dying here frees it.
//! 2. The claim names that kernel lock. Whoever finds the run later can ask the kernel whether any process of it
//!    lives, even if the command was started and nobody had the time to note its number.
//! 3. The disk knows before the command begins that it may have: by the claim, or because the run was named.
//!    No power cut makes a run that has begun one that has not.
//! 4. The command writes to its log by itself: it does not notice that its worker died.
//! 5. The end is one compare-and-set with the claim's number. It is told, and the lease is released, when it is on the
//!    disk.

mod attendant;
mod batch;
mod command;
mod conclude;
mod crew;
mod doubt;
mod execute;
mod files;
mod hand;
mod heart;
mod output;
mod recover;
mod scribe;
mod take;
mod tell;

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use heart::Pulse;
use lockkeeper_core::id::{RunId, WorkerId};
use lockkeeper_core::run::Run;

pub use attendant::Attendant;
pub(in crate::engine) use command::RUN_ID;
pub use conclude::Done;
pub use crew::{Crew, Orders};
pub(in crate::engine) use take::why;
pub use take::{Job, Line, Taken};
pub use tell::{Teller, Told};

use super::Engine;
use super::runs::{RunError, Runs, new_id};
use crate::lockfile::aiflow::Aiflow;
use crate::lockfile::swarm::Swarm;
use crate::platform::liveness_lock::LivenessLock;
use crate::platform::{pipe, process, random, tree};
use crate::status::StatusLog;
use crate::store::runs::{Worker, now};

/// How commands are executed.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How long a command may take to end by itself after it was asked to.
    pub grace: Duration,
    /// How many bytes of a command's output are kept at most.
    pub output_limit: u64,
    /// How often a worker that executes something says that it lives; after three times without, others replace it.
    pub heartbeat: Duration,
    /// What commands are told besides their own environment: names and values.
    pub variables: Vec<(String, String)>,
    /// Where requests are locked in files as well, so that other programs which do that are kept out.
    pub aiflow: Option<Aiflow>,
    /// Where tasks of a swarm are locked in files, if a request is one.
    pub swarm: Option<Swarm>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            grace: Duration::from_secs(10),
            output_limit: 256 * 1024 * 1024,
            heartbeat: Duration::from_secs(10),
            variables: Vec::new(),
            aiflow: None,
            swarm: None,
        }
    }
}

/// Executes runs, one for each thread that asks it to.
pub struct Executor {
    runs: Runs,
    leases: Engine,
    worker: Worker,
    settings: Settings,
    /// Says that this process lives, for as long as it does.
    _life: LivenessLock,
    /// Those that are being executed here, from their start until their end was said.
    controls: Mutex<HashMap<RunId, Arc<Control>>>,
    pulse: Pulse,
    status: Option<StatusLog>,
    teller: Box<Teller>,
}

impl Executor {
    /// Begins to be a worker that others can see, for so many runs at once.
    pub fn begin(
        runs: Runs,
        leases: Engine,
        settings: Settings,
        jobs: u32,
        status: Option<StatusLog>,
        teller: Box<Teller>,
    ) -> Result<Self, RunError> {
        tree::become_subreaper().map_err(RunError::Machine)?;
        let holder = random::holder_id().map_err(RunError::Machine)?;
        let life = leases.probe().liveness_file().hold(holder).map_err(RunError::Machine)?;
        let started_at = now().unix_micros;
        let worker = Worker {
            id: new_id::<WorkerId>("W", started_at)?,
            holder,
            origin: leases.probe().origin().clone(),
            process: process::current().map_err(RunError::Machine)?,
            jobs,
            started_at,
        };
        runs.store().note(|tables| tables.insert_worker(&worker))?;
        let pulse = Pulse::new(&runs, &worker.id, settings.heartbeat).map_err(RunError::Machine)?;
        heart::sweep(&runs)?;
        hand::sweep(&runs)?;
        runs.store().sweep_ahead_files()?;
        let controls = Mutex::new(HashMap::new());
        let executor = Self { runs, leases, worker, settings, _life: life, controls, pulse, status, teller };
        executor.end_doubts()?;
        Ok(executor)
    }

    /// Who this worker is.
    pub fn worker(&self) -> &WorkerId {
        &self.worker.id
    }

    /// Requests and runs.
    pub fn runs(&self) -> &Runs {
        &self.runs
    }

    /// The worker as others see it.
    pub(in crate::engine) fn record(&self) -> &Worker {
        &self.worker
    }

    /// Leases.
    pub fn leases(&self) -> &Engine {
        &self.leases
    }

    /// How long a command may take to end by itself.
    pub(in crate::engine) fn grace(&self) -> Duration {
        self.settings.grace
    }

    /// How many runs are being executed here.
    pub fn busy(&self) -> usize {
        locked(&self.controls).len()
    }

    /// Whoever executes the run is reached through `pipe`, or through one of its own, from the first call on.
    fn enter(&self, run: &Run, pipe: Option<&Arc<Pipe>>) -> io::Result<Arc<Control>> {
        if let Some(known) = locked(&self.controls).get(&run.id).filter(|known| known.claim == run.claim) {
            return Ok(Arc::clone(known));
        }
        let pipe = pipe.map_or_else(|| Pipe::new().map(Arc::new), |pipe| Ok(Arc::clone(pipe)))?;
        let control = Arc::new(Control { claim: run.claim, asked: AtomicU8::new(Ask::Nothing as u8), pipe });
        locked(&self.controls).insert(run.id.clone(), Arc::clone(&control));
        Ok(control)
    }

    /// The next attempt may have been taken here in the meantime: that one stays.
    fn leave(&self, run: &Run) {
        let mut controls = locked(&self.controls);
        if controls.get(&run.id).is_some_and(|control| control.claim == run.claim) {
            controls.remove(&run.id);
        }
    }

    /// Ends everything that is executed here.
    fn ask_everyone(&self, ask: Ask) {
        locked(&self.controls).values().for_each(|control| control.ask(ask));
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        // If they stay, others find out by themselves that nobody is behind them.
        let _ = self.runs.store().remove_ahead_file(&self.worker.id);
        let _ = self.runs.store().note(|tables| tables.remove_worker(&self.worker.id));
        heart::forget(&self.runs, &self.worker.id);
        hand::forget(&self.runs, &self.worker.id);
    }
}

/// What may be asked of the thread that executes a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Ask {
    /// Nothing.
    Nothing = 0,
    /// To end the command: the run was called off.
    Cancel = 1,
    /// To end the command: somebody outside said that the run is over.
    Over = 2,
    /// To end the command and say nothing: somebody else has the run.
    LetGo = 3,
}

/// Wakes a thread that executes runs.
#[derive(Debug)]
struct Pipe {
    reader: OwnedFd,
    writer: OwnedFd,
}

impl Pipe {
    fn new() -> io::Result<Self> {
        pipe::nonblocking().map(|(reader, writer)| Self { reader, writer })
    }
}

/// How a thread that executes a run is reached.
#[derive(Debug)]
struct Control {
    /// Which claim of the run it is for.
    claim: u64,
    asked: AtomicU8,
    /// It may have been for another run of the same thread before: what is in it only means that there is a look to
    /// be taken.
    pipe: Arc<Pipe>,
}

impl Control {
    fn ask(&self, ask: Ask) {
        self.asked.fetch_max(ask as u8, Ordering::SeqCst);
        // A pipe that is full is heard as well.
        let _ = rustix::io::write(&self.pipe.writer, b"!");
    }

    /// What was asked, and quiet again.
    fn asked(&self) -> Ask {
        let mut bytes = [0; 64];
        while matches!(rustix::io::read(&self.pipe.reader, &mut bytes), Ok(read) if read > 0) {}
        self.was_asked()
    }

    /// What was asked.
    fn was_asked(&self) -> Ask {
        match self.asked.load(Ordering::SeqCst) {
            0 => Ask::Nothing,
            1 => Ask::Cancel,
            2 => Ask::Over,
            _ => Ask::LetGo,
        }
    }
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.reader.as_fd()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
