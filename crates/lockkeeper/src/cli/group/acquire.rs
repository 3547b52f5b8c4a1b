//! `group acquire|try|release|exec|path`: acquires and releases the lock of a group.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use lockkeeper_core::time::format_span;
use lockkeeper_engine::open::OpenError;
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_formats::group::{Folders, GroupLock, Survey, WaitOptions};
use lockkeeper_platform::exec::{Next, Running, Spec, start};
use lockkeeper_platform::flock::{Sharing, Waited};
use lockkeeper_platform::holder_process;
use lockkeeper_platform::signal::{Signal, Signals};
use lockkeeper_platform::wall_clock::epoch_seconds;
use serde_json::{Value, json};

use super::{group_id, setting, warn_of_fallback, warn_of_registry};
use crate::cli::context::Context;
use crate::cli::{print, table};

/// A wait that takes longer is reported to the user.
const REPORT_AFTER: Duration = Duration::from_secs(2);
pub(super) const DEFAULT_TIMEOUT: u64 = 300;

#[derive(clap::Args)]
pub(super) struct DescriptorArgs {
    /// The group, such as impl-backend
    #[arg(value_name = "GROUP")]
    group: String,
    /// The caller's open descriptor of the lock file; the lock belongs to it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..))]
    fd: i32,
    /// The process to write into the registry [default: the one that opened the descriptor]
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
}

/// Who else may have the lock at the same time.
#[derive(clap::Args)]
pub(super) struct SharingArgs {
    /// Share the lock with others that share it, as `flock -s` does
    #[arg(long)]
    shared: bool,
}

impl SharingArgs {
    fn sharing(&self) -> Sharing {
        if self.shared { Sharing::Shared } else { Sharing::Exclusive }
    }
}

#[derive(clap::Args)]
pub(super) struct TryArgs {
    #[command(flatten)]
    descriptor: DescriptorArgs,
    #[command(flatten)]
    sharing: SharingArgs,
}

#[derive(clap::Args)]
pub(super) struct AcquireArgs {
    #[command(flatten)]
    descriptor: DescriptorArgs,
    #[command(flatten)]
    sharing: SharingArgs,
    /// Wait at most this long [default: LOCK_TIMEOUT, else 300]
    #[arg(long, value_name = "S")]
    timeout: Option<String>,
}

#[derive(clap::Args)]
pub(super) struct ReleaseArgs {
    #[command(flatten)]
    descriptor: DescriptorArgs,
    /// Do not unlock: the caller closes the descriptor next. The lock lasts until every process that inherited it has ended
    #[arg(long)]
    on_close: bool,
}

#[derive(clap::Args)]
pub(super) struct ExecArgs {
    /// The group, such as impl-backend
    #[arg(value_name = "GROUP")]
    group: String,
    /// Wait at most this long [default: LOCK_TIMEOUT, else 300]
    #[arg(long, value_name = "S")]
    timeout: Option<String>,
    #[command(flatten)]
    sharing: SharingArgs,
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
    warn_of_fallback(context, &lock);
    match context.json {
        true => print::json(&json!({ "group": args.group, "path": lock.path() })),
        false => print::data(&lock.path().display().to_string()),
    }
    Ok(Exit::Done)
}

pub(super) fn acquire(context: &Context, folders: &Folders, args: &AcquireArgs) -> Result<Exit, Report> {
    let timeout = setting(args.timeout.as_deref(), "LOCK_TIMEOUT", DEFAULT_TIMEOUT)?;
    let mut lock = open(context, folders, &args.descriptor)?.sharing(args.sharing.sharing());
    let pid = registered_pid(&lock, args.descriptor.pid)?;
    match obtain(context, &mut lock, folders, timeout, pid)? {
        Obtained::Locked => {
            warn_of_registry(context, lock.register(pid, epoch_seconds()));
            print_acquired(context, &lock, pid, Some(args.descriptor.fd));
            Ok(Exit::Done)
        }
        Obtained::Interrupted(signal) => Ok(print::interrupted(signal)),
    }
}

pub(super) fn try_acquire(context: &Context, folders: &Folders, args: &TryArgs) -> Result<Exit, Report> {
    let TryArgs { descriptor: args, sharing } = args;
    let mut lock = open(context, folders, args)?.sharing(sharing.sharing());
    let pid = registered_pid(&lock, args.pid)?;
    if !lock.try_acquire(folders)? {
        let message = format!("refused: group {} is held by {}", lock.group(), held_by(&lock));
        return Err(Report::new(Exit::Refused, "LOCK_HELD", message)
            .with_hint("wait for it with `group acquire`")
            .with_context("group", args.group.as_str())
            .with_context("holders", holders(&lock)));
    }
    warn_of_registry(context, lock.register(pid, epoch_seconds()));
    print_acquired(context, &lock, pid, Some(args.fd));
    Ok(Exit::Done)
}

