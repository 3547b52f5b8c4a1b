//! Requests: what a user wants done, and everything that a worker needs to do it.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;

use crate::id::{Name, RequestId};
use crate::pattern::Pattern;
use crate::record::Priority;
use crate::resource::{Mode, Resource, Target};
use crate::retry::RetryPolicy;
use crate::run::{Reason, Run, Status};

/// A command to execute, with its conditions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its id, which the user may choose.
    pub id: RequestId,
    /// A title for people.
    pub title: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The folder to run in.
    pub dir: String,
    /// The whole environment of the command.
    pub env: Vec<(String, String)>,
    /// Names that are locked while it runs.
    pub locks: Vec<Name>,
    /// Paths that are locked while it runs.
    pub paths: Vec<Pattern>,
    /// Whether its locks are shared.
    pub shared: bool,
    /// Labels of workers: only a worker that has all of them executes it.
    pub needs: Vec<Name>,
    /// Its priority.
    pub priority: Priority,
    /// The requests that have to be done before.
    pub after: Vec<RequestId>,
    /// How long it may wait in the queue.
    pub queue_timeout: Option<Duration>,
    /// How long an attempt may take.
    pub timeout: Option<Duration>,
    /// When a failed attempt is retried.
    pub retry: RetryPolicy,
    /// The exit codes that mean success.
    pub success: Vec<u8>,
    /// The idempotency key: submitting the same key again returns the same request.
    pub key: Option<String>,
    /// Where it comes from: a group of a stage or a task of a swarm, as `kind:id`.
    pub origin: Option<String>,
}

impl Request {
    /// Creates a request for a command in a folder, with no environment, no locks, one attempt and no limits.
    pub fn new(id: RequestId, command: Vec<String>, dir: String) -> Self {
        Self {
            id,
            title: String::new(),
            command,
            dir,
            env: Vec::new(),
            locks: Vec::new(),
            paths: Vec::new(),
            shared: false,
            needs: Vec::new(),
            priority: Priority::default(),
            after: Vec::new(),
            queue_timeout: None,
            timeout: None,
            retry: RetryPolicy::default(),
            success: vec![0],
            key: None,
            origin: None,
        }
    }

    /// Says whether it needs a lease.
    pub fn needs_lease(&self) -> bool {
        !self.locks.is_empty() || !self.paths.is_empty()
    }

    /// Returns the resources of its lease.
    pub fn resources(&self) -> Vec<Resource> {
        let mode = if self.shared { Mode::Shared } else { Mode::Exclusive };
        let names = self.locks.iter().cloned().map(Target::Name);
        let targets = names.chain(self.paths.iter().cloned().map(Target::Path));
        targets.map(|target| Resource { target, mode }).collect()
    }

    /// Returns the task of a swarm that it is for. The process that executes it holds the lock of the task.
    pub fn task(&self) -> Option<&str> {
        self.origin.as_deref()?.strip_prefix("swarm:")
    }

    /// Returns the group of a stage that it belongs to. Only the process that runs the group executes it. It shares the
    /// leases of the group as one owner.
    pub fn conductor(&self) -> Option<&str> {
        self.origin.as_deref().filter(|origin| origin.starts_with("stage:"))
    }

    /// Says whether any worker can execute it at once: it needs no lease, no lock file and no labels.
    pub fn is_plain(&self) -> bool {
        !self.needs_lease() && self.task().is_none() && self.needs.is_empty()
    }

    /// Returns the labels that it needs and a worker with these labels does not have.
    pub fn missing_labels<'r>(&'r self, labels: &[Name]) -> Vec<&'r Name> {
        self.needs.iter().filter(|needed| !labels.contains(needed)).collect()
    }

    /// Returns the lease, the lock file and the labels that it needs, as a text. Two requests with the same text need the same.
    /// Empty if it needs none.
    pub fn lease_key(&self) -> String {
        if self.is_plain() {
            return String::new();
        }
        let names = self.locks.iter().map(|name| format!("n{name}"));
        let paths = self.paths.iter().map(|path| format!("p{path}"));
        let task = self.task().map(|task| format!("t{task}"));
        let labels = self.needs.iter().map(|label| format!("l{label}"));
        let mut all: Vec<String> = names.chain(paths).chain(task).chain(labels).collect();
        all.sort();
        all.dedup();
        format!("{}\n{}", if self.shared { "shared" } else { "exclusive" }, all.join("\n"))
    }
}

/// The status of a request, which follows from its latest run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RequestStatus {
    /// It waits in the queue.
    Queued,
    /// It is being executed.
    Running,
    /// It is done.
    Done,
    /// It needs the answer of a person.
    NeedsInput,
    /// It failed.
    Failed,
    /// It was canceled.
    Canceled,
}

