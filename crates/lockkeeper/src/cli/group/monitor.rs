//! `group monitor`: one background process that looks for deadlocks now and then.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command as Process, Stdio};
use std::sync::Arc;
use std::time::Duration;

use clap::Subcommand;
use lockkeeper::KeeperError;
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_formats::group::{Folders, MonitorLock};
use lockkeeper_platform::process::Watch;
use lockkeeper_platform::signal::{Signal, Signals};
use lockkeeper_platform::tree::{Root, Stop, stop_tree};
use lockkeeper_platform::wall_clock::ClockOffset;
use lockkeeper_platform::{clock, poll, process};
use serde_json::json;

use super::super::context::Context;
use super::super::print;
use super::{care, setting};

/// How people find it with `ps`.
const NAME: &str = "deadlock_monitor";
pub(super) const DEFAULT_INTERVAL: u64 = 60;
const LOG: &str = "deadlock_monitor.log";
/// The log of the background process is begun anew beyond this.
const MAX_LOG: u64 = 64 * 1024;
/// It ends at once when it is asked to; this is for a machine under load.
const GRACE: Duration = Duration::from_secs(10);

#[derive(Subcommand)]
pub(super) enum Command {
    /// Start it in the background; there is at most one for a lock folder
    Start(Every),
    /// End it
    Stop,
    /// Be it, in the foreground, until Ctrl-C
    Run(Every),
}

#[derive(clap::Args)]
pub(super) struct Every {
    /// How often to look [default: DEADLOCK_CHECK_INTERVAL, else 60]
    #[arg(long, value_name = "S")]
    interval: Option<String>,
    /// End with this process
    #[arg(long, value_name = "PID", hide = true)]
    along_with: Option<u32>,
}

impl Every {
    fn span(&self) -> Result<Duration, Report> {
        let span = setting(self.interval.as_deref(), "DEADLOCK_CHECK_INTERVAL", DEFAULT_INTERVAL)?;
        if span.is_zero() {
            return Err(
                Report::usage("an interval of zero would never rest").with_hint("give a second or more")
            );
        }
        Ok(span)
    }
}

pub(super) fn run(context: &Context, folders: &Folders, command: &Command) -> Result<Exit, Report> {
    match command {
        Command::Start(every) => start(context, folders, every),
        Command::Stop => stop(context, folders),
        Command::Run(every) => be(folders, every),
    }
}

fn start(context: &Context, folders: &Folders, every: &Every) -> Result<Exit, Report> {
    let interval = every.span()?;
    let Some(mut lock) = MonitorLock::take(folders)? else {
        let pid = MonitorLock::holder(folders)?.map(|holder| holder.process.pid);
        tell(context, "running", pid, "it runs already");
        return Ok(Exit::Done);
    };
    let child = spawn(folders, &mut lock, interval, &[])?;
    tell(context, "started", Some(child.id()), "started");
    Ok(Exit::Done)
}

fn spawn(
    folders: &Folders,
    lock: &mut MonitorLock,
    interval: Duration,
    more: &[String],
) -> Result<Child, Report> {
    let failed = |error: std::io::Error| {
        Report::of(Exit::Failed, "MONITOR_NOT_STARTED", &error)
            .with_hint("`lockkeeper group monitor run` shows what is wrong")
    };
    let log = open_log(folders).map_err(failed)?;
    let mut process = Process::new(std::env::current_exe().map_err(failed)?);
    process
        .arg0(NAME)
        .args(["group", "monitor", "run", "--interval", &format!("{}ms", interval.as_millis())])
        .args(more)
        // The lock itself is handed over, so there is no moment without it.
        .stdin(Stdio::from(lock.share()?))
        .stdout(log.try_clone().map_err(failed)?)
        .stderr(log);
    let child = process.spawn().map_err(failed)?;
    lock.sign(child.id())?;
    Ok(child)
}

/// The monitor that a run of stages brings along, for as long as it takes.
pub(in crate::cli) struct Monitor {
    child: Option<Child>,
}

impl Monitor {
    /// Starts it, unless there is one, or nobody has a lock folder that it could look at. A run does without it if it
    /// has to: its own leases need none.
    pub(in crate::cli) fn begin() -> Self {
        let folders = Folders::from_variables(&|name| std::env::var_os(name));
        let start = || -> Result<Option<Child>, Report> {
            let Some(mut lock) = MonitorLock::take(&folders)? else { return Ok(None) };
            let interval = Every { interval: None, along_with: None }.span()?;
            let more = ["--along-with".to_owned(), std::process::id().to_string()];
            spawn(&folders, &mut lock, interval, &more).map(Some)
        };
        let child = if folders.existing().is_empty() { Ok(None) } else { start() };
        let child = child.unwrap_or_else(|report| {
            print::talk(&format!("warning: there is no deadlock monitor: {report}"));
            None
        });
        Self { child }
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        let Some(child) = &mut self.child else { return };
        if let Ok(monitor) = process::identify(child.id()) {
            // One that does not end by itself sees that this process has ended.
            let _ = stop_tree(&Stop { root: Root::Process(monitor), grace: GRACE, mark: None });
        }
        let _ = child.wait();
    }
}

