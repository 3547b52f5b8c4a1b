//! Locks of other formats: sprint, swarm, group and aiflow, with the processes that wait for them. All front ends show them
//! beside the leases, and alerts count them.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use lockkeeper_core::alert::Counts;
use lockkeeper_formats::aiflow::{Aiflow, Subject};
use lockkeeper_formats::group::{Finding, Folders, Liveness, Survey};
use lockkeeper_formats::sprint::{
    self, Answer, Caller, Input, Lang, LockInfo, Machine, Status as SprintStatus,
};
use lockkeeper_formats::swarm::{Swarm, TaskRecord};
use lockkeeper_platform::lock_holders::LockProcess;
use lockkeeper_platform::process;
use lockkeeper_platform::wall_clock::WallTime;
use serde::Serialize;

/// Where locks of other formats are.
#[derive(Clone, Copy)]
pub struct ForeignPlaces<'p> {
    /// The root of the project, with the sprint lock and `.aiflow`.
    pub root: &'p Path,
    /// The swarm.
    pub swarm: &'p Swarm,
    /// The folders of group locks.
    pub groups: &'p Folders,
}

/// A lock of another format.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ForeignLock {
    /// The format: `sprint`, `swarm`, `group` or `aiflow`.
    pub format: &'static str,
    /// What is locked: a sprint, a task, a group, a request or the queue.
    pub subject: String,
    /// Who holds it; empty if the file names nobody.
    pub holder: String,
    /// `held`, `stale` (its holder is gone or its time is up) or `unknown`.
    pub state: &'static str,
    /// Why, in a few words.
    pub reason: String,
    /// The lock file.
    pub path: String,
    /// When it was taken, if that is known.
    pub since: Option<String>,
    /// When it ends unless it is renewed.
    pub expires_at: Option<String>,
}

/// A process that waits for a lock of another format.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ForeignWaiter {
    /// The format. Only group locks have waiters.
    pub format: &'static str,
    /// What it waits for.
    pub subject: String,
    /// The process.
    pub pid: u32,
    /// Its command.
    pub command: String,
    /// The age of its process in seconds: it has waited at most that long.
    pub waits_seconds: u64,
}

/// All locks of other formats at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForeignLocks {
    /// The locks, by format.
    pub locks: Vec<ForeignLock>,
    /// The waiters.
    pub waiters: Vec<ForeignWaiter>,
    /// How many deadlocks there are.
    pub deadlocks: usize,
}

impl ForeignLocks {
    /// Reads all of them. Changes nothing and never waits. A lock that cannot be read is left out: the doctor reports it.
    pub fn look(places: ForeignPlaces<'_>, now: WallTime) -> Self {
        let mut found = Self::default();
        found.locks.extend(sprint(places.root, now));
        found.add_swarm(places.swarm, now);
        found.add_groups(places.groups, now);
        found.add_aiflow(&Aiflow::new(places.root), now);
        found
    }

    /// Those of a group, a task, a request, the sprint or the queue of this name.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.locks.retain(|lock| lock.subject.strip_prefix("request ").unwrap_or(&lock.subject) == name);
        self.waiters.retain(|waiter| waiter.subject == name);
        self
    }

    /// Adds them to the counts of the leases.
    pub fn add_to(&self, counts: &mut Counts) {
        let waits = self.waiters.iter().map(|waiter| Duration::from_secs(waiter.waits_seconds));
        counts.longest_wait = waits.fold(counts.longest_wait, Duration::max);
        counts.orphans += self.locks.iter().filter(|lock| lock.state == "stale").count();
        counts.deadlocks += self.deadlocks;
    }

    fn add_swarm(&mut self, swarm: &Swarm, now: WallTime) {
        for (task, state) in swarm.list(now).unwrap_or_default() {
            let path = swarm.path(&task).map(|path| path.to_string_lossy().into_owned());
            let lock = ForeignLock { path: path.unwrap_or_default(), ..ForeignLock::new("swarm", task) };
            self.locks.push(match state {
                Ok(state) => {
                    let record = state.record.as_ref();
                    ForeignLock {
                        holder: record.map(|record| record.worker_id.clone()).unwrap_or_default(),
                        state: state.verdict.word(),
                        reason: state.verdict.to_string(),
                        since: record.map(|record| record.acquired_at.to_string()),
                        expires_at: record.and_then(TaskRecord::expires_at).map(|end| end.to_string()),
                        ..lock
                    }
                }
                Err(error) => ForeignLock { reason: error.to_string(), ..lock },
            });
        }
    }

    fn add_aiflow(&mut self, aiflow: &Aiflow, now: WallTime) {
        for (subject, state) in aiflow.list(now).unwrap_or_default() {
            let name = match &subject {
                Subject::Queue => "queue".to_owned(),
                Subject::Request(id) => format!("request {id}"),
            };
            let is_plain = state.as_ref().is_ok_and(|state| state.plain_run.is_some());
            let path = if is_plain { aiflow.plain_path(&subject) } else { aiflow.path(&subject).ok() };
            let path = path.map(|path| path.to_string_lossy().into_owned());
            let lock = ForeignLock { path: path.unwrap_or_default(), ..ForeignLock::new("aiflow", name) };
            self.locks.push(match state {
                Ok(state) => {
                    let record = state.record.as_ref();
                    let process = record.and_then(|record| record.pid).map(|pid| format!("pid {pid}"));
                    let run = state.run_id().map(str::to_owned);
                    ForeignLock {
                        holder: run.into_iter().chain(process).collect::<Vec<_>>().join(", "),
                        state: state.verdict.word(),
                        reason: state.verdict.to_string(),
                        since: record.map(|record| record.created_at.to_string()),
                        expires_at: record.map(|record| record.expires_at.to_string()),
                        ..lock
                    }
                }
                Err(error) => ForeignLock { reason: error.to_string(), ..lock },
            });
        }
    }

    fn add_groups(&mut self, folders: &Folders, now: WallTime) {
        let Ok(survey) = Survey::take(folders, now.as_micros().div_euclid(1_000_000)) else { return };
        self.deadlocks += survey.cycles().len();
        for group in &survey.groups {
            let path = group.path.to_string_lossy().into_owned();
            let lock = |holder: String, state: &'static str, reason: &str| ForeignLock {
                holder,
                state,
                reason: reason.to_owned(),
                path: path.clone(),
                ..ForeignLock::new("group", group.id.clone())
            };
            for holders in by_taker(&group.lock.holders) {
                let taker =
                    holders.iter().find(|one| one.taker == Some(one.process.pid)).unwrap_or(&holders[0]);
                let who = format!("pid {} {}", taker.process.pid, taker.command);
                let who = match holders.len() - 1 {
                    0 => who,
                    more => format!("{who} (and {more} that inherited it)"),
                };
                let has = |line: &&Finding| holders.iter().any(|one| one.process.pid == line.entry.pid);
                let line = group.findings.iter().find(has);
                let since = line.map(|line| now.before(line.age).to_string());
                self.locks.push(ForeignLock { since, ..lock(who, "held", "held: the kernel has it locked") });
            }
            for line in group.findings.iter().filter(|line| line.liveness == Liveness::Dead) {
                let since = Some(now.before(line.age).to_string());
                let who = format!("pid {}", line.entry.pid);
                self.locks.push(ForeignLock { since, ..lock(who, "stale", "stale: its process has ended") });
            }
            self.waiters.extend(group.lock.waiters.iter().map(|waiter| ForeignWaiter {
                format: "group",
                subject: group.id.clone(),
                pid: waiter.process.pid,
                command: waiter.command.clone(),
                waits_seconds: process::age(waiter.process).unwrap_or_default().as_secs(),
            }));
        }
    }
}

