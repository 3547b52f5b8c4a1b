//! Checks of lock files in foreign formats: sprint, swarm, group and aiflow.

use std::time::Duration;

use lockkeeper_core::time::format_span;
use lockkeeper_formats::aiflow::Subject;
use lockkeeper_formats::group::{self, Liveness, Survey};
use lockkeeper_formats::registry::Entry;
use lockkeeper_formats::sprint::{self, Answer, LockInfo, Status as SprintStatus};
use lockkeeper_formats::{Verdict, aiflow, swarm};
use lockkeeper_platform::wall_clock::WallTime;

use super::finding::{Finding, Recovered, Status, with_causes};
use super::{Context, Pass};
use crate::foreign_locks::check_sprint;
use crate::messages::{Sentence, said};

/// The full pass removes it.
const FULL: Sentence = said("fix.full");

pub(super) fn sprint(context: &Context<'_>) -> Finding {
    let answer = match look_at_sprint(context) {
        Ok(answer) => answer,
        Err(problem) => {
            return Finding::warn(with_causes(&problem), said("fix.permissions"));
        }
    };
    let root = context.inputs.location.root.display();
    match answer.status {
        SprintStatus::Clean | SprintStatus::Acquired | SprintStatus::Released => {
            Finding::pass("there is no sprint lock")
        }
        SprintStatus::Blocked => Finding::pass("a running sprint holds it"),
        // Only a person can decide whether the sprint has ended, so the full pass does not remove it either.
        SprintStatus::ZombieDetected => Finding::warn(
            said("seen.sprint_zombie").with("message", answer.message.replace('\n', " ").trim()),
            said("fix.sprint").with("root", root),
        ),
        SprintStatus::Failure => Finding::warn(answer.message, said("fix.look_at_file")),
    }
}

/// The start time in the sprint lock.
pub(super) fn sprint_started_at(context: &Context<'_>) -> Option<WallTime> {
    match look_at_sprint(context).ok()?.lock_info {
        LockInfo::Present { started_at, .. } => started_at?.parse().ok(),
        LockInfo::Absent | LockInfo::Unread => None,
    }
}

fn look_at_sprint(context: &Context<'_>) -> Result<Answer, sprint::Problem> {
    let found = check_sprint(&context.inputs.location.root, context.inputs.now)?;
    Ok(found.unwrap_or_else(|| Answer::new(SprintStatus::Clean, LockInfo::Absent, "")))
}

pub(super) fn swarm(context: &Context<'_>) -> Finding {
    let swarm = context.inputs.swarm;
    let (mut recovered, mut problems) = (Vec::new(), Vec::new());
    if context.pass == Pass::Full {
        match swarm.recover(context.inputs.now) {
            Ok(recovery) => {
                recovered.extend(recovery.recovered.iter().map(recovered_task));
                problems
                    .extend(recovery.problems.iter().map(|(_, error)| (with_causes(error), error.hint())));
            }
            Err(error) => return Finding::warn(with_causes(&error), error.hint()),
        }
    }
    let files = match context.tasks() {
        Ok(files) => files.iter().map(|(task, found)| {
            let found = found.as_ref().map(|standing| standing.verdict);
            (said("item.task").with("task", task), found.map_err(|error| (with_causes(error), error.hint())))
        }),
        Err(error) => return Finding::warn(with_causes(error), error.hint()).with_recovered(recovered),
    };
    let well = format!("no task lock in {} has expired", swarm.dir().display());
    judged(files, problems, &well).with_recovered(recovered)
}

fn recovered_task(one: &swarm::Recovered) -> Recovered {
    let worker = one.state.record.as_ref().map(|record| format!(" of worker {}", record.worker_id));
    let what = format!("task {}{}", one.task, worker.unwrap_or_default());
    Recovered { format: "swarm", what, why: reason(one.state.verdict) }
}

pub(super) fn aiflow(context: &Context<'_>) -> Finding {
    let (mut recovered, mut problems) = (Vec::new(), Vec::new());
    if context.pass == Pass::Full {
        match context.aiflow().recover(Pass::Full, context.inputs.now) {
            Ok(recovery) => {
                recovered.extend(recovery.recovered.iter().map(recovered_request));
                problems
                    .extend(recovery.problems.iter().map(|(_, error)| (with_causes(error), error.hint())));
            }
            Err(error) => return Finding::warn(with_causes(&error), error.hint()),
        }
    }
    let files = match context.requests() {
        Ok(files) => files.iter().map(|(subject, found)| {
            let found = found.as_ref().map(|standing| standing.verdict);
            let subject = match subject {
                Subject::Queue => said("item.queue"),
                Subject::Request(id) => said("item.request").with("id", id),
            };
            (subject, found.map_err(|error| (with_causes(error), error.hint())))
        }),
        Err(error) => return Finding::warn(with_causes(error), error.hint()).with_recovered(recovered),
    };
    judged(files, problems, "no request or queue lock is stale").with_recovered(recovered)
}

