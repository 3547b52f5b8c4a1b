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
use crate::messages::{Sentence, said};

/// A record may be this far ahead of the clock without a warning.
const TOLERANCE: Duration = Duration::from_secs(5);
/// A clock before this time was never set: the program did not exist then. The start of 2025.
const EARLIEST: WallTime = WallTime::from_micros(1_735_689_600_000_000);
/// A process with fewer descriptors gets a warning. A holder of many locks needs some dozens.
const FEW_DESCRIPTORS: u64 = 256;

pub(super) fn processes(_: &Context<'_>) -> Finding {
    let fix = said("fix.mount_proc");
    if let Err(error) = origin::origin() {
        return Finding::fail(said("seen.no_identity").with("error", error), fix);
    }
    match process::current().map(process::watch) {
        Ok(Watch::Exit(_)) => {
            Finding::pass("by pid and start time; the kernel reports the end of a process at once")
        }
        Ok(Watch::Gone | Watch::Unavailable) => {
            Finding::pass("by pid and start time; the end of a process is found by polling")
        }
        Err(error) => Finding::fail(said("seen.no_self").with("error", error), fix),
    }
}

pub(super) fn clock(context: &Context<'_>) -> Finding {
    if context.inputs.now < EARLIEST {
        return Finding::warn(
            said("seen.clock_unset").with("now", context.inputs.now),
            said("fix.set_clock"),
        );
    }
    let ahead = records(context).into_iter().map(|(what, at)| (at.since(context.inputs.now), what));
    let worst = ahead.filter(|(lead, _)| *lead > TOLERANCE).max_by_key(|(lead, _)| *lead);
    match worst {
        None => Finding::pass(format!("the clock shows {}, and no record is later", context.inputs.now)),
        Some((lead, what)) => {
            let detail = said("seen.clock_ahead").with_list("what", [what]).with("lead", format_span(lead));
            Finding::warn(detail, said("fix.clock"))
        }
    }
}

/// The times in all records that are dated by the wall clock, with a name for each.
fn records(context: &Context<'_>) -> Vec<(Sentence, WallTime)> {
    let mut dates = Vec::new();
    for (task, found) in context.tasks().unwrap_or_default() {
        let record = found.as_ref().ok().and_then(|standing| standing.record.as_ref());
        dates.extend(record.map(|record| (said("lock.task").with("task", task), record.heartbeat_at)));
    }
    for (subject, found) in context.requests().unwrap_or_default() {
        let record = found.as_ref().ok().and_then(|standing| standing.record.as_ref());
        dates.extend(record.map(|record| (said("lock.subject").with("subject", subject), record.created_at)));
    }
    let groups = context.survey().map(|survey| survey.groups.as_slice()).unwrap_or_default();
    for line in groups.iter().flat_map(|group| &group.findings) {
        let at = WallTime::from_micros(line.entry.since.saturating_mul(1_000_000));
        dates.push((said("lock.group").with("group", &line.entry.group), at));
    }
    dates.extend(sprint_started_at(context).map(|at| (said("lock.sprint"), at)));
    dates
}

pub(super) fn file_watching(context: &Context<'_>) -> Finding {
    match Changes::probe(context.existing_folder()) {
        Ok(()) => Finding::pass("one more folder can be watched"),
        Err(error) => Finding::warn(said("seen.no_watch").with("error", error), said("fix.inotify")),
    }
}

pub(super) fn descriptors(_: &Context<'_>) -> Finding {
    match getrlimit(Resource::Nofile).current {
        Some(limit) if limit < FEW_DESCRIPTORS => Finding::warn(
            said("seen.few_descriptors").with("limit", limit),
            said("fix.ulimit").with("limit", FEW_DESCRIPTORS),
        ),
        Some(limit) => Finding::pass(format!("a process may have {limit} files open")),
        None => Finding::pass("a process may have any number of files open"),
    }
}
