//! `group check-deadlock|cleanup|force-release-all`: what to do about the dead, the stuck and the stubborn.

use std::time::Duration;

use lockkeeper_core::time::format_span;
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_formats::group::{self, Cleanup, Cycle, Finding, Folders, Liveness, Survey};
use lockkeeper_formats::registry::Entry;
use lockkeeper_platform::lock_holders::LockProcess;
use lockkeeper_platform::tree::{Root, Stop, stop_tree};
use lockkeeper_platform::wall_clock::epoch_seconds;
use serde_json::{Value, json};

use super::super::context::Context;
use super::super::obtain::grace;
use super::super::{print, table};
use super::max_lock_age;
use super::status::{finding, locker, tell_odd};

pub(super) const DEFAULT_MAX_AGE: u64 = 600;

#[derive(clap::Args)]
pub(super) struct ForceArgs {
    /// Yes, really
    #[arg(long)]
    yes: bool,
    /// End the processes that have the locks: nothing else takes a kernel lock away
    #[arg(long)]
    kill: bool,
}

/// What a look for deadlocks found.
pub(super) struct Checked {
    pub(super) swept: Cleanup,
    pub(super) stale: Vec<Finding>,
    pub(super) circles: Vec<Cycle>,
    survey: Survey,
}

/// Cleans up those that died long ago, and finds those that live but should not hold any more.
pub(super) fn look(folders: &Folders) -> Result<Checked, Report> {
    let max_age = max_lock_age()?;
    let now = epoch_seconds();
    let swept = group::check(folders, max_age, now)?;
    let survey = Survey::take(folders, now)?;
    let findings = survey.groups.iter().flat_map(|group| &group.findings);
    let stale =
        findings.filter(|finding| finding.age > max_age && finding.liveness != Liveness::Dead).cloned();
    let stale = stale.collect();
    Ok(Checked { swept, stale, circles: survey.cycles(), survey })
}

impl Checked {
    /// What a person should hear, one line each.
    pub(super) fn lines(&self) -> Vec<String> {
        let stale = self.stale.iter().map(|finding| {
            let entry = &finding.entry;
            let age = format_span(finding.age);
            format!(
                "warning: Stale lock detected: group {}, process {} has it for {age}",
                entry.group, entry.pid
            )
        });
        let cleaned = self.swept.orphans.iter().map(|entry| {
            format!("group {}: process {} died: TIMEOUT, then ORPHAN_CLEANED", entry.group, entry.pid)
        });
        let circles = self.circles.iter().map(|circle| format!("deadlock: {}", describe(circle)));
        stale.chain(cleaned).chain(circles).map(|line| table::plain(&line)).collect()
    }
}

pub(super) fn check_deadlock(context: &Context, folders: &Folders) -> Result<Exit, Report> {
    let checked = look(folders)?;
    let leases = match context.existing_keeper()? {
        Some(keeper) => keeper.engine().circles()?,
        None => Vec::new(),
    };
    let orphans: Vec<Value> = checked.swept.orphans.iter().map(entry).collect();
    let stale: Vec<Value> = checked.stale.iter().map(finding).collect();
    if !context.json {
        checked.lines().iter().for_each(|line| print::talk(line));
        tell_odd(&checked.survey);
    }
    if let Some(first) = checked.circles.first() {
        let message = format!("deadlock: {}", describe(first));
        return Err(Report::new(Exit::Refused, "DEADLOCK", message)
            .with_hint("end one of them, and let all take their groups in one same order")
            .with_context("circles", json!(checked.circles))
            .with_context("stale", stale)
            .with_context("cleaned", orphans));
    }
    if let Some(first) = leases.first() {
        return Err(print::deadlock(first).with_context("cycles", leases.len()));
    }
    if context.json {
        print::json(&json!({ "deadlocks": [], "stale": stale, "cleaned": orphans }));
    } else {
        print::talk("no deadlock: every wait can end");
    }
    Ok(Exit::Done)
}

pub(super) fn clean_up(context: &Context, folders: &Folders) -> Result<Exit, Report> {
    let swept = group::clean_up(folders, epoch_seconds())?;
    let survey = Survey::take(folders, epoch_seconds())?;
    let still: Vec<Still> = still_locked(&survey, &swept.orphans);
    if context.json {
        print::json(&json!({
            "cleaned": swept.orphans.iter().map(entry).collect::<Vec<_>>(),
            "closed": swept.closed.iter().map(entry).collect::<Vec<_>>(),
            "still_locked": still.iter().map(Still::to_json).collect::<Vec<_>>(),
        }));
        return Ok(Exit::Done);
    }
    for orphan in &swept.orphans {
        print::data(&format!("{}: process {} died: ORPHAN_CLEANED", table::plain(&orphan.group), orphan.pid));
    }
    for closed in &swept.closed {
        print::data(&format!("{}: process {} closed it: RELEASED", table::plain(&closed.group), closed.pid));
    }
    for still in &still {
        print::talk(&format!(
            "group {} is still locked: {} inherited the lock and has it until it ends",
            table::plain(&still.group),
            still.holders()
        ));
    }
    tell_odd(&survey);
    print::talk(&format!("{} cleaned up", swept.orphans.len() + swept.closed.len()));
    Ok(Exit::Done)
}

