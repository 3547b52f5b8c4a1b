//! `session-guardian`: the process beside a holder on a store that several machines share. If the holder is killed, it renews the
//! holder's sessions until the commands are gone. Not for people.

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
        // The holder writes a byte when it has released its leases. If it is killed, the pipe is closed without that byte.
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
    /// Starts the guardian of this process. None if the store belongs to this machine alone.
    pub(super) fn start(context: &Context) -> Result<Option<Self>, Report> {
        if context.location.shared.is_none() {
            return Ok(None);
        }
        let this = process::current().map_err(OpenError::Machine)?;
        let mut child = spawn(context, this, None)?;
        Ok(child.stdin.take().map(|word| Self { word }))
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
    // The guardian has to use the same store, also if a flag or a file named it.
    for setting in context.config.settings() {
        if let (Some(variable), Some(value)) = (setting.shared_store_variable(), &setting.value) {
            command.env(variable, value);
        }
    }
    // In its own process group, so that a signal for the job of the holder does not reach the guardian.
    command.process_group(0).stdin(if lease.is_some() { Stdio::null() } else { Stdio::piped() });
    command.stdout(Stdio::null()).stderr(Stdio::null());
    Ok(command.spawn().map_err(OpenError::Machine)?)
}