impl RequestStatus {
    /// Every status.
    pub const ALL: [Self; 6] =
        [Self::Queued, Self::Running, Self::Done, Self::NeedsInput, Self::Failed, Self::Canceled];

    /// Returns the status of a request from its latest run.
    pub fn of_run(status: Status, reason: Option<Reason>) -> Self {
        match (status, reason) {
            (Status::Queued, _) => Self::Queued,
            (Status::Running | Status::Cancelling, _) => Self::Running,
            (Status::Succeeded, _) => Self::Done,
            (Status::Failed, Some(Reason::NeedsInput)) => Self::NeedsInput,
            (Status::Failed | Status::TimedOut | Status::Rejected, _) => Self::Failed,
            (Status::Canceled, _) => Self::Canceled,
        }
    }

    /// Returns its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "QUEUED",
            Self::Running => "RUNNING",
            Self::Done => "DONE",
            Self::NeedsInput => "NEEDS_INPUT",
            Self::Failed => "FAILED",
            Self::Canceled => "CANCELED",
        }
    }
}

impl From<&Run> for RequestStatus {
    fn from(run: &Run) -> Self {
        Self::of_run(run.status(), run.reason())
    }
}

impl FromStr for RequestStatus {
    type Err = NotARequestStatus;

    /// Parses the name in any case.
    fn from_str(text: &str) -> Result<Self, NotARequestStatus> {
        let found = Self::ALL.into_iter().find(|status| status.as_str().eq_ignore_ascii_case(text));
        found.ok_or_else(|| NotARequestStatus(text.to_owned()))
    }
}

/// A text is not a status.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{0}` is not the status of a request")]
pub struct NotARequestStatus(String);

impl NotARequestStatus {
    /// What the user can do about it.
    pub fn hint(&self) -> String {
        format!("one of {}", RequestStatus::ALL.map(RequestStatus::as_str).join(", "))
    }
}

impl fmt::Display for RequestStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Finds a cycle of dependencies: each request of the result depends on the next, and the last on the first.
pub fn find_cycle<'r>(
    requests: impl IntoIterator<Item = (&'r RequestId, &'r [RequestId])>,
) -> Option<Vec<RequestId>> {
    let edges: HashMap<&RequestId, &[RequestId]> = requests.into_iter().collect();
    let mut done: HashSet<&RequestId> = HashSet::new();
    let mut starts: Vec<&RequestId> = edges.keys().copied().collect();
    starts.sort();
    for start in starts {
        // The current path and, for each request on it, how many of its edges were followed.
        let mut path: Vec<(&RequestId, usize)> = vec![(start, 0)];
        while let Some((at, next)) = path.last_mut() {
            let place = *at;
            let target = edges.get(place).and_then(|after| after.get(*next));
            *next += 1;
            match target {
                None => {
                    done.insert(place);
                    path.pop();
                }
                Some(target) if done.contains(target) => {}
                Some(target) => match path.iter().position(|(on_path, _)| *on_path == target) {
                    Some(first) => return Some(path[first..].iter().map(|(id, _)| (*id).clone()).collect()),
                    None => path.push((target, 0)),
                },
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(edges: &[(&str, &[&str])]) -> Vec<(RequestId, Vec<RequestId>)> {
        let id = |text: &str| text.parse::<RequestId>().unwrap();
        edges.iter().map(|(from, to)| (id(from), to.iter().map(|to| id(to)).collect())).collect()
    }

    fn found(edges: &[(&str, &[&str])]) -> Option<Vec<String>> {
        let graph = graph(edges);
        let cycle = find_cycle(graph.iter().map(|(id, after)| (id, after.as_slice())))?;
        Some(cycle.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_cycle_is_returned_completely() {
        assert_eq!(found(&[("a", &["b"]), ("b", &["c"]), ("c", &[])]), None);
        assert_eq!(found(&[("a", &["b", "c"]), ("b", &["c"]), ("c", &[])]), None);
        assert_eq!(found(&[("a", &["a"])]), Some(vec!["a".into()]));
        let cycle = found(&[("x", &["a"]), ("a", &["b"]), ("b", &["c", "x0"]), ("c", &["a"])]);
        assert_eq!(cycle, Some(vec!["a".into(), "b".into(), "c".into()]));
    }

    #[test]
    fn the_latest_run_decides_on_the_request() {
        assert_eq!(RequestStatus::of_run(Status::Succeeded, None), RequestStatus::Done);
        assert_eq!(
            RequestStatus::of_run(Status::Failed, Some(Reason::NeedsInput)),
            RequestStatus::NeedsInput
        );
        assert_eq!(RequestStatus::of_run(Status::Failed, Some(Reason::ExitCode)), RequestStatus::Failed);
        assert_eq!(
            RequestStatus::of_run(Status::TimedOut, Some(Reason::QueueTimeout)),
            RequestStatus::Failed
        );
    }
}