pub(super) fn release(context: &Context, folders: &Folders, args: &ReleaseArgs) -> Result<Exit, Report> {
    let DescriptorArgs { group, fd, pid } = &args.descriptor;
    let lock = GroupLock::on_descriptor(folders, &group_id(group)?, *fd)?;
    if !lock.is_ours()? {
        let message = format!("descriptor {fd} does not hold the lock of group {group}");
        return Err(Report::new(Exit::Refused, "NOT_HELD", message)
            .with_hint(
                "only the descriptor that acquired a lock can release it: `lockkeeper group status` shows the holder",
            )
            .with_context("holders", holders(&lock)));
    }
    let pid = registered_pid(&lock, *pid)?;
    let mut status = "released";
    if args.on_close {
        let (left, written) = lock.release_on_close(pid, parent(), epoch_seconds());
        warn_of_registry(context, written);
        if let Some(holder) = left.first() {
            status = "held";
            let (pid, fd) = (holder.process.pid.to_string(), fd.to_string());
            let command = table::plain(&holder.command);
            let values = [("group", group.as_str()), ("pid", &pid), ("command", &command), ("fd", &fd)];
            print::talk(&context.say("group.stays", &values));
        }
    } else {
        let unwritten = lock.release(pid, epoch_seconds())?;
        warn_of_registry(context, unwritten.map_or(Ok(()), Err));
    }
    if context.json {
        print::json(&json!({ "status": status, "group": group, "pid": pid, "fd": fd }));
    }
    Ok(Exit::Done)
}

pub(super) fn exec(context: &Context, folders: &Folders, args: ExecArgs) -> Result<Exit, Report> {
    let timeout = setting(args.timeout.as_deref(), "LOCK_TIMEOUT", DEFAULT_TIMEOUT)?;
    let mut lock = GroupLock::open(folders, &group_id(&args.group)?)?.sharing(args.sharing.sharing());
    warn_of_fallback(context, &lock);
    match obtain(context, &mut lock, folders, timeout, std::process::id())? {
        Obtained::Locked => {}
        Obtained::Interrupted(signal) => return Ok(print::interrupted(signal)),
    }
    let mut command = args.command.into_iter();
    let program = command.next().unwrap_or_default();
    let spec = Spec { program, args: command.collect(), ..Spec::default() };
    // The command inherits the lock. If this process is killed, the lock lasts until the command ends.
    let shared = lock.inheritable()?;
    let started = start(&spec, None);
    drop(shared);
    // Not this process: the shell scripts remove the lock of a process that is dead, and the command goes on if this one is killed.
    let pid = started.as_ref().map_or_else(|_| std::process::id(), Running::pid);
    warn_of_registry(context, lock.register(pid, epoch_seconds()));
    let ending = match started {
        Ok(running) => running.supervise(&[], &mut |_| Next::Wait).map_err(|error| {
            Report::of(Exit::Failed, "SUPERVISION_FAILED", &error)
                .with_hint("the command may still run; it holds the lock while it does")
        }),
        Err(error) => Err(print::not_started(&error, "the lock was released")),
    };
    if matches!(&ending, Err(report) if report.exit() == Exit::Failed) {
        return ending.map(|_| Exit::Failed);
    }
    match lock.release(pid, epoch_seconds()) {
        Ok(unwritten) => warn_of_registry(context, unwritten.map_or(Ok(()), Err)),
        // The end of this process frees the lock.
        Err(error) => print::report(&Report::from(error), false, context.language()),
    }
    ending.map(print::pass_on)
}

enum Obtained {
    Locked,
    Interrupted(Signal),
}

/// Waits for the lock. A wait that timed out is written into the registry; the caller registers a lock that it got.
fn obtain(
    context: &Context,
    lock: &mut GroupLock,
    folders: &Folders,
    timeout: Duration,
    pid: u32,
) -> Result<Obtained, Report> {
    let signals = Signals::receive(&[Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT])
        .map_err(OpenError::Machine)?;
    let since = epoch_seconds();
    let patience = WaitOptions {
        until: Instant::now().checked_add(timeout),
        interrupts: &[signals.as_fd()],
        after: (REPORT_AFTER, &mut |lock: &GroupLock| {
            let values = [("group", lock.group().as_str()), ("holder", &held_by(lock))];
            print::talk(&context.say("group.waiting", &values));
            warn_of_deadlock(context, folders, lock);
        }),
    };
    match lock.acquire(folders, patience)? {
        Waited::Locked => Ok(Obtained::Locked),
        Waited::Interrupted => {
            let taken = signals.take().map_err(OpenError::Machine)?;
            Ok(Obtained::Interrupted(taken.first().copied().unwrap_or(Signal::TERM)))
        }
        Waited::TimedOut => {
            warn_of_registry(context, lock.register_timeout(pid, since, epoch_seconds()));
            let message = format!(
                "timeout: group {} was held by {} for {}",
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

/// Warns if this wait is part of a deadlock. The last process of the cycle that begins to wait sees all of it.
fn warn_of_deadlock(context: &Context, folders: &Folders, lock: &GroupLock) {
    let cycles = Survey::take(folders, epoch_seconds()).map(|survey| survey.cycles()).unwrap_or_default();
    let own = cycles.iter().find(|cycle| cycle.iter().any(|group| group == lock.group().as_str()));
    if let Some(cycle) = own {
        let cycle = table::plain(&super::recovery::describe(cycle));
        print::talk(&context.say("group.deadlock", &[("cycle", &cycle)]));
    }
}

fn open(context: &Context, folders: &Folders, args: &DescriptorArgs) -> Result<GroupLock, Report> {
    let lock = GroupLock::on_descriptor(folders, &group_id(&args.group)?, args.fd)?;
    warn_of_fallback(context, &lock);
    Ok(lock)
}

/// The process id for the registry. It is not this command, which ends at once.
fn registered_pid(lock: &GroupLock, named: Option<u32>) -> Result<u32, Report> {
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

fn print_acquired(context: &Context, lock: &GroupLock, pid: u32, fd: Option<i32>) {
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
