//! `group check-deadlock|cleanup|force-release-all`: finds deadlocks, and releases locks of dead or live processes.

use std::time::Duration;

use lockkeeper_core::time::format_span;
use lockkeeper_engine::messages::Phrases;
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_formats::group::{self, Cleanup, Cycle, Finding, Folders, Liveness, Survey};
use lockkeeper_formats::registry::Entry;
use lockkeeper_platform::lock_holders::LockProcess;
use lockkeeper_platform::tree::{Root, Stop, stop_tree};
use lockkeeper_platform::wall_clock::epoch_seconds;
use serde_json::{Value, json};

use super::max_lock_age;
use super::status::{finding, locker, warn_of_malformed};
use crate::cli::context::Context;
use crate::cli::obtain::grace;
use crate::cli::{print, table};

pub(super) const DEFAULT_MAX_AGE: u64 = 600;

#[derive(clap::Args)]
pub(super) struct ForceArgs {
    /// Yes, really
    #[arg(long)]
    yes: bool,
    /// End the processes that hold the locks: only their end frees a kernel lock
    #[arg(long)]
    kill: bool,
}

/// The result of a check for deadlocks.
pub(super) struct Checked {
    pub(super) swept: Cleanup,
    pub(super) stale: Vec<Finding>,
    pub(super) cycles: Vec<Cycle>,
    survey: Survey,
}

/// Cleans up locks of processes that died long ago. Finds deadlocks, and locks that are held for too long.
pub(super) fn check(folders: &Folders) -> Result<Checked, Report> {
    let max_age = max_lock_age()?;
    let now = epoch_seconds();
    let swept = group::check(folders, max_age, now)?;
    let survey = Survey::take(folders, now)?;
    let findings = survey.groups.iter().flat_map(|group| &group.findings);
    let stale =
        findings.filter(|finding| finding.age > max_age && finding.liveness != Liveness::Dead).cloned();
    let stale = stale.collect();
    Ok(Checked { swept, stale, cycles: survey.cycles(), survey })
}

impl Checked {
    /// Messages for the user, one line each.
    pub(super) fn lines(&self, phrases: &Phrases) -> Vec<String> {
        let about = |key: &str, entry: &Entry, age: &str| {
            let (group, pid) = (table::plain(&entry.group), entry.pid.to_string());
            phrases.fill(key, &[("group", &group), ("pid", &pid), ("age", age)])
        };
        let stale = self.stale.iter();
        let stale = stale.map(|finding| about("group.stale", &finding.entry, &format_span(finding.age)));
        let cleaned = self.swept.orphans.iter().map(|entry| about("group.timeout", entry, ""));
        let deadlocks = self.cycles.iter();
        let deadlocks =
            deadlocks.map(|cycle| phrases.fill("group.cycle", &[("cycle", &table::plain(&describe(cycle)))]));
        stale.chain(cleaned).chain(deadlocks).collect()
    }
}

pub(super) fn check_deadlock(context: &Context, folders: &Folders) -> Result<Exit, Report> {
    let checked = check(folders)?;
    let leases = match context.existing_engine()? {
        Some(engine) => engine.cycles()?,
        None => Vec::new(),
    };
    let orphans: Vec<Value> = checked.swept.orphans.iter().map(entry).collect();
    let stale: Vec<Value> = checked.stale.iter().map(finding).collect();
    if !context.json {
        checked.lines(context.phrases()).iter().for_each(|line| print::talk(line));
        warn_of_malformed(context, &checked.survey);
    }
    if let Some(first) = checked.cycles.first() {
        let message = format!("deadlock: {}", describe(first));
        return Err(Report::new(Exit::Refused, "DEADLOCK", message)
            .with_hint("end one of them, and let all acquire their groups in the same order")
            .with_context("circles", json!(checked.cycles))
            .with_context("stale", stale)
            .with_context("cleaned", orphans));
    }
    if let Some(first) = leases.first() {
        return Err(print::deadlock(first).with_context("cycles", leases.len()));
    }
    if context.json {
        print::json(&json!({ "deadlocks": [], "stale": stale, "cleaned": orphans }));
    } else {
        print::talk(&context.say("group.no_deadlock", &[]));
    }
    Ok(Exit::Done)
}

