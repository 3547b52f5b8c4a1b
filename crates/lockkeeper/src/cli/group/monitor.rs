//! `group monitor`: a background process that checks for deadlocks at an interval.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command as Process, Stdio};
use std::sync::Arc;
use std::time::Duration;

use clap::Subcommand;
use lockkeeper_engine::messages::{Language, Phrases};
use lockkeeper_engine::open::OpenError;
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_formats::group::{Folders, MONITOR, MonitorLock, is_monitor};
use lockkeeper_platform::process::Watch;
use lockkeeper_platform::signal::{Signal, Signals};
use lockkeeper_platform::tree::{Root, Stop, stop_tree};
use lockkeeper_platform::wall_clock::ClockOffset;
use lockkeeper_platform::{clock, poll, process};
use serde_json::json;

use super::{recovery, setting};
use crate::cli::context::Context;
use crate::cli::{print, table};

pub(super) const DEFAULT_INTERVAL: u64 = 60;
const LOG: &str = "deadlock_monitor.log";
/// A larger log is truncated when the monitor starts.
const MAX_LOG: u64 = 64 * 1024;
/// How long the monitor may take to stop. It stops at once, unless the machine is overloaded.
const GRACE: Duration = Duration::from_secs(10);

#[derive(Subcommand)]
pub(super) enum Command {
    /// Start the monitor in the background; a lock folder has at most one
    Start(Every),
    /// Stop the monitor
    Stop,
    /// Run the monitor in the foreground, until Ctrl-C
    Run(Every),
}

#[derive(clap::Args)]
pub(super) struct Every {
    /// The interval between checks [default: DEADLOCK_CHECK_INTERVAL, else 60]
    #[arg(long, value_name = "S")]
    interval: Option<String>,
    /// Stop when this process ends
    #[arg(long, value_name = "PID", hide = true)]
    along_with: Option<u32>,
}

impl Every {
    fn span(&self) -> Result<Duration, Report> {
        let span = setting(self.interval.as_deref(), "DEADLOCK_CHECK_INTERVAL", DEFAULT_INTERVAL)?;
        if span.is_zero() {
            return Err(Report::usage("the interval cannot be zero").with_hint("give a second or more"));
        }
        Ok(span)
    }
}

pub(super) fn run(context: &Context, folders: &Folders, command: &Command) -> Result<Exit, Report> {
    match command {
        Command::Start(every) => start(context, folders, every),
        Command::Stop => stop(context, folders),
        Command::Run(every) => run_monitor(folders, every),
    }
}

fn start(context: &Context, folders: &Folders, every: &Every) -> Result<Exit, Report> {
    let interval = every.span()?;
    let Some(mut lock) = MonitorLock::take(folders)? else {
        let pid = MonitorLock::holder(folders)?.map(|holder| holder.process.pid);
        print_result(context, "running", pid, "group.monitor_runs");
        return Ok(Exit::Done);
    };
    let child = spawn(folders, &mut lock, interval, &[])?;
    print_result(context, "started", Some(child.id()), "group.monitor_started");
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
        .arg0(MONITOR)
        .args(["group", "monitor", "run", "--interval", &format!("{}ms", interval.as_millis())])
        .args(more)
        // The child inherits the lock, so it is never free in between.
        .stdin(Stdio::from(lock.share()?))
        .stdout(log.try_clone().map_err(failed)?)
        .stderr(log);
    let child = process.spawn().map_err(failed)?;
    lock.sign(child.id())?;
    Ok(child)
}

/// The monitor that `stages run` starts, and stops at its end.
pub(in crate::cli) struct Monitor {
    child: Option<Child>,
}

impl Monitor {
    /// Starts the monitor, unless one runs already or no lock folder is named: the folder that all scripts share has their own
    /// monitor. If it cannot be started, the run continues without it: its own leases do not need it.
    pub(in crate::cli) fn begin(context: &Context) -> Self {
        let Some(folders) = super::named_folders(context) else { return Self { child: None } };
        let start = || -> Result<Option<Child>, Report> {
            let Some(mut lock) = MonitorLock::take(&folders)? else { return Ok(None) };
            let interval = Every { interval: None, along_with: None }.span()?;
            let more = ["--along-with".to_owned(), std::process::id().to_string()];
            spawn(&folders, &mut lock, interval, &more).map(Some)
        };
        let child = if folders.existing().is_empty() { Ok(None) } else { start() };
        let child = child.unwrap_or_else(|report| {
            let why = report.to_string().replace("\n  caused by", "");
            print::talk(&context.say("group.monitor_not_started", &[("why", &why)]));
            None
        });
        Self { child }
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        let Some(child) = &mut self.child else { return };
        if let Ok(monitor) = process::identify(child.id()) {
            // If this fails, the monitor stops when it notices the end of this process.
            let _ = stop_tree(&Stop { root: Root::Process(monitor), grace: GRACE, mark: None });
        }
        let _ = child.wait();
    }
}

