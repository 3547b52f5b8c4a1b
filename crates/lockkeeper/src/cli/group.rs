//! `group`: flock locks on groups with their registry, as shell scripts know them.

mod care;
mod hold;
mod monitor;
mod status;

use std::time::Duration;

use clap::Subcommand;
use lockkeeper_core::time::parse_span;
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_formats::group::{FallbackReason, Folders, GroupId, GroupLock};

pub(super) use monitor::Monitor;

use super::Verb;
use super::context::{Context, Globals};
use super::print;

/// Lock groups with flock files and their registry, together with shell scripts
#[derive(clap::Args)]
#[command(
    after_help = "The lock is flock(2) on $LOCK_DIR/GROUP.lock [default: /tmp/ce_locks], so flock(1) on that \
    file excludes us and we it.\nShell functions acquire_lock, release_lock and others: eval \"$(lockkeeper shell-init)\"\n\n\
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
    /// Lock the file that the caller has open as a descriptor; wait for it
    Acquire(hold::AcquireArgs),
    /// The same without waiting
    Try(hold::DescriptorArgs),
    /// Give it back
    Release(hold::DescriptorArgs),
    /// Hold the lock while a command runs
    Exec(hold::ExecArgs),
    /// Print where the lock file of a group is, and make it if it is missing
    Path(hold::PathArgs),
    /// Show who holds and who waits, by the registry and by the kernel
    Status,
    /// Look for holders that wait for each other, and clean up those that died long ago; exit 75 if there are any
    CheckDeadlock,
    /// Mark the lines of dead holders in the registry
    Cleanup,
    /// Strike every lock off the registry, whoever holds it
    ForceReleaseAll(care::ForceArgs),
    /// Look for deadlocks now and then, in the background
    #[command(subcommand)]
    Monitor(monitor::Command),
}

impl Verb for Args {
    const NAME: &'static str = "group";

    fn run(self, globals: &Globals) -> Result<Exit, Report> {
        run(&Context::new(globals)?, self)
    }
}

fn run(context: &Context, args: Args) -> Result<Exit, Report> {
    let folders = Folders::from_variables(&|name| std::env::var_os(name));
    match args.command {
        Command::Acquire(args) => hold::acquire(context, &folders, &args),
        Command::Try(args) => hold::try_acquire(context, &folders, &args),
        Command::Release(args) => hold::release(context, &folders, &args),
        Command::Exec(args) => hold::exec(&folders, args),
        Command::Path(args) => hold::path(context, &folders, &args),
        Command::Status => status::run(context, &folders),
        Command::CheckDeadlock => care::check_deadlock(context, &folders),
        Command::Cleanup => care::clean_up(context, &folders),
        Command::ForceReleaseAll(args) => care::force_release_all(context, &folders, &args),
        Command::Monitor(command) => monitor::run(context, &folders, &command),
    }
}

fn group_id(text: &str) -> Result<GroupId, Report> {
    text.parse().map_err(Report::from)
}

/// A span from a flag, else from an environment variable, else the default.
/// How old a lock may become before it is worth a warning.
pub(super) fn max_lock_age() -> Result<Duration, Report> {
    setting(None, "MAX_LOCK_AGE", care::DEFAULT_MAX_AGE)
}

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

/// Says loudly that the lock is not where everybody expects it.
fn tell_where(lock: &GroupLock) {
    match lock.fallback() {
        Some(FallbackReason::CannotCreate(why)) => print::talk(&format!(
            "warning: {}; the lock of group {} is {} instead, from now on and for every command of this user",
            one_line(&Report::of(Exit::Failed, "FALLBACK", why)),
            lock.group(),
            lock.path().display()
        )),
        Some(FallbackReason::InUse) => print::talk(&format!(
            "warning: the lock of group {} is {}, since LOCK_DIR could not hold it before; \
             remove that file while nobody uses the group to go back",
            lock.group(),
            lock.path().display()
        )),
        None => {}
    }
}

/// The registry tells of locks but does not make them: a failure there is told, not suffered.
fn tell_registry<E: Into<Report>>(written: Result<(), E>) {
    if let Err(error) = written {
        let report: Report = error.into();
        print::talk(&format!("warning: the registry was not written: {}", one_line(&report)));
    }
}

/// A failure that is told in passing.
fn one_line(report: &Report) -> String {
    report.to_string().replace("\n  caused by: ", ": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requirements 105, 106, 115.
    #[test]
    fn the_documents_defaults_hold_where_nothing_is_set() {
        let spans = [hold::DEFAULT_TIMEOUT, care::DEFAULT_MAX_AGE, monitor::DEFAULT_INTERVAL]
            .map(|default| setting(None, "LOCKKEEPER_NOBODY_SETS_THIS", default).unwrap().as_secs());
        assert_eq!(spans, [300, 600, 60]);
        assert_eq!(setting(Some("1.5"), "X", 300).unwrap(), Duration::from_millis(1_500));
        assert!(setting(Some("-1"), "X", 300).is_err());
    }
}
