//! `group acquire|try|release|exec|path`: taking a lock and giving it back.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use lockkeeper::KeeperError;
use lockkeeper_core::time::format_span;
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_formats::group::{Folders, GroupLock, Survey, WaitOptions};
use lockkeeper_platform::exec::{Next, Spec, StartError, start};
use lockkeeper_platform::flock::Waited;
use lockkeeper_platform::holder_process;
use lockkeeper_platform::signal::{Signal, Signals};
use lockkeeper_platform::wall_clock::epoch_seconds;
use serde_json::{Value, json};

use super::super::context::Context;
use super::super::{print, table};
use super::{group_id, setting, tell_registry, tell_where};

/// A wait is told of after this long.
const TELL_AFTER: Duration = Duration::from_secs(2);
pub(super) const DEFAULT_TIMEOUT: u64 = 300;

#[derive(clap::Args)]
pub(super) struct DescriptorArgs {
    /// The group, such as impl-backend
    #[arg(value_name = "GROUP")]
    group: String,
    /// The caller's open descriptor of the lock file; it carries the lock
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..))]
    fd: i32,
    /// The process that stands for the lock in the registry [default: the one that opened the descriptor]
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
}

#[derive(clap::Args)]
pub(super) struct AcquireArgs {
    #[command(flatten)]
    descriptor: DescriptorArgs,
    /// Wait at most this long [default: LOCK_TIMEOUT, else 300]
    #[arg(long, value_name = "S")]
    timeout: Option<String>,
}

