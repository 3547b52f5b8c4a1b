//! Checks of the lock files of other programs, one for each format.

use std::time::Duration;

use lockkeeper_core::time::format_span;

use super::finding::{Finding, Recovered, Status, some_of, told};
use super::{Pass, Visit};
use lockkeeper_formats::group::{self, Liveness, Survey};
use lockkeeper_formats::registry::Entry;
use lockkeeper_formats::sprint::{
    self, Answer, Caller, Input, Lang, LockInfo, Machine, Status as SprintStatus,
};
use lockkeeper_formats::{Verdict, aiflow, swarm};
use lockkeeper_platform::wall_clock::WallTime;

const FULL: &str = "`lockkeeper doctor --full` puts it away, and so does whoever takes it next";

pub(super) fn sprint(visit: &Visit<'_>) -> Finding {
    let answer = match look_at_sprint(visit) {
        Ok(answer) => answer,
        Err(problem) => {
            return Finding::warn(told(&problem), "check the permissions of the project's folder");
        }
    };
    let root = visit.site.location.root.display();
    match answer.status {
        SprintStatus::Clean | SprintStatus::Acquired | SprintStatus::Released => {
            Finding::pass("there is none")
        }
        SprintStatus::Blocked => Finding::pass("a sprint that runs has it"),
        // Only a person may decide about it, so the full pass leaves it alone too.
        SprintStatus::ZombieDetected => Finding::warn(
            format!("{}: its sprint is over, or older than a day", answer.message.replace('\n', " ").trim()),
            format!("if that sprint is over: lockkeeper sprint release --project-root {root}"),
        ),
        SprintStatus::Failure => {
            Finding::warn(answer.message, "look at the file, and move it away if nobody needs it")
        }
    }
}

/// When the sprint that has the lock began, as the lock says.
pub(super) fn sprint_started_at(visit: &Visit<'_>) -> Option<WallTime> {
    match look_at_sprint(visit).ok()?.lock_info {
        LockInfo::Present { started_at, .. } => started_at?.parse().ok(),
        LockInfo::Absent | LockInfo::Unread => None,
    }
}

fn look_at_sprint(visit: &Visit<'_>) -> Result<Answer, sprint::Problem> {
    let root = visit.site.location.root.clone();
    let there = root.join(sprint::LOCK_FILE_NAME).symlink_metadata().is_ok();
    if !there {
        return Ok(Answer::new(SprintStatus::Clean, LockInfo::Absent, ""));
    }
    let input = Input { mode: "check".to_owned(), project_root: Some(root), ..Input::default() };
    let mut caller =
        Caller { lang: Lang::En, confirm: &mut |_| false, tell: &mut |_| {}, pid: std::process::id() };
    // Who is being written just now counts as held: a doctor does not wait for it.
    let machine = Machine { now: &|| visit.site.now, pause: &|_| {}, ..Machine::real() };
    Ok(sprint::run(&input.check()?, &machine, &mut caller))
}

pub(super) fn swarm(visit: &Visit<'_>) -> Finding {
    let swarm = visit.site.swarm;
    let (mut recovered, mut problems) = (Vec::new(), Vec::new());
    if visit.pass == Pass::Full {
        match swarm.recover(visit.site.now) {
            Ok(recovery) => {
                recovered.extend(recovery.recovered.iter().map(recovered_task));
                problems.extend(recovery.problems.iter().map(|(_, error)| (told(error), error.hint())));
            }
            Err(error) => return Finding::warn(told(&error), error.hint()),
        }
    }
    let files = match visit.tasks() {
        Ok(files) => files.iter().map(|(task, found)| {
            let found = found.as_ref().map(|standing| standing.verdict);
            (format!("task {task}"), found.map_err(|error| (told(error), error.hint())))
        }),
        Err(error) => return Finding::warn(told(error), error.hint()).with_recovered(recovered),
    };
    let well = format!("no task lock in {} has expired", swarm.dir().display());
    judged(files, problems, &well).with_recovered(recovered)
}