fn recovered_request(one: &aiflow::Recovered) -> Recovered {
    let run = one.state.record.as_ref().and_then(|record| record.run_id.as_ref());
    let what = format!("{}{}", one.subject, run.map_or_else(String::new, |run| format!(", run {run}")));
    Recovered { format: "aiflow", what, why: reason(one.state.verdict) }
}

fn reason(verdict: Verdict) -> String {
    match verdict {
        Verdict::Stale(reason) => reason.to_string(),
        Verdict::Held(reason) => reason.to_string(),
    }
}

/// A problem, and how to fix it.
type Trouble = (String, &'static str);

/// The finding for the lock files of one format: stale locks, and locks that cannot be judged.
fn judged(
    files: impl Iterator<Item = (Sentence, Result<Verdict, Trouble>)>,
    problems: Vec<Trouble>,
    well: &str,
) -> Finding {
    let (mut stale, mut troubles) = (Vec::new(), problems);
    for (name, found) in files {
        match found {
            Ok(Verdict::Stale(_)) => stale.push(name),
            Ok(Verdict::Held(_)) => {}
            Err(trouble) => troubles.push(trouble),
        }
    }
    let mut finding = Finding::pass(well);
    if !stale.is_empty() {
        finding = finding.and(Status::Warn, said("seen.stale").with_list("list", stale), FULL);
    }
    troubles.into_iter().fold(finding, |finding, (detail, hint)| finding.and(Status::Warn, detail, hint))
}

pub(super) fn groups(context: &Context<'_>) -> Finding {
    let mut recovered = Vec::new();
    if context.pass == Pass::Full {
        match group::clean_up(context.inputs.groups, context.seconds()) {
            Ok(swept) => {
                let orphans =
                    swept.orphans.iter().map(|entry| (entry, "its process has ended: ORPHAN_CLEANED"));
                let closed = swept.closed.iter().map(|entry| (entry, "closed without a release: RELEASED"));
                recovered.extend(orphans.chain(closed).map(|(entry, why)| Recovered {
                    format: "group",
                    what: holder(entry),
                    why: why.to_owned(),
                }));
            }
            Err(error) => return Finding::warn(with_causes(&error), error.hint()),
        }
    }
    match context.survey() {
        Ok(survey) => lines(survey, context.inputs.max_group_age).with_recovered(recovered),
        Err(error) => Finding::warn(with_causes(error), error.hint()).with_recovered(recovered),
    }
}

/// The finding for the lines of the registry.
fn lines(survey: &Survey, max_age: Duration) -> Finding {
    let mut finding = Finding::pass("no line of the registry belongs to a dead process");
    let closed = survey.closed();
    let lines = || survey.groups.iter().flat_map(|group| &group.findings);
    let dead = lines().filter(|line| line.liveness == Liveness::Dead).map(|line| &line.entry);
    let item = |entry: &Entry| said("item.group").with("group", &entry.group).with("pid", entry.pid);
    let left: Vec<Sentence> = dead.chain(closed.iter().copied()).map(item).collect();
    if !left.is_empty() {
        finding = finding.and(Status::Warn, said("seen.group_dead").with_list("list", left), FULL);
    }
    let held = lines().filter(|line| line.liveness != Liveness::Dead && !closed.contains(&&line.entry));
    for line in held.filter(|line| line.age > max_age) {
        let detail = said("seen.group_old").with("group", &line.entry.group).with("pid", line.entry.pid);
        let detail = detail.with("age", format_span(line.age));
        finding = finding.and(Status::Warn, detail, said("fix.group_old"));
    }
    if let Some((path, number, text)) = survey.malformed.first() {
        let (more, path) = (survey.malformed.len() - 1, path.display());
        let detail = said("seen.bad_line").with("file", path).with("line", number);
        let detail = detail.with("text", text).with("more", more);
        finding = finding.and(Status::Warn, detail, said("fix.bad_line"));
    }
    finding
}

fn holder(entry: &Entry) -> String {
    format!("group {} of process {}", entry.group, entry.pid)
}