#[derive(clap::Args)]
pub(super) struct ExecArgs {
    /// The group, such as impl-backend
    #[arg(value_name = "GROUP")]
    group: String,
    /// Wait at most this long [default: LOCK_TIMEOUT, else 300]
    #[arg(long, value_name = "S")]
    timeout: Option<String>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

#[derive(clap::Args)]
pub(super) struct PathArgs {
    /// The group, such as impl-backend
    #[arg(value_name = "GROUP")]
    group: String,
}

pub(super) fn path(context: &Context, folders: &Folders, args: &PathArgs) -> Result<Exit, Report> {
    let lock = GroupLock::open(folders, &group_id(&args.group)?)?;
    tell_where(&lock);
    match context.json {
        true => print::json(&json!({ "group": args.group, "path": lock.path() })),
        false => print::data(&lock.path().display().to_string()),
    }
    Ok(Exit::Done)
}

pub(super) fn acquire(context: &Context, folders: &Folders, args: &AcquireArgs) -> Result<Exit, Report> {
    let timeout = setting(args.timeout.as_deref(), "LOCK_TIMEOUT", DEFAULT_TIMEOUT)?;
    let mut lock = open(folders, &args.descriptor)?;
    let pid = stands_for(&lock, args.descriptor.pid)?;
    match obtain(&mut lock, folders, timeout, pid)? {
        Obtained::Locked => {
            taken(context, &lock, pid, Some(args.descriptor.fd));
            Ok(Exit::Done)
        }
        Obtained::Interrupted(signal) => Ok(print::interrupted(signal)),
    }
}

pub(super) fn try_acquire(
    context: &Context,
    folders: &Folders,
    args: &DescriptorArgs,
) -> Result<Exit, Report> {
    let mut lock = open(folders, args)?;
    let pid = stands_for(&lock, args.pid)?;
    if !lock.try_acquire(folders)? {
        let message = format!("refused: group {} is held by {}", lock.group(), held_by(&lock));
        return Err(Report::new(Exit::Refused, "LOCK_HELD", message)
            .with_hint("wait for it with `group acquire`")
            .with_context("group", args.group.as_str())
            .with_context("holders", holders(&lock)));
    }
    tell_registry(lock.register(pid, epoch_seconds()));
    taken(context, &lock, pid, Some(args.fd));
    Ok(Exit::Done)
}

pub(super) fn release(context: &Context, folders: &Folders, args: &DescriptorArgs) -> Result<Exit, Report> {
    let lock = GroupLock::on_descriptor(folders, &group_id(&args.group)?, args.fd)?;
    if !lock.is_ours()? {
        let message = format!("descriptor {} does not hold the lock of group {}", args.fd, args.group);
        return Err(Report::new(Exit::Refused, "NOT_HELD", message)
            .with_hint(
                "only the descriptor that took it gives it back: `lockkeeper group status` shows the holder",
            )
            .with_context("holders", holders(&lock)));
    }
    let pid = stands_for(&lock, args.pid)?;
    let unwritten = lock.release(pid, epoch_seconds())?;
    tell_registry(unwritten.map_or(Ok(()), Err));
    if context.json {
        print::json(&json!({ "status": "released", "group": args.group, "pid": pid, "fd": args.fd }));
    }
    Ok(Exit::Done)
}

pub(super) fn exec(folders: &Folders, args: ExecArgs) -> Result<Exit, Report> {
    let timeout = setting(args.timeout.as_deref(), "LOCK_TIMEOUT", DEFAULT_TIMEOUT)?;
    let mut lock = GroupLock::open(folders, &group_id(&args.group)?)?;
    tell_where(&lock);
    let pid = std::process::id();
    match obtain(&mut lock, folders, timeout, pid)? {
        Obtained::Locked => {}
        Obtained::Interrupted(signal) => return Ok(print::interrupted(signal)),
    }
    let mut command = args.command.into_iter();
    let program = command.next().unwrap_or_default();
    let spec = Spec { program, args: command.collect(), ..Spec::default() };
    // The command has a share in the lock: if this wrapper is killed, it lasts until the command is gone.
    let shared = lock.inheritable()?;
    let started = start(&spec, None);
    drop(shared);
    let ending = match started {
        Ok(running) => running.supervise(&[], &mut |_| Next::Wait).map_err(|error| {
            Report::of(Exit::Failed, "SUPERVISION_FAILED", &error)
                .with_hint("the command may still run; it has the lock while it does")
        }),
        Err(error) => Err(not_started(&error)),
    };
    if matches!(&ending, Err(report) if report.exit() == Exit::Failed) {
        return ending.map(|_| Exit::Failed);
    }
    match lock.release(pid, epoch_seconds()) {
        Ok(unwritten) => tell_registry(unwritten.map_or(Ok(()), Err)),
        // The end of this process frees it all the same.
        Err(error) => print::report(&Report::from(error), false),
    }
    ending.map(print::pass_on)
}

enum Obtained {
    Locked,
    Interrupted(Signal),
}

/// Waits for the lock and writes what became of it into the registry.
fn obtain(lock: &mut GroupLock, folders: &Folders, timeout: Duration, pid: u32) -> Result<Obtained, Report> {
    let signals = Signals::receive(&[Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT])
        .map_err(KeeperError::Machine)?;
    let since = epoch_seconds();
    let patience = WaitOptions {
        until: Instant::now().checked_add(timeout),
        interrupts: &[signals.as_fd()],
        after: (TELL_AFTER, &mut |lock: &GroupLock| {
            print::talk(&format!("waiting for group {}, held by {}", lock.group(), held_by(lock)));
            warn_of_circle(folders, lock);
        }),
    };
    match lock.acquire(folders, patience)? {
        Waited::Locked => {
            tell_registry(lock.register(pid, epoch_seconds()));
            Ok(Obtained::Locked)
        }
        Waited::Interrupted => {
            let taken = signals.take().map_err(KeeperError::Machine)?;
            Ok(Obtained::Interrupted(taken.first().copied().unwrap_or(Signal::TERM)))
        }
        Waited::TimedOut => {
            tell_registry(lock.register_timeout(pid, since, epoch_seconds()));
            let message = format!(
                "timeout: group {} was held by {} for all of {}",
                lock.group(),
                held_by(lock),
                format_span(timeout)
            );
            Err(Report::new(Exit::Refused, "LOCK_TIMEOUT", message)
                .with_hint(
                    "try again later, or look with `lockkeeper group status` and `lockkeeper group check-deadlock`",
                )
                .with_context("group", lock.group().as_str())
                .with_context("holders", holders(lock)))
        }
    }
}

/// Whoever closes a circle waits last, and so sees all of it.
fn warn_of_circle(folders: &Folders, lock: &GroupLock) {
    let circles = Survey::take(folders, epoch_seconds()).map(|survey| survey.cycles()).unwrap_or_default();
    let ours = circles.iter().find(|circle| circle.iter().any(|group| group == lock.group().as_str()));
    if let Some(circle) = ours {
        print::talk(&format!("warning: deadlock: {}", table::plain(&super::care::describe(circle))));
    }
}

fn open(folders: &Folders, args: &DescriptorArgs) -> Result<GroupLock, Report> {
    let lock = GroupLock::on_descriptor(folders, &group_id(&args.group)?, args.fd)?;
    tell_where(&lock);
    Ok(lock)
}

/// Whose number goes into the registry: this command is gone a moment later.
fn stands_for(lock: &GroupLock, named: Option<u32>) -> Result<u32, Report> {
    if named.is_none()
        && let Some(pid) = lock.opener()
    {
        return Ok(pid);
    }
    let chosen = holder_process::choose(named, &|name| std::env::var(name).ok())?;
    Ok(chosen.map_or_else(parent, |chosen| chosen.process.pid))
}

fn parent() -> u32 {
    std::os::unix::process::parent_id()
}

fn taken(context: &Context, lock: &GroupLock, pid: u32, fd: Option<i32>) {
    if context.json {
        let group = lock.group().as_str();
        print::json(
            &json!({ "status": "acquired", "group": group, "path": lock.path(), "pid": pid, "fd": fd }),
        );
    }
}

fn held_by(lock: &GroupLock) -> String {
    table::plain(&lock.held_by())
}

fn holders(lock: &GroupLock) -> Vec<Value> {
    lock.lock_holders().holders.iter().map(super::status::locker).collect()
}

fn not_started(error: &StartError) -> Report {
    let hint = match error {
        StartError::NotFound { .. } => "check the spelling and PATH; the command comes after `--`",
        StartError::CannotExecute { .. } => "is it executable? try: chmod +x",
        StartError::Other { .. } => "the lock was given back",
    };
    Report::of(Exit::Command(error.exit_code()), "COMMAND_NOT_STARTED", error).with_hint(hint)
}
