//! `session-guardian`: the process beside a holder on a store that several machines share. If the holder is killed, it renews the
//! holder's sessions until the commands are gone. Not for people.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use lockkeeper_core::id::{HolderId, LeaseId};
use lockkeeper_core::liveness::{ProcessRef, Voucher};
use lockkeeper_core::record::Lease;
use lockkeeper_engine::Engine;
use lockkeeper_engine::open::{OpenError, open_leases};
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_engine::runs::Runs;
use lockkeeper_engine::session_guardian::OrphanedCommand;
use lockkeeper_engine::shared_store::SharedStore;
use lockkeeper_engine::work::{Orphans, Settings, Worker};
use lockkeeper_platform::process;

use super::context::{Context, Globals};
use super::obtain::grace;
use super::{Verb, task};

/// How soon a store that cannot be reached is tried again.
const RETRY: Duration = Duration::from_millis(500);

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
    /// The number of the liveness lock that its command shares
    #[arg(long)]
    holder: Option<u64>,
}

impl Verb for Args {
    const NAME: &'static str = "session-guardian";

    fn run(self, globals: &Globals) -> Result<Exit, Report> {
        let mut word = Vec::new();
        // The holder writes a byte when it has released its leases. If it is killed, the pipe is closed without that byte.
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
        let command = match (&context.location.shared, self.holder) {
            (Some(store), Some(holder)) => {
                Some(OrphanedCommand::new(store, HolderId(holder), grace(&context)))
            }
            _ => None,
        };
        let location = context.location.clone();
        let begin = move || {
            let (runs, leases) = (Runs::at(&location)?, open_leases(&location)?);
            Worker::begin(runs, leases, settings.clone(), 0, None, Box::new(|_| {}))
        };
        let (is_kept, kept) = channel();
        thread::scope(|scope| {
            if let Some(orphans) = orphans {
                scope.spawn(|| orphans.rescue(begin));
            }
            if let Some(command) = command {
                scope.spawn(move || command.stop_unless_kept(&kept));
            }
            let engine = open(&context)?;
            engine.guard_sessions_of(process, self.lease, grace(&context), || drop(is_kept));
            Ok::<(), Report>(())
        })?;
        Ok(Exit::Done)
    }
}

/// Opens the store, and tries it again for as long as a session may last.
fn open(context: &Context) -> Result<Engine, Report> {
    let span = context.location.shared.as_ref().map_or(Duration::ZERO, SharedStore::session);
    let until = Instant::now() + span;
    loop {
        match context.engine() {
            Err(_) if Instant::now() < until => thread::sleep(RETRY),
            opened => return opened,
        }
    }
}

/// The guardian of this process. If it is dropped without [`SessionGuardian::dismiss`], the guardian acts.
pub(super) struct SessionGuardian {
    word: ChildStdin,
}

impl SessionGuardian {
    /// Starts the guardian of this process. None if the store belongs to this machine alone.
    /// `holder` is the number of the liveness lock that its command will share, if there is only one.
    pub(super) fn start(context: &Context, holder: Option<HolderId>) -> Result<Option<Self>, Report> {
        Ok(Spawner::of(context).map(|spawner| spawner.start(holder)).transpose()?)
    }

    /// Keeps the guardian until this process ends, however it ends.
    pub(super) fn stay(self) {
        std::mem::forget(self.word);
    }

    /// Ends the guardian. Call it after the leases are released.
    pub(super) fn dismiss(mut self) {
        // The write fails if the guardian has already ended.
        let _ = std::io::Write::write_all(&mut self.word, b".");
    }
}

/// Starts a guardian that renews the lease of another process from now on: a shell that holds it by `acquire` cannot renew it.
pub(super) fn keep_for_its_process(context: &Context, lease: &Lease) -> Result<(), Report> {
    if let (Some(_), Voucher::Process(process)) = (lease.claim.session(), lease.claim.proof.voucher)
        && let Some(spawner) = Spawner::of(context)
    {
        spawner.spawn(process, Some(lease.id), None).map_err(OpenError::Machine)?;
    }
    Ok(())
}

/// Starts guardians, also for a thread that has no context.
pub(super) struct Spawner {
    /// The guardian has to use the same store and state folder, also if a flag or a file named them.
    variables: Vec<(&'static str, OsString)>,
}

impl Spawner {
    /// None if the store belongs to this machine alone.
    pub(super) fn of(context: &Context) -> Option<Self> {
        context.location.shared.as_ref()?;
        let state = &context.location.state;
        let settings = context.config.settings().iter();
        let mut variables: Vec<(&'static str, OsString)> = settings
            .filter_map(|setting| {
                let value = match (setting.key, setting.value.as_deref()?) {
                    // The folder in the setting may be relative to the project. The guardian would look for it elsewhere.
                    ("runs", folder) if folder.starts_with("sqlite:") => {
                        [OsStr::new("sqlite:"), state.as_os_str()].into_iter().collect()
                    }
                    (_, value) => value.into(),
                };
                Some((setting.shared_store_variable()?, value))
            })
            .collect();
        variables.push(("LOCKKEEPER_DIR", state.clone().into()));
        Some(Self { variables })
    }

    /// Starts the guardian of this process.
    pub(super) fn start(&self, holder: Option<HolderId>) -> Result<SessionGuardian, OpenError> {
        let this = process::current().map_err(OpenError::Machine)?;
        let mut child = self.spawn(this, None, holder).map_err(OpenError::Machine)?;
        let word = child.stdin.take().ok_or_else(|| OpenError::Machine(io::ErrorKind::BrokenPipe.into()))?;
        Ok(SessionGuardian { word })
    }

    fn spawn(
        &self,
        process: ProcessRef,
        lease: Option<LeaseId>,
        holder: Option<HolderId>,
    ) -> io::Result<Child> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("session-guardian").arg(process.pid.to_string()).arg(process.started.to_string());
        if let Some(lease) = lease {
            command.arg("--lease").arg(lease.to_string());
        }
        if let Some(holder) = holder {
            command.arg("--holder").arg(holder.0.to_string());
        }
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        // In its own process group, so that a signal for the job of the holder does not reach the guardian.
        command.process_group(0).stdin(if lease.is_some() { Stdio::null() } else { Stdio::piped() });
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()
    }
}