pub(super) fn clean_up(context: &Context, folders: &Folders) -> Result<Exit, Report> {
    let swept = group::clean_up(folders, epoch_seconds())?;
    let survey = Survey::take(folders, epoch_seconds())?;
    let still: Vec<StillLocked> = still_locked(&survey, &swept.orphans);
    if context.json {
        print::json(&json!({
            "cleaned": swept.orphans.iter().map(entry).collect::<Vec<_>>(),
            "closed": swept.closed.iter().map(entry).collect::<Vec<_>>(),
            "still_locked": still.iter().map(StillLocked::to_json).collect::<Vec<_>>(),
        }));
        return Ok(Exit::Done);
    }
    for orphan in &swept.orphans {
        print::data(&context.say(
            "group.orphan",
            &[("group", &table::plain(&orphan.group)), ("pid", &orphan.pid.to_string())],
        ));
    }
    for closed in &swept.closed {
        print::data(&context.say(
            "group.closed",
            &[("group", &table::plain(&closed.group)), ("pid", &closed.pid.to_string())],
        ));
    }
    for still in &still {
        let values = [("group", &*table::plain(&still.group)), ("holders", &*still.holders())];
        print::talk(&context.say("group.inherited", &values));
    }
    warn_of_malformed(context, &survey);
    let count = (swept.orphans.len() + swept.closed.len()).to_string();
    print::talk(&context.say("group.cleaned", &[("count", &count)]));
    Ok(Exit::Done)
}

pub(super) fn force_release_all(
    context: &Context,
    folders: &Folders,
    args: &ForceArgs,
) -> Result<Exit, Report> {
    if !args.yes {
        return Err(Report::usage("this takes locks from processes that may still work").with_hint(
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
    let still: Vec<StillLocked> = survey
        .groups
        .iter()
        .filter(|group| !group.lock.holders.is_empty())
        .map(|group| StillLocked { group: group.id.clone(), holders: group.lock.holders.clone() })
        .collect();
    if context.json {
        print::json(&json!({
            "force_released": swept.forced.iter().map(entry).collect::<Vec<_>>(),
            "ended": ended.iter().map(|(holder, failure)| {
                let mut value = locker(holder);
                value["failure"] = json!(failure);
                value
            }).collect::<Vec<_>>(),
            "still_locked": still.iter().map(StillLocked::to_json).collect::<Vec<_>>(),
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
            let key = if args.kill { "group.stays_locked" } else { "group.stays_locked_kill" };
            let values = [("group", &*table::plain(&still.group)), ("holders", &*still.holders())];
            print::talk(&context.say(key, &values));
        }
        let count = swept.forced.len().to_string();
        print::talk(&context.say("group.released", &[("count", &count)]));
    }
    let failed = ended.iter().any(|(_, failure)| failure.is_some());
    Ok(if failed { Exit::Failed } else { Exit::Done })
}

/// Ends a holder with its process tree. Returns an error message if that fails.
fn end(holder: &LockProcess, grace: Duration) -> Option<String> {
    match stop_tree(&Stop { root: Root::Process(holder.process), grace, mark: None }) {
        Ok(left) if left.is_empty() => None,
        Ok(left) => Some(format!("{} of its processes could not be ended", left.len())),
        Err(error) => Some(error.to_string()),
    }
}

/// A group whose kernel lock is still held.
struct StillLocked {
    group: String,
    holders: Vec<LockProcess>,
}

impl StillLocked {
    fn holders(&self) -> String {
        let names = self.holders.iter().map(|one| format!("process {} ({})", one.process.pid, one.command));
        table::plain(&names.collect::<Vec<_>>().join(", "))
    }

    fn to_json(&self) -> Value {
        json!({ "group": self.group, "holders": self.holders.iter().map(locker).collect::<Vec<_>>() })
    }
}

/// Groups of dead processes whose lock another process has inherited, without a line in the registry.
fn still_locked(survey: &Survey, orphans: &[Entry]) -> Vec<StillLocked> {
    let orphaned = |id: &str| orphans.iter().any(|orphan| orphan.group == id);
    let groups = survey.groups.iter().filter(|group| orphaned(&group.id) && group.findings.is_empty());
    groups
        .filter(|group| !group.lock.holders.is_empty())
        .map(|group| StillLocked { group: group.id.clone(), holders: group.lock.holders.clone() })
        .collect()
}

fn entry(entry: &Entry) -> Value {
    json!({ "lock_id": entry.lock_id, "pid": entry.pid, "group": entry.group, "since": entry.since })
}

/// A deadlock as a sentence.
pub(super) fn describe(cycle: &Cycle) -> String {
    let next = cycle.iter().cycle().skip(1);
    let links = cycle.iter().zip(next).map(|(held, wanted)| format!("a holder of {held} waits for {wanted}"));
    links.collect::<Vec<_>>().join(", and ")
}