fn stop(context: &Context, folders: &Folders) -> Result<Exit, Report> {
    let Some(monitor) = MonitorLock::holder(folders)? else {
        tell(context, "stopped", None, "none runs");
        return Ok(Exit::Done);
    };
    let root = Root::Process(monitor.process);
    let left = stop_tree(&Stop { root, grace: GRACE, mark: None });
    let left = left.map_err(|error| Report::of(Exit::Failed, "MACHINE", &error))?;
    if !left.is_empty() {
        let message = format!("process {} cannot be ended", monitor.process.pid);
        return Err(Report::new(Exit::Failed, "MONITOR_NOT_STOPPED", message)
            .with_hint("is it another user's? then that user has to stop it"));
    }
    tell(context, "stopped", Some(monitor.process.pid), "stopped");
    Ok(Exit::Done)
}

fn be(folders: &Folders, every: &Every) -> Result<Exit, Report> {
    let interval = every.span()?;
    let called = std::env::args_os().next().is_some_and(|name| name == NAME);
    if !called && let Ok(program) = std::env::current_exe() {
        // Only a new start changes what `ps` shows.
        let error = Process::new(program).arg0(NAME).args(std::env::args_os().skip(1)).exec();
        return Err(Report::of(Exit::Failed, "MONITOR_NOT_STARTED", &error));
    }
    let (_lock, in_background) = match MonitorLock::adopt(folders)? {
        Some(lock) => (lock, true),
        None => {
            let mut lock = MonitorLock::take(folders)?.ok_or_else(|| {
                Report::new(Exit::Refused, "MONITOR_RUNS", "a deadlock_monitor runs already")
                    .with_hint("`lockkeeper group monitor stop` ends it")
            })?;
            lock.sign(std::process::id())?;
            (lock, false)
        }
    };
    let signals =
        Signals::receive(&[Signal::INT, Signal::TERM, Signal::HUP]).map_err(KeeperError::Machine)?;
    let owner = every.along_with.map(watch);
    let Some(owner) = owner.map_or(Some(None), |watched| watched.map(Some)) else { return Ok(Exit::Done) };
    if in_background {
        // Out of the reach of the terminal that it was started from; a group's leader cannot, and need not.
        let _ = process::start_session();
    }
    loop {
        match care::look(folders) {
            Ok(checked) => checked.lines().iter().for_each(|line| note(line)),
            Err(report) => note(&report.to_string()),
        }
        // The folder may be gone for good, as after a clean-up of /tmp: then nobody needs us any more.
        if !folders.first().is_dir() {
            note("the lock folder is gone");
            return Ok(Exit::Done);
        }
        let descriptors: Vec<BorrowedFd<'_>> =
            std::iter::once(signals.as_fd()).chain(owner.as_ref().map(AsFd::as_fd)).collect();
        let ready = poll::wait(&descriptors, Some(interval)).map_err(KeeperError::Machine)?;
        if ready.any() {
            return Ok(Exit::Done);
        }
    }
}

/// How to be told of the end of the process that this one is to end with; nothing when it has ended.
fn watch(pid: u32) -> Option<Arc<OwnedFd>> {
    match process::watch(process::identify(pid).ok()?) {
        Watch::Exit(exit) => Some(exit),
        Watch::Gone | Watch::Unavailable => None,
    }
}

fn note(line: &str) {
    let now = clock::now();
    print::talk(&format!("{} {line}", ClockOffset::at(now).utc(now)));
}

fn open_log(folders: &Folders) -> std::io::Result<File> {
    let path = folders.first().join(LOG);
    let large = std::fs::symlink_metadata(&path).is_ok_and(|meta| meta.len() > MAX_LOG);
    let mut options = File::options();
    options.create(true).mode(0o600).custom_flags(lockkeeper_platform::fs::NO_FOLLOW);
    if large {
        options.write(true).truncate(true)
    } else {
        options.append(true)
    };
    options.open(path)
}

fn tell(context: &Context, status: &str, pid: Option<u32>, text: &str) {
    if context.json {
        print::json(&json!({ "status": status, "pid": pid }));
        return;
    }
    match pid {
        Some(pid) => print::talk(&format!("{NAME} {text}: process {pid}")),
        None => print::talk(&format!("{NAME}: {text}")),
    }
}
