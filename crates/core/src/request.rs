//! Requests: something that somebody wants done, and everything that has to be known to do it.

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

/// What is to be done, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its id, which its user may choose.
    pub id: RequestId,
    /// What it is about, for people.
    pub title: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The folder to run in.
    pub dir: String,
    /// The environment that the command gets; nothing else of the submitter's.
    pub env: Vec<(String, String)>,
    /// Names to hold while it runs.
    pub locks: Vec<Name>,
    /// Paths to hold while it runs.
    pub paths: Vec<Pattern>,
    /// Whether what it holds can be shared with others that share it.
    pub shared: bool,
    /// How urgent it is.
    pub priority: Priority,
    /// What has to be done before.
    pub after: Vec<RequestId>,
    /// How long it may wait for somebody to begin with it.
    pub queue_timeout: Option<Duration>,
    /// How long an attempt may take.
    pub timeout: Option<Duration>,
    /// When a failed attempt is made again.
    pub retry: RetryPolicy,
    /// The exit codes that are a success.
    pub success: Vec<u8>,
    /// The same key gives the same request, however often it is submitted.
    pub key: Option<String>,
    /// Who asked for it: a group of a stage, a task of a swarm; `kind:id`.
    pub origin: Option<String>,
}

impl Request {
    /// A command to be run in a folder, with nothing around it: no environment, no locks, one attempt, no limits.
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

    /// Whether it has to hold anything.
    pub fn needs_lease(&self) -> bool {
        !self.locks.is_empty() || !self.paths.is_empty()
    }

    /// What it has to hold, all or none.
    pub fn resources(&self) -> Vec<Resource> {
        let mode = if self.shared { Mode::Shared } else { Mode::Exclusive };
        let names = self.locks.iter().cloned().map(Target::Name);
        let targets = names.chain(self.paths.iter().cloned().map(Target::Path));
        targets.map(|target| Resource { target, mode }).collect()
    }

    /// The task of a swarm that it is for; whoever executes it holds the task's lock.
    pub fn task(&self) -> Option<&str> {
        self.origin.as_deref()?.strip_prefix("swarm:")
    }

    /// The group of a stage that it is a part of. It is executed by whoever conducts the group, and by nobody else, and
    /// shares the group's leases as one owner.
    pub fn conductor(&self) -> Option<&str> {
        self.origin.as_deref().filter(|origin| origin.starts_with("stage:"))
    }

    /// The lease and lock file that it needs, as a text: requests with the same text need the same. Empty if it needs none.
    pub fn lease_key(&self) -> String {
        if !self.needs_lease() && self.task().is_none() {
            return String::new();
        }
        let names = self.locks.iter().map(|name| format!("n{name}"));
        let paths = self.paths.iter().map(|path| format!("p{path}"));
        let task = self.task().map(|task| format!("t{task}"));
        let mut all: Vec<String> = names.chain(paths).chain(task).collect();
        all.sort();
        all.dedup();
        format!("{}\n{}", if self.shared { "shared" } else { "exclusive" }, all.join("\n"))
    }
}

/// Where a request is, as its latest run says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RequestStatus {
    /// It waits to be executed.
    Queued,
    /// It is being executed, and locked.
    Running,
    /// It is done.
    Done,
    /// It needs somebody.
    NeedsInput,
    /// It did not work.
    Failed,
    /// It was called off.
    Canceled,
}

impl RequestStatus {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Queued, Self::Running, Self::Done, Self::NeedsInput, Self::Failed, Self::Canceled];

    /// What the latest run makes of its request.
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

    /// The word for it.
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

    /// Reads the word in any case.
    fn from_str(text: &str) -> Result<Self, NotARequestStatus> {
        let found = Self::ALL.into_iter().find(|status| status.as_str().eq_ignore_ascii_case(text));
        found.ok_or_else(|| NotARequestStatus(text.to_owned()))
    }
}

/// A word that is no status.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{0}` is not the status of a request")]
pub struct NotARequestStatus(String);

impl NotARequestStatus {
    /// The way out, for the person who wrote it.
    pub fn hint(&self) -> String {
        format!("one of {}", RequestStatus::ALL.map(RequestStatus::as_str).join(", "))
    }
}

impl fmt::Display for RequestStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Finds a circle in "comes after": each of the result comes after the next, and the last after the first.
pub fn circle<'r>(
    requests: impl IntoIterator<Item = (&'r RequestId, &'r [RequestId])>,
) -> Option<Vec<RequestId>> {
    let edges: HashMap<&RequestId, &[RequestId]> = requests.into_iter().collect();
    let mut done: HashSet<&RequestId> = HashSet::new();
    let mut starts: Vec<&RequestId> = edges.keys().copied().collect();
    starts.sort();
    for start in starts {
        // A path and, for each of its places, how many of the edges were followed.
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
        let circle = circle(graph.iter().map(|(id, after)| (id, after.as_slice())))?;
        Some(circle.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_circle_is_named_whole() {
        assert_eq!(found(&[("a", &["b"]), ("b", &["c"]), ("c", &[])]), None);
        assert_eq!(found(&[("a", &["b", "c"]), ("b", &["c"]), ("c", &[])]), None);
        assert_eq!(found(&[("a", &["a"])]), Some(vec!["a".into()]));
        let circle = found(&[("x", &["a"]), ("a", &["b"]), ("b", &["c", "x0"]), ("c", &["a"])]);
        assert_eq!(circle, Some(vec!["a".into(), "b".into(), "c".into()]));
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