fn recovered_task(one: &swarm::Recovered) -> Recovered {
    let worker = one.state.record.as_ref().map(|record| format!(" of worker {}", record.worker_id));
    let what = format!("task {}{}", one.task, worker.unwrap_or_default());
    Recovered { format: "swarm", what, why: reason(one.state.verdict) }
}

pub(super) fn aiflow(visit: &Visit<'_>) -> Finding {
    let (mut recovered, mut problems) = (Vec::new(), Vec::new());
    if visit.pass == Pass::Full {
        match visit.aiflow().recover(Pass::Full, visit.site.now) {
            Ok(recovery) => {
                recovered.extend(recovery.recovered.iter().map(recovered_request));
                problems.extend(recovery.problems.iter().map(|(_, error)| (told(error), error.hint())));
            }
            Err(error) => return Finding::warn(told(&error), error.hint()),
        }
    }
    let files = match visit.requests() {
        Ok(files) => files.iter().map(|(subject, found)| {
            let found = found.as_ref().map(|standing| standing.verdict);
            (subject.to_string(), found.map_err(|error| (told(error), error.hint())))
        }),
        Err(error) => return Finding::warn(told(error), error.hint()).with_recovered(recovered),
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

/// What is wrong, and the way out.
type Trouble = (String, &'static str);

/// What is to be said of lock files: what went wrong with them, those that are stale, and those that nobody can judge.
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
        finding = finding.and(Status::Warn, format!("stale: {}", some_of(stale.into_iter(), ", ")), FULL);
    }
    troubles.into_iter().fold(finding, |finding, (detail, hint)| finding.and(Status::Warn, detail, hint))
}

pub(super) fn groups(visit: &Visit<'_>) -> Finding {
    let mut recovered = Vec::new();
    if visit.pass == Pass::Full {
        match group::clean_up(visit.site.groups, visit.seconds()) {
            Ok(swept) => {
                let orphans =
                    swept.orphans.iter().map(|entry| (entry, "its process has ended: ORPHAN_CLEANED"));
                let closed = swept.closed.iter().map(|entry| (entry, "closed without a word: RELEASED"));
                recovered.extend(orphans.chain(closed).map(|(entry, why)| Recovered {
                    format: "group",
                    what: holder(entry),
                    why: why.to_owned(),
                }));
            }
            Err(error) => return Finding::warn(told(&error), error.hint()),
        }
    }
    match visit.survey() {
        Ok(survey) => lines(survey, visit.site.max_group_age).with_recovered(recovered),
        Err(error) => Finding::warn(told(error), error.hint()).with_recovered(recovered),
    }
}

/// What is to be said of the lines of the registry that stand.
fn lines(survey: &Survey, max_age: Duration) -> Finding {
    let mut finding = Finding::pass("no line of the registry is left of the dead");
    let closed = survey.closed();
    let lines = || survey.groups.iter().flat_map(|group| &group.findings);
    let dead = lines().filter(|line| line.liveness == Liveness::Dead).map(|line| &line.entry);
    let left: Vec<String> = dead.chain(closed.iter().copied()).map(holder).collect();
    if !left.is_empty() {
        finding =
            finding.and(Status::Warn, format!("left of the dead: {}", some_of(left.into_iter(), ", ")), FULL);
    }
    let held = lines().filter(|line| line.liveness != Liveness::Dead && !closed.contains(&&line.entry));
    for line in held.filter(|line| line.age > max_age) {
        let detail = format!("{} is held for {}", holder(&line.entry), format_span(line.age));
        finding = finding.and(
            Status::Warn,
            detail,
            "`lockkeeper group status` tells what it does; end it if it hangs",
        );
    }
    if let Some((path, number, text)) = survey.malformed.first() {
        let (more, path) = (survey.malformed.len() - 1, path.display());
        let detail = format!("{path}:{number} is not understood: {text} (and {more} more lines)");
        finding = finding.and(
            Status::Warn,
            detail,
            "mend or remove the line; the locks themselves work without it",
        );
    }
    finding
}

fn holder(entry: &Entry) -> String {
    format!("group {} of process {}", entry.group, entry.pid)
}
