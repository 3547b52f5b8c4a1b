//! Checks of the machine: process table, clock, inotify and descriptor limits.

use std::time::Duration;

use lockkeeper_core::time::format_span;
use lockkeeper_platform::changes::Changes;
use lockkeeper_platform::process::Watch;
use lockkeeper_platform::wall_clock::WallTime;
use lockkeeper_platform::{origin, process};
use rustix::process::{Resource, getrlimit};

use super::Context;
use super::finding::Finding;
use super::formats::sprint_started_at;

/// A record may be this far ahead of the clock without a warning.
const TOLERANCE: Duration = Duration::from_secs(5);
/// A clock before this time was never set: the program did not exist then. The start of 2025.
const EARLIEST: WallTime = WallTime::from_micros(1_735_689_600_000_000);
/// A process with fewer descriptors gets a warning. A holder of many locks needs some dozens.
const FEW_DESCRIPTORS: u64 = 256;

pub(super) fn processes(_: &Context<'_>) -> Finding {
    let fix = "mount the process table of this pid namespace: mount -t proc proc /proc";
    if let Err(error) = origin::origin() {
        return Finding::fail(format!("cannot identify this machine and its boot: {error}"), fix);
    }
    match process::current().map(process::watch) {
        Ok(Watch::Exit(_)) => {
            Finding::pass("by pid and start time; the kernel reports the end of a process at once")
        }
        Ok(Watch::Gone | Watch::Unavailable) => {
            Finding::pass("by pid and start time; the end of a process is found by polling")
        }
        Err(error) => {
            Finding::fail(format!("this process does not find itself in the process table: {error}"), fix)
        }
    }
}

pub(super) fn clock(context: &Context<'_>) -> Finding {
    if context.inputs.now < EARLIEST {
        return Finding::warn(format!("the clock shows {}", context.inputs.now), "set the clock");
    }
    let ahead = records(context).into_iter().map(|(what, at)| (at.since(context.inputs.now), what));
    let worst = ahead.filter(|(lead, _)| *lead > TOLERANCE).max();
    match worst {
        None => Finding::pass(format!("the clock shows {}, and no record is later", context.inputs.now)),
        Some((lead, what)) => {
            let lead = format_span(lead);
            let detail = format!("{what} is dated {lead} ahead of the clock: such locks end that much later");
            Finding::warn(detail, "set the clock; if it is right, the record's writer had a wrong one")
        }
    }
}

/// The times in all records that are dated by the wall clock, with a name for each.
fn records(context: &Context<'_>) -> Vec<(String, WallTime)> {
    let mut dates = Vec::new();
    for (task, found) in context.tasks().unwrap_or_default() {
        let record = found.as_ref().ok().and_then(|standing| standing.record.as_ref());
        dates.extend(record.map(|record| (format!("the lock of task {task}"), record.heartbeat_at)));
    }
    for (subject, found) in context.requests().unwrap_or_default() {
        let record = found.as_ref().ok().and_then(|standing| standing.record.as_ref());
        dates.extend(record.map(|record| (format!("the lock of {subject}"), record.created_at)));
    }
    let groups = context.survey().map(|survey| survey.groups.as_slice()).unwrap_or_default();
    for line in groups.iter().flat_map(|group| &group.findings) {
        let at = WallTime::from_micros(line.entry.since.saturating_mul(1_000_000));
        dates.push((format!("the lock of group {}", line.entry.group), at));
    }
    dates.extend(sprint_started_at(context).map(|at| ("the sprint lock".to_owned(), at)));
    dates
}

pub(super) fn file_watching(context: &Context<'_>) -> Finding {
    match Changes::probe(context.existing_folder()) {
        Ok(()) => Finding::pass("one more folder can be watched"),
        Err(error) => Finding::warn(
            format!("this user cannot watch one more folder: {error}; live views poll instead"),
            "raise fs.inotify.max_user_instances and fs.inotify.max_user_watches with sysctl, or end other programs that watch files",
        ),
    }
}

pub(super) fn descriptors(_: &Context<'_>) -> Finding {
    match getrlimit(Resource::Nofile).current {
        Some(limit) if limit < FEW_DESCRIPTORS => Finding::warn(
            format!("a process may have {limit} files open; each wait and each held lock needs some"),
            format!("ulimit -n {FEW_DESCRIPTORS} or more, before lockkeeper is started"),
        ),
        Some(limit) => Finding::pass(format!("a process may have {limit} files open")),
        None => Finding::pass("a process may have any number of files open"),
    }
}
