//! Checks of the machine: its processes, its clock, and its limits.

use std::time::Duration;

use lockkeeper_core::time::format_span;
use rustix::process::{Resource, getrlimit};

use super::Visit;
use super::finding::Finding;
use super::formats::sprint_started_at;
use lockkeeper_platform::changes::Changes;
use lockkeeper_platform::process::Watch;
use lockkeeper_platform::wall_clock::WallTime;
use lockkeeper_platform::{origin, process};

/// Clocks of one machine and its files differ by less.
const SLACK: Duration = Duration::from_secs(5);
/// A clock that shows less was never set: this program is younger. The first moment of 2025.
const OLDEST: WallTime = WallTime::from_micros(1_735_689_600_000_000);
/// A holder of many locks, its command and the store need some dozens.
const FEW_DESCRIPTORS: u64 = 256;

pub(super) fn processes(_: &Visit<'_>) -> Finding {
    let fix = "mount the process table of this pid namespace: mount -t proc proc /proc";
    if let Err(error) = origin::origin() {
        return Finding::fail(format!("cannot tell this machine and its boot: {error}"), fix);
    }
    match process::current().map(process::watch) {
        Ok(Watch::Exit(_)) => Finding::pass("by number and start time; ends are told at once"),
        Ok(Watch::Gone | Watch::Unavailable) => {
            Finding::pass("by number and start time; ends are noticed by looking now and then")
        }
        Err(error) => {
            Finding::fail(format!("this process does not find itself in the process table: {error}"), fix)
        }
    }
}

pub(super) fn clock(visit: &Visit<'_>) -> Finding {
    if visit.site.now < OLDEST {
        return Finding::warn(format!("the clock shows {}", visit.site.now), "set the clock");
    }
    let ahead = records(visit).into_iter().map(|(what, at)| (at.since(visit.site.now), what));
    let worst = ahead.filter(|(lead, _)| *lead > SLACK).max();
    match worst {
        None => Finding::pass(format!("it shows {}, and no record is later", visit.site.now)),
        Some((lead, what)) => {
            let lead = format_span(lead);
            let detail = format!("{what} is dated {lead} ahead of the clock: such locks end that much later");
            Finding::warn(detail, "set the clock; if it is right, the record's writer had a wrong one")
        }
    }
}

/// When each record of a format that counts by the wall clock was written, as it says itself.
fn records(visit: &Visit<'_>) -> Vec<(String, WallTime)> {
    let mut dates = Vec::new();
    for (task, found) in visit.tasks().unwrap_or_default() {
        let record = found.as_ref().ok().and_then(|standing| standing.record.as_ref());
        dates.extend(record.map(|record| (format!("the lock of task {task}"), record.heartbeat_at)));
    }
    for (subject, found) in visit.requests().unwrap_or_default() {
        let record = found.as_ref().ok().and_then(|standing| standing.record.as_ref());
        dates.extend(record.map(|record| (format!("the lock of {subject}"), record.created_at)));
    }
    let groups = visit.survey().map(|survey| survey.groups.as_slice()).unwrap_or_default();
    for line in groups.iter().flat_map(|group| &group.findings) {
        let at = WallTime::from_micros(line.entry.since.saturating_mul(1_000_000));
        dates.push((format!("the lock of group {}", line.entry.group), at));
    }
    dates.extend(sprint_started_at(visit).map(|at| ("the sprint lock".to_owned(), at)));
    dates
}

pub(super) fn file_watching(visit: &Visit<'_>) -> Finding {
    match Changes::probe(visit.ground()) {
        Ok(()) => Finding::pass("one more folder can be listened to"),
        Err(error) => Finding::warn(
            format!(
                "this user cannot listen to one more folder: {error}; live views look now and then instead"
            ),
            "raise fs.inotify.max_user_instances and fs.inotify.max_user_watches with sysctl, or end other listeners",
        ),
    }
}

pub(super) fn descriptors(_: &Visit<'_>) -> Finding {
    match getrlimit(Resource::Nofile).current {
        Some(limit) if limit < FEW_DESCRIPTORS => Finding::warn(
            format!("a process may have {limit} files open; each waiting and holding takes some"),
            format!("ulimit -n {FEW_DESCRIPTORS} or more, before lockkeeper is started"),
        ),
        Some(limit) => Finding::pass(format!("a process may have {limit} files open")),
        None => Finding::pass("a process may have any number of files open"),
    }
}