pub(super) fn force_release_all(
    context: &Context,
    folders: &Folders,
    args: &ForceArgs,
) -> Result<Exit, Report> {
    if !args.yes {
        return Err(Report::usage("this takes locks from those who may be at work").with_hint(
            "look first: `lockkeeper group status`, `lockkeeper group cleanup`; if you are sure, add --yes",
        ));
    }
    let swept = group::force(folders, epoch_seconds())?;
    let before = Survey::take(folders, epoch_seconds())?;
    let locked = before.groups.iter().filter(|group| !group.lock.holders.is_empty());
    let mut ended = Vec::new();
    if args.kill {
        for holder in locked.flat_map(|group| &group.lock.holders) {
            ended.push((holder.clone(), end(holder, grace(context))));
        }
    }
    let survey = Survey::take(folders, epoch_seconds())?;
    let still: Vec<Still> = survey
        .groups
        .iter()
        .filter(|group| !group.lock.holders.is_empty())
        .map(|group| Still { group: group.id.clone(), holders: group.lock.holders.clone() })
        .collect();
    if context.json {
        print::json(&json!({
            "force_released": swept.forced.iter().map(entry).collect::<Vec<_>>(),
            "ended": ended.iter().map(|(holder, failure)| {
                let mut value = locker(holder);
                value["failure"] = json!(failure);
                value
            }).collect::<Vec<_>>(),
            "still_locked": still.iter().map(Still::to_json).collect::<Vec<_>>(),
        }));
    } else {
        for entry in &swept.forced {
            print::data(&format!("{}: process {}: FORCE_RELEASED", table::plain(&entry.group), entry.pid));
        }
        for (holder, failure) in &ended {
            let how = failure.as_deref().unwrap_or("ended");
            print::data(&format!(
                "process {} ({}): {how}",
                holder.process.pid,
                table::plain(&holder.command)
            ));
        }
        for still in &still {
            print::talk(&format!(
                "warning: group {} stays locked: {} has the kernel's lock, which only its end takes away{}",
                table::plain(&still.group),
                still.holders(),
                if args.kill { "" } else { " (--kill ends it)" }
            ));
        }
        print::talk(&format!("{} struck off the registry", swept.forced.len()));
    }
    let failed = ended.iter().any(|(_, failure)| failure.is_some());
    Ok(if failed { Exit::Failed } else { Exit::Done })
}

/// Ends a holder with its tree; the reason when it could not.
fn end(holder: &LockProcess, grace: Duration) -> Option<String> {
    match stop_tree(&Stop { root: Root::Process(holder.process), grace, mark: None }) {
        Ok(left) if left.is_empty() => None,
        Ok(left) => Some(format!("{} of its processes could not be ended", left.len())),
        Err(error) => Some(error.to_string()),
    }
}

/// A group that the kernel still has as locked.
struct Still {
    group: String,
    holders: Vec<LockProcess>,
}

impl Still {
    fn holders(&self) -> String {
        let names = self.holders.iter().map(|one| format!("process {} ({})", one.process.pid, one.command));
        table::plain(&names.collect::<Vec<_>>().join(", "))
    }

    fn to_json(&self) -> Value {
        json!({ "group": self.group, "holders": self.holders.iter().map(locker).collect::<Vec<_>>() })
    }
}

/// Groups of the dead that others share the lock of, without a line of their own.
fn still_locked(survey: &Survey, orphans: &[Entry]) -> Vec<Still> {
    let orphaned = |id: &str| orphans.iter().any(|orphan| orphan.group == id);
    let groups = survey.groups.iter().filter(|group| orphaned(&group.id) && group.findings.is_empty());
    groups
        .filter(|group| !group.lock.holders.is_empty())
        .map(|group| Still { group: group.id.clone(), holders: group.lock.holders.clone() })
        .collect()
}

fn entry(entry: &Entry) -> Value {
    json!({ "lock_id": entry.lock_id, "pid": entry.pid, "group": entry.group, "since": entry.since })
}

/// A circle in words.
pub(super) fn describe(circle: &Cycle) -> String {
    let next = circle.iter().cycle().skip(1);
    let links =
        circle.iter().zip(next).map(|(held, wanted)| format!("a holder of {held} waits for {wanted}"));
    links.collect::<Vec<_>>().join(", and ")
}