impl ForeignLock {
    /// Whether it is held, as far as can be seen.
    pub fn is_held(&self) -> bool {
        self.state != "stale"
    }

    /// What shows more of it, or ends it.
    pub fn advice(&self) -> String {
        match self.format {
            "group" => {
                "`lockkeeper group status` shows it; it ends with the processes that have it".to_owned()
            }
            "swarm" => format!("`lockkeeper task show {}` shows it", self.subject),
            "sprint" => "`lockkeeper sprint check` shows it".to_owned(),
            _ => "`lockkeeper locks --format aiflow` shows it".to_owned(),
        }
    }

    fn new(format: &'static str, subject: String) -> Self {
        Self {
            format,
            subject,
            holder: String::new(),
            state: "unknown",
            reason: String::new(),
            path: String::new(),
            since: None,
            expires_at: None,
        }
    }
}

/// The processes that share each lock: those that inherited it from one process count together.
fn by_taker(holders: &[LockProcess]) -> Vec<Vec<&LockProcess>> {
    let mut locks: BTreeMap<u32, Vec<&LockProcess>> = BTreeMap::new();
    for holder in holders {
        locks.entry(holder.taker.unwrap_or(holder.process.pid)).or_default().push(holder);
    }
    locks.into_values().collect()
}

fn sprint(root: &Path, now: WallTime) -> Option<ForeignLock> {
    let answer = check_sprint(root, now).ok().flatten()?;
    let (state, reason) = match answer.status {
        SprintStatus::Clean | SprintStatus::Acquired | SprintStatus::Released => return None,
        SprintStatus::Blocked => ("held", "held: a sprint is running"),
        SprintStatus::ZombieDetected => ("stale", "stale: its sprint is over, or older than a day"),
        SprintStatus::Failure => ("unknown", answer.message.as_str()),
    };
    let (holder, since) = match &answer.lock_info {
        LockInfo::Present { pid, session_id, started_at, .. } => {
            let session = session_id.clone().into_iter();
            let process = pid.map(|pid| format!("pid {pid}"));
            (session.chain(process).collect::<Vec<_>>().join(", "), started_at.clone())
        }
        LockInfo::Absent | LockInfo::Unread => (String::new(), None),
    };
    let path = root.join(sprint::LOCK_FILE_NAME).to_string_lossy().into_owned();
    let reason = reason.to_owned();
    Some(ForeignLock {
        holder,
        state,
        reason,
        path,
        since,
        ..ForeignLock::new("sprint", "sprint".to_owned())
    })
}

/// Checks the sprint lock of a project; `None` if there is none.
pub(crate) fn check_sprint(root: &Path, now: WallTime) -> Result<Option<Answer>, sprint::Problem> {
    if root.join(sprint::LOCK_FILE_NAME).symlink_metadata().is_err() {
        return Ok(None);
    }
    let input = Input { mode: "check".to_owned(), project_root: Some(root.to_owned()), ..Input::default() };
    let mut caller = Caller {
        lang: Lang::En,
        answer_lang: Lang::En,
        confirm: &mut |_| false,
        tell: &mut |_| {},
        pid: std::process::id(),
    };
    // No pause: a lock file that is being written right now counts as held.
    let machine = Machine { now: &|| now, pause: &|_| {}, ..Machine::real() };
    Ok(Some(sprint::run(&input.check()?, &machine, &mut caller)))
}
