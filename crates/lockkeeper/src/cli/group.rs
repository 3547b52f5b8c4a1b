//! `group`: flock locks on groups, with the registry that shell scripts use.

mod acquire;
mod monitor;
mod recovery;
mod status;

use std::time::Duration;

use clap::Subcommand;
use lockkeeper_core::time::parse_span;
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_formats::group::{FallbackReason, Folders, GroupId, GroupLock};

use super::Verb;
use super::context::{Context, Globals};
use super::print;
pub(super) use monitor::Monitor;

/// Lock groups with flock files and their registry, together with shell scripts
#[derive(clap::Args)]
#[command(
    after_help = "The lock is flock(2) on $LOCK_DIR/GROUP.lock [default: /tmp/ce_locks], so flock(1) on that \
    file and this command exclude each other.\nShell functions acquire_lock, release_lock and others: eval \"$(lockkeeper shell-init)\"\n\n\
    Examples:\n  lockkeeper group exec impl-backend -- make api\n  \
    exec 200<>\"$(lockkeeper group path impl-backend)\"; lockkeeper group acquire impl-backend --fd 200\n\n\
    Environment: LOCK_DIR, LOCK_TIMEOUT [300], MAX_LOCK_AGE [600], DEADLOCK_CHECK_INTERVAL [60]"
)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Lock the file that the caller has opened as a descriptor; wait for it
    Acquire(acquire::AcquireArgs),
    /// The same without waiting
    Try(acquire::TryArgs),
    /// Release the lock
    Release(acquire::ReleaseArgs),
    /// Hold the lock while a command runs
    Exec(acquire::ExecArgs),
    /// Print the path of the lock file of a group; create it if it does not exist
    Path(acquire::PathArgs),
    /// Create the lock folder and its registry if they do not exist
    Init,
    /// Show holders and waiters, from the registry and from the kernel
    Status,
    /// Find deadlocks, and clean up locks of processes that died long ago; exit 75 if there is a deadlock
    CheckDeadlock,
    /// Mark the lines of dead processes in the registry
    Cleanup,
    /// Mark every line of the registry as released, also of live processes
    ForceReleaseAll(recovery::ForceArgs),
    /// Look for deadlocks at an interval, in the background
    #[command(subcommand)]
    Monitor(monitor::Command),
}

impl Verb for Args {
    const NAME: &'static str = "group";

    fn run(self, globals: &Globals) -> Result<Exit, Report> {
        run(&Context::without_store(globals)?, self)
    }
}

fn run(context: &Context, args: Args) -> Result<Exit, Report> {
    let folders = folders(context);
    match args.command {
        Command::Acquire(args) => acquire::acquire(context, &folders, &args),
        Command::Try(args) => acquire::try_acquire(context, &folders, &args),
        Command::Release(args) => acquire::release(context, &folders, &args),
        Command::Exec(args) => acquire::exec(context, &folders, args),
        Command::Path(args) => acquire::path(context, &folders, &args),
        Command::Init => {
            folders.create_first()?;
            Ok(Exit::Done)
        }
        Command::Status => status::run(context, &folders),
        Command::CheckDeadlock => recovery::check_deadlock(context, &folders),
        Command::Cleanup => recovery::clean_up(context, &folders),
        Command::ForceReleaseAll(args) => recovery::force_release_all(context, &folders, &args),
        Command::Monitor(command) => monitor::run(context, &folders, &command),
    }
}

/// The lock folder: `LOCK_DIR`, else the setting, else the folder that all scripts share.
pub(super) fn folders(context: &Context) -> Folders {
    Folders::from_variables(&|name| match name {
        "LOCK_DIR" => context.folder("lock_dir").map(Into::into),
        name => std::env::var_os(name),
    })
}

/// The lock folder, if the user or the project names one. The folder that all scripts share would join unrelated repositories.
pub(super) fn named_folders(context: &Context) -> Option<Folders> {
    context.folder("lock_dir").map(|_| folders(context))
}

/// How long to wait for a lock, if `LOCK_TIMEOUT` says so.
pub(super) fn lock_timeout() -> Result<Option<Duration>, Report> {
    let is_set = std::env::var_os("LOCK_TIMEOUT").is_some_and(|value| !value.is_empty());
    is_set.then(|| setting(None, "LOCK_TIMEOUT", acquire::DEFAULT_TIMEOUT)).transpose()
}

fn group_id(text: &str) -> Result<GroupId, Report> {
    text.parse().map_err(Report::from)
}

/// A lock that is older than this gets a warning.
pub(super) fn max_lock_age() -> Result<Duration, Report> {
    setting(None, "MAX_LOCK_AGE", recovery::DEFAULT_MAX_AGE)
}

/// A duration from a flag, else from an environment variable, else the default.
fn setting(flag: Option<&str>, name: &str, default: u64) -> Result<Duration, Report> {
    let variable = std::env::var(name).ok().filter(|text| !text.is_empty());
    match (flag, variable) {
        (Some(text), _) => Ok(parse_span(text)?),
        (None, Some(text)) => parse_span(&text).map_err(|error| {
            Report::usage(format!("{name} is not a duration: {error}")).with_hint(error.hint())
        }),
        (None, None) => Ok(Duration::from_secs(default)),
    }
}

/// Warns if the lock is not in LOCK_DIR.
fn warn_of_fallback(context: &Context, lock: &GroupLock) {
    let (group, path) = (lock.group().as_str(), lock.path().display().to_string());
    match lock.fallback() {
        Some(FallbackReason::CannotCreate(why)) => {
            let why = one_line(&Report::of(Exit::Failed, "FALLBACK", why));
            print::talk(&context.say("group.fallback", &[("why", &why), ("group", group), ("path", &path)]));
        }
        Some(FallbackReason::InUse) => {
            print::talk(&context.say("group.fallback_in_use", &[("group", group), ("path", &path)]));
        }
        None => {}
    }
}

/// Warns if the registry could not be written. The lock does not depend on it.
fn warn_of_registry<E: Into<Report>>(context: &Context, written: Result<(), E>) {
    if let Err(error) = written {
        let report: Report = error.into();
        print::talk(&context.say("group.registry", &[("why", &one_line(&report))]));
    }
}

/// A report in one line, for a warning.
fn one_line(report: &Report) -> String {
    report.to_string().replace("\n  caused by: ", ": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requirements 105, 106, 115.
    #[test]
    fn the_documents_defaults_hold_where_nothing_is_set() {
        let spans = [acquire::DEFAULT_TIMEOUT, recovery::DEFAULT_MAX_AGE, monitor::DEFAULT_INTERVAL]
            .map(|default| setting(None, "LOCKKEEPER_NOBODY_SETS_THIS", default).unwrap().as_secs());
        assert_eq!(spans, [300, 600, 60]);
        assert_eq!(setting(Some("1.5"), "X", 300).unwrap(), Duration::from_millis(1_500));
        assert!(setting(Some("-1"), "X", 300).is_err());
    }
}
