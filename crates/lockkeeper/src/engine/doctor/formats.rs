//! Checks of the lock files of other programs, one for each format.

use std::error::Error;

use super::finding::{Finding, Recovered, Status, some_of, told};
use super::{Pass, Site};
use crate::clock::WallTime;
use crate::lockfile::group::{self, Life, Survey};
use crate::lockfile::registry::Entry;
use crate::lockfile::sprint::{self, Answer, Caller, Input, Lang, LockInfo, Machine, Status as SprintStatus};

const FULL: &str = "`lockkeeper doctor --full` puts it away, and so does whoever takes it next";

pub(super) fn sprint(site: &Site<'_>, _: Pass) -> Finding {
    let answer = match look_at_sprint(site) {
        Ok(answer) => answer,
        Err(problem) => {
            return Finding::warn(told(&problem), "check the permissions of the project's folder");
        }
    };
    let root = site.location.root.display();
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
pub(super) fn sprint_started_at(site: &Site<'_>) -> Option<WallTime> {
    match look_at_sprint(site).ok()?.lock_info {
        LockInfo::Present { started_at, .. } => started_at?.parse().ok(),
        LockInfo::Absent | LockInfo::Unread => None,
    }
}

fn look_at_sprint(site: &Site<'_>) -> Result<Answer, sprint::Problem> {
    let root = site.location.root.clone();
    let there = root.join(sprint::LOCK_FILE_NAME).symlink_metadata().is_ok();
    if !there {
        return Ok(Answer::new(SprintStatus::Clean, LockInfo::Absent, ""));
    }
    let input = Input { mode: "check".to_owned(), project_root: Some(root), ..Input::default() };
    let mut caller =
        Caller { lang: Lang::En, confirm: &mut |_| false, tell: &mut |_| {}, pid: std::process::id() };
    // Who is being written just now counts as held: a doctor does not wait for it.
    let machine = Machine { now: &|| site.now, pause: &|_| {}, ..Machine::real() };
    Ok(sprint::run(&input.check()?, &machine, &mut caller))
}

pub(super) fn swarm(site: &Site<'_>, pass: Pass) -> Finding {
    let (swarm, now) = (site.swarm, site.now);
    let recovery = match pass {
        Pass::Quick => Ok(None),
        Pass::Full => swarm.recover(now).map(Some),
    };
    let listed = match recovery.and_then(|recovery| Ok((recovery, swarm.list(now)?))) {
        Ok(listed) => listed,
        Err(error) => return Finding::warn(told(&error), error.hint()),
    };
    let (recovery, files) = listed;
    let recovered = recovery.into_iter().flat_map(|recovery| recovery.recovered).map(|one| {
        let worker = one.standing.record.as_ref().map(|record| format!(" of worker {}", record.worker_id));
        let what = format!("task {}{}", one.task, worker.unwrap_or_default());
        Recovered { format: "swarm", what, why: one.standing.verdict.to_string() }
    });
    let files = files.into_iter().map(|(task, found)| {
        let found =
            found.map(|standing| standing.verdict.is_stale()).map_err(|error| trouble(&error, error.hint()));
        (format!("task {task}"), found)
    });
    judged(files.collect(), &format!("no task lock in {} has expired", swarm.dir().display()))
        .with_recovered(recovered.collect())
}

pub(super) fn aiflow(site: &Site<'_>, pass: Pass) -> Finding {
    let (aiflow, now) = (site.aiflow(), site.now);
    let recovery = match pass {
        Pass::Quick => Ok(None),
        Pass::Full => aiflow.recover(Pass::Full, now).map(Some),
    };
    let (recovery, files) = match recovery.and_then(|recovery| Ok((recovery, aiflow.list(now)?))) {
        Ok(listed) => listed,
        Err(error) => return Finding::warn(told(&error), error.hint()),
    };
    let recovered = recovery.into_iter().flat_map(|recovery| recovery.recovered).map(|one| {
        let run = one.standing.record.as_ref().and_then(|record| record.run_id.clone());
        let what = format!("{}{}", one.subject, run.map_or_else(String::new, |run| format!(", run {run}")));
        Recovered { format: "aiflow", what, why: one.standing.verdict.to_string() }
    });
    let files = files.into_iter().map(|(subject, found)| {
        let found =
            found.map(|standing| standing.verdict.is_stale()).map_err(|error| trouble(&error, error.hint()));
        (subject.to_string(), found)
    });
    judged(files.collect(), "no request or queue lock is stale").with_recovered(recovered.collect())
}

/// What is wrong with a file, and the way out.
type Trouble = (String, &'static str);

fn trouble(error: &dyn Error, hint: &'static str) -> Trouble {
    (told(error), hint)
}

/// What is to be said of lock files: those that are stale, and those that nobody can judge.
fn judged(files: Vec<(String, Result<bool, Trouble>)>, well: &str) -> Finding {
    let mut finding = Finding::pass(well);
    let stale: Vec<String> =
        files.iter().filter(|(_, found)| *found == Ok(true)).map(|(name, _)| name.clone()).collect();
    if !stale.is_empty() {
        finding = finding.and(Status::Warn, format!("stale: {}", some_of(stale.into_iter(), ", ")), FULL);
    }
    for (_, found) in files {
        if let Err((detail, hint)) = found {
            finding = finding.and(Status::Warn, detail, hint);
        }
    }
    finding
}

pub(super) fn groups(site: &Site<'_>, pass: Pass) -> Finding {
    let now = site.seconds();
    let swept = match pass {
        Pass::Quick => Ok(group::Swept::default()),
        Pass::Full => group::clean_up(site.groups, now),
    };
    let (swept, survey) = match swept.and_then(|swept| Ok((swept, Survey::take(site.groups, now)?))) {
        Ok(seen) => seen,
        Err(error) => return Finding::warn(told(&error), error.hint()),
    };
    let recovered = |entry: &Entry, why: &str| {
        let what = format!("group {} of process {}", entry.group, entry.pid);
        Recovered { format: "group", what, why: why.to_owned() }
    };
    let orphans = swept.orphans.iter().map(|entry| recovered(entry, "its process has ended: ORPHAN_CLEANED"));
    let closed = swept.closed.iter().map(|entry| recovered(entry, "closed without a word: RELEASED"));
    let mut finding = Finding::pass("no line of the registry is left of the dead");
    let lines = survey.groups.iter().flat_map(|group| &group.findings);
    let dead = lines.clone().filter(|line| line.life == Life::Dead).map(|line| &line.entry);
    let left: Vec<String> = dead
        .chain(survey.closed())
        .map(|entry| format!("group {} of process {}", entry.group, entry.pid))
        .collect();
    if !left.is_empty() {
        finding =
            finding.and(Status::Warn, format!("left of the dead: {}", some_of(left.into_iter(), ", ")), FULL);
    }
    let closed_lines = survey.closed();
    for line in lines.filter(|line| {
        line.life != Life::Dead && line.age > site.max_group_age && !closed_lines.contains(&&line.entry)
    }) {
        let (entry, age) = (&line.entry, lockkeeper_core::time::format_span(line.age));
        let detail = format!("process {} has group {} for {age}", entry.pid, entry.group);
        finding = finding.and(
            Status::Warn,
            detail,
            "`lockkeeper group status` tells what it does; end it if it hangs",
        );
    }
    if let Some((path, number, text)) = survey.odd.first() {
        let (more, path) = (survey.odd.len() - 1, path.display());
        let detail = format!("{path}:{number} is not understood: {text} (and {more} more lines)");
        finding = finding.and(
            Status::Warn,
            detail,
            "mend or remove the line; the locks themselves work without it",
        );
    }
    finding.with_recovered(orphans.chain(closed).collect())
}
