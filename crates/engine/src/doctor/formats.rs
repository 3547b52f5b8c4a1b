//! Checks of lock files in foreign formats: sprint, swarm, group and aiflow.

use std::time::Duration;

use lockkeeper_core::time::format_span;
use lockkeeper_formats::group::{self, Liveness, Survey};
use lockkeeper_formats::registry::Entry;
use lockkeeper_formats::sprint::{
    self, Answer, Caller, Input, Lang, LockInfo, Machine, Status as SprintStatus,
};
use lockkeeper_formats::{Verdict, aiflow, swarm};
use lockkeeper_platform::wall_clock::WallTime;

use super::finding::{Finding, Recovered, Status, first_few, with_causes};
use super::{Context, Pass};

const FULL: &str = "`lockkeeper doctor --full` removes it, and so does the next process that takes the lock";

pub(super) fn sprint(context: &Context<'_>) -> Finding {
    let answer = match look_at_sprint(context) {
        Ok(answer) => answer,
        Err(problem) => {
            return Finding::warn(with_causes(&problem), "check the permissions of the project's folder");
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
            format!("{}: its sprint is over, or older than a day", answer.message.replace('\n', " ").trim()),
            format!("if that sprint is over: lockkeeper sprint release --project-root {root}"),
        ),
        SprintStatus::Failure => {
            Finding::warn(answer.message, "look at the file, and move it away if nobody needs it")
        }
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
    let root = context.inputs.location.root.clone();
    let exists = root.join(sprint::LOCK_FILE_NAME).symlink_metadata().is_ok();
    if !exists {
        return Ok(Answer::new(SprintStatus::Clean, LockInfo::Absent, ""));
    }
    let input = Input { mode: "check".to_owned(), project_root: Some(root), ..Input::default() };
    let mut caller =
        Caller { lang: Lang::En, confirm: &mut |_| false, tell: &mut |_| {}, pid: std::process::id() };
    // No pause: a lock file that is being written right now counts as held, and the doctor does not wait for it.
    let machine = Machine { now: &|| context.inputs.now, pause: &|_| {}, ..Machine::real() };
    Ok(sprint::run(&input.check()?, &machine, &mut caller))
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
            (format!("task {task}"), found.map_err(|error| (with_causes(error), error.hint())))
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
            (subject.to_string(), found.map_err(|error| (with_causes(error), error.hint())))
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
    files: impl Iterator<Item = (String, Result<Verdict, Trouble>)>,
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
        finding = finding.and(Status::Warn, format!("stale: {}", first_few(stale.into_iter(), ", ")), FULL);
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
    let left: Vec<String> = dead.chain(closed.iter().copied()).map(holder).collect();
    if !left.is_empty() {
        finding = finding.and(
            Status::Warn,
            format!("held by dead processes: {}", first_few(left.into_iter(), ", ")),
            FULL,
        );
    }
    let held = lines().filter(|line| line.liveness != Liveness::Dead && !closed.contains(&&line.entry));
    for line in held.filter(|line| line.age > max_age) {
        let detail = format!("{} has been held for {}", holder(&line.entry), format_span(line.age));
        finding = finding.and(
            Status::Warn,
            detail,
            "`lockkeeper group status` shows the process; end it if it hangs",
        );
    }
    if let Some((path, number, text)) = survey.malformed.first() {
        let (more, path) = (survey.malformed.len() - 1, path.display());
        let detail = format!("{path}:{number} cannot be parsed: {text} (and {more} more lines)");
        finding = finding.and(Status::Warn, detail, "correct or remove the line; the locks work without it");
    }
    finding
}

fn holder(entry: &Entry) -> String {
    format!("group {} of process {}", entry.group, entry.pid)
}
