//! `session-guardian`: the process that stands beside a holder on a store that several machines share. Not for people.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};

use lockkeeper_core::id::LeaseId;
use lockkeeper_core::liveness::{ProcessRef, Voucher};
use lockkeeper_core::record::Lease;
use lockkeeper_engine::open::OpenError;
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_platform::process;

use super::Verb;
use super::context::{Context, Globals};

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
        let engine = Context::new(globals)?.engine()?;
        engine.guard_sessions_of(process, self.lease);
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
        if context.location.shared.is_none() {
            return Ok(None);
        }
        let this = process::current().map_err(OpenError::Machine)?;
        let mut child = spawn(context, this, None)?;
        Ok(child.stdin.take().map(|word| Self { word }))
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
    if let (Some(_), Voucher::Process(process)) = (lease.claim.session(), lease.claim.proof.voucher) {
        spawn(context, process, Some(lease.id))?;
    }
    Ok(())
}

fn spawn(context: &Context, process: ProcessRef, lease: Option<LeaseId>) -> Result<Child, Report> {
    let program = std::env::current_exe().map_err(OpenError::Machine)?;
    let mut command = Command::new(program);
    command.arg("session-guardian").arg(process.pid.to_string()).arg(process.started.to_string());
    if let Some(lease) = lease {
        command.arg("--lease").arg(lease.to_string());
    }
    // The same store, wherever its settings came from.
    for setting in context.config.settings() {
        if let (Some(variable), Some(value)) = (setting.shared_store_variable(), &setting.value) {
            command.env(variable, value);
        }
    }
    // A signal for the job of the holder is not for the guardian.
    command.process_group(0).stdin(if lease.is_some() { Stdio::null() } else { Stdio::piped() });
    command.stdout(Stdio::null()).stderr(Stdio::null());
    Ok(command.spawn().map_err(OpenError::Machine)?)
}
