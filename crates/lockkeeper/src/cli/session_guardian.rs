//! `session-guardian`: the process that stands beside a holder on a store that several machines share. Not for people.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;

use lockkeeper_core::id::LeaseId;
use lockkeeper_core::liveness::{ProcessRef, Voucher};
use lockkeeper_core::record::Lease;
use lockkeeper_engine::open::{OpenError, open_leases};
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_engine::runs::Runs;
use lockkeeper_engine::work::{Orphans, Settings, Worker};
use lockkeeper_platform::process;

use super::context::{Context, Globals};
use super::obtain::grace;
use super::{Verb, task};

/// Keep the sessions of a process that was killed until its commands are gone
#[derive(clap::Args)]
#[command(hide = true)]
pub(super) struct Args {
    /// The process
    pid: u32,
    /// When it started
    started: u64,
    /// Keep this lease from now on, and not all of them after its end: it cannot do that itself
    #[arg(long)]
    lease: Option<LeaseId>,
}

impl Verb for Args {
    const NAME: &'static str = "session-guardian";

    fn run(self, globals: &Globals) -> Result<Exit, Report> {
        let mut word = Vec::new();
        // The holder writes a word when all is done. If it is killed, the pipe ends without one.
        if self.lease.is_none() && std::io::stdin().read_to_end(&mut word).is_ok_and(|length| length > 0) {
            return Ok(Exit::Done);
        }
        let process = ProcessRef { pid: self.pid, started: self.started };
        let context = Context::new(globals)?;
        let orphans = match self.lease {
            None => Orphans::of(process, &context.location.state, grace(&context)),
            Some(_) => None,
        };
        let settings =
            Settings { grace: grace(&context), swarm: Some(task::swarm()?), ..Settings::default() };
        let location = context.location.clone();
        let begin = move || {
            let (runs, leases) = (Runs::at(&location)?, open_leases(&location)?);
            Worker::begin(runs, leases, settings.clone(), 0, None, Box::new(|_| {}))
        };
        thread::scope(|scope| {
            if let Some(orphans) = orphans {
                scope.spawn(|| orphans.look_after(begin));
            }
            context.engine().map(|engine| engine.guard_sessions_of(process, self.lease))
        })?;
        Ok(Exit::Done)
    }
}

/// The guardian of this process. If it is dropped without [`SessionGuardian::dismiss`], the guardian acts.
pub(super) struct SessionGuardian {
    word: ChildStdin,
}

impl SessionGuardian {
    /// Starts the guardian of this process. None where the store is of this machine alone.
    pub(super) fn start(context: &Context) -> Result<Option<Self>, Report> {
        Ok(Spawner::of(context).map(|spawner| spawner.start()).transpose()?)
    }

    /// The guardian stays until this process ends, however it ends.
    pub(super) fn stay(self) {
        std::mem::forget(self.word);
    }

    /// The leases are released: there is nothing left to keep.
    pub(super) fn dismiss(mut self) {
        // A guardian that is gone needs no word.
        let _ = std::io::Write::write_all(&mut self.word, b".");
    }
}

/// Starts a guardian that keeps a lease of another process from now on: of a shell that holds it by `acquire`.
pub(super) fn keep_for_its_process(context: &Context, lease: &Lease) -> Result<(), Report> {
    if let (Some(_), Voucher::Process(process)) = (lease.claim.session(), lease.claim.proof.voucher)
        && let Some(spawner) = Spawner::of(context)
    {
        spawner.spawn(process, Some(lease.id)).map_err(OpenError::Machine)?;
    }
    Ok(())
}

/// Starts guardians, also for a thread that has no context.
pub(super) struct Spawner {
    /// The same store and state folder, wherever their settings came from.
    variables: Vec<(&'static str, OsString)>,
}

impl Spawner {
    /// None where the store is of this machine alone.
    pub(super) fn of(context: &Context) -> Option<Self> {
        context.location.shared.as_ref()?;
        let settings = context.config.settings().iter();
        let mut variables: Vec<(&'static str, OsString)> = settings
            .filter_map(|setting| Some((setting.shared_store_variable()?, setting.value.clone()?.into())))
            .collect();
        variables.push(("LOCKKEEPER_DIR", context.location.state.clone().into()));
        Some(Self { variables })
    }

    /// Starts the guardian of this process.
    pub(super) fn start(&self) -> Result<SessionGuardian, OpenError> {
        let this = process::current().map_err(OpenError::Machine)?;
        let mut child = self.spawn(this, None).map_err(OpenError::Machine)?;
        let word = child.stdin.take().ok_or_else(|| OpenError::Machine(io::ErrorKind::BrokenPipe.into()))?;
        Ok(SessionGuardian { word })
    }

    fn spawn(&self, process: ProcessRef, lease: Option<LeaseId>) -> io::Result<Child> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("session-guardian").arg(process.pid.to_string()).arg(process.started.to_string());
        if let Some(lease) = lease {
            command.arg("--lease").arg(lease.to_string());
        }
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        // A signal for the job of the holder is not for the guardian.
        command.process_group(0).stdin(if lease.is_some() { Stdio::null() } else { Stdio::piped() });
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()
    }
}