fn stop(context: &Context, folders: &Folders) -> Result<Exit, Report> {
    let Some(monitor) = MonitorLock::holder(folders)? else {
        print_result(context, "stopped", None, "group.monitor_none");
        return Ok(Exit::Done);
    };
    if !is_monitor(&monitor) {
        let (pid, command) = (monitor.process.pid, table::plain(&monitor.command));
        let message = format!("process {pid} has the file of the monitor locked, and is none: {command}");
        return Err(Report::new(Exit::Failed, "MONITOR_NOT_STOPPED", message)
            .with_hint("nothing was stopped: end this process yourself if it has to end"));
    }
    let root = Root::Process(monitor.process);
    let left = stop_tree(&Stop { root, grace: GRACE, mark: None });
    let left = left.map_err(|error| Report::of(Exit::Failed, "MACHINE", &error))?;
    if !left.is_empty() {
        let message = format!("process {} cannot be ended", monitor.process.pid);
        return Err(Report::new(Exit::Failed, "MONITOR_NOT_STOPPED", message)
            .with_hint("if it belongs to another user, that user has to stop it"));
    }
    print_result(context, "stopped", Some(monitor.process.pid), "group.monitor_stopped");
    Ok(Exit::Done)
}

fn run_monitor(folders: &Folders, every: &Every) -> Result<Exit, Report> {
    let interval = every.span()?;
    let has_name = std::env::args_os().next().is_some_and(|name| name == MONITOR);
    if !has_name && let Ok(program) = std::env::current_exe() {
        // Only `exec` changes the name that `ps` shows.
        let error = Process::new(program).arg0(MONITOR).args(std::env::args_os().skip(1)).exec();
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
    let signals = Signals::receive(&[Signal::INT, Signal::TERM, Signal::HUP]).map_err(OpenError::Machine)?;
    let owner = every.along_with.map(watch);
    let Some(owner) = owner.map_or(Some(None), |watched| watched.map(Some)) else { return Ok(Exit::Done) };
    if in_background {
        // Leaves the session of the terminal. It fails for the leader of a process group, which does not need it.
        let _ = process::start_session();
    }
    // A log is English: it may be read by others than the user who started the monitor.
    let english = Phrases::load(Language::En);
    loop {
        match recovery::check(folders) {
            Ok(checked) => checked.lines(&english).iter().for_each(|line| log(line)),
            Err(report) => log(&report.to_string()),
        }
        // A clean-up of /tmp may remove the folder. Then the monitor is not needed any more.
        if !folders.first().is_dir() {
            log("the lock folder is gone");
            return Ok(Exit::Done);
        }
        let descriptors: Vec<BorrowedFd<'_>> =
            std::iter::once(signals.as_fd()).chain(owner.as_ref().map(AsFd::as_fd)).collect();
        let ready = poll::wait(&descriptors, Some(interval)).map_err(OpenError::Machine)?;
        if ready.any() {
            return Ok(Exit::Done);
        }
    }
}

/// A descriptor that becomes readable when a process ends; none if it has ended already.
fn watch(pid: u32) -> Option<Arc<OwnedFd>> {
    match process::watch(process::identify(pid).ok()?) {
        Watch::Exit(exit) => Some(exit),
        Watch::Gone | Watch::Unavailable => None,
    }
}

/// Prints a line with the time. In the background it goes to the log file.
fn log(line: &str) {
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

fn print_result(context: &Context, status: &str, pid: Option<u32>, phrase: &'static str) {
    if context.json {
        print::json(&json!({ "status": status, "pid": pid }));
        return;
    }
    let pid = pid.map_or_else(|| "?".to_owned(), |pid| pid.to_string());
    print::talk(&context.say(phrase, &[("pid", &pid)]));
}
