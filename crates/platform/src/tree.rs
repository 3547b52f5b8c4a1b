//! Process trees: finds and stops a process with all of its descendants.
//!
//! No process is signalled by its pid alone: its start time is compared, and on Linux the signal goes through a pidfd
//! that is verified after opening. A wrapper is a subreaper: orphans of its command become its children, so it finds
//! them among its descendants. Another process can only follow parent links that are not broken, the process group of
//! the root, and a mark in the environment. After that, the liveness lock says whether a process is left. Systems other
//! than Linux and macOS do not show parents: there only the root itself is stopped.

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lockkeeper_core::liveness::{ProcessRef, ProcessState};
use rustix::process::{Signal, kill_process};

use super::process::{self, checked, reference};
use super::process_table::{self, ProcessInfo, TaskState};
use super::{pidfd, poll};

/// How long killed processes may take to end. A process that takes longer is stuck in the kernel.
const KILL_LIMIT: Duration = Duration::from_secs(5);
/// After this time the search for marks is repeated once, before it reports that there are none.
const LOOK_AGAIN: Duration = Duration::from_millis(2);
/// How often processes without a pidfd are polled.
const POLL_EVERY: Duration = Duration::from_millis(10);

/// Makes this process the parent of orphaned descendants (subreaper). Does nothing on systems other than Linux.
pub fn become_subreaper() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    Ok(())
}

/// Returns the descendants of a process, as far as the parent links reach.
pub fn descendants(pid: u32) -> io::Result<Vec<ProcessRef>> {
    let processes = process_table::all()?;
    let below = with_descendants(&processes, HashSet::from([pid]));
    let alive =
        |info: &&ProcessInfo| info.pid != pid && below.contains(&info.pid) && info.state != TaskState::Zombie;
    Ok(processes.iter().filter(alive).map(reference).collect())
}

/// Returns every process of this user that was started with this variable, and the value. Only Linux shows it.
pub fn marked(name: &str) -> io::Result<Vec<(ProcessRef, String)>> {
    let alive = process_table::all()?.into_iter().filter(|info| info.state != TaskState::Zombie);
    let marked =
        alive.filter_map(|info| Some((reference(&info), process_table::environment_value(info.pid, name)?)));
    Ok(marked.collect())
}

/// Says whether a process was started with this `NAME=value` in its environment.
pub fn has_mark(pid: u32, mark: &str) -> bool {
    process_table::has_environment_entry(pid, mark.as_bytes())
}

/// Returns the process that a worker started with this mark. It leads a process group, and so it does not lead a
/// session. Its descendants may lead groups too, but they started later.
pub fn marked_leader(mark: &str) -> Option<ProcessRef> {
    let processes = process_table::all().ok()?;
    let leads = |info: &&ProcessInfo| {
        info.group == info.pid && info.session != info.pid && info.state != TaskState::Zombie
    };
    let marked = processes.iter().filter(leads).filter(|info| has_mark(info.pid, mark));
    marked.min_by_key(|info| (info.started, info.pid)).map(reference)
}

/// Where the tree starts that is to be stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Root {
    /// A process, its descendants, and its process group if it leads one.
    Process(ProcessRef),
    /// The descendants of this process, which is a subreaper. This process itself goes on.
    OwnDescendants,
    /// Only processes with the mark.
    Marked,
}

/// How to stop a tree.
#[derive(Clone, Copy, Debug)]
pub struct Stop<'a> {
    /// Where the tree starts.
    pub root: Root,
    /// How long the processes may take to end after SIGTERM.
    pub grace: Duration,
    /// `NAME=value`: processes with this in their environment belong to the tree too.
    pub mark: Option<&'a str>,
}

/// Sends SIGTERM to the whole tree, waits until it has ended or the grace is over, and then kills the rest.
///
/// Returns the processes that could not be stopped: those of another user, and those stuck in the kernel. This process
/// and its ancestors are never stopped; a root that is one of them is refused.
pub fn stop_tree(stop: &Stop<'_>) -> io::Result<Vec<ProcessRef>> {
    let mut stopping = TreeStop::new(stop)?;
    let grace_ends = Instant::now().checked_add(stop.grace);
    let mut looks_again = stop.mark.is_some();
    loop {
        for target in stopping.find()? {
            target.send(Signal::TERM);
            // A stopped process handles SIGTERM only after it is continued.
            if target.info.state == TaskState::Stopped {
                target.send(Signal::CONT);
            }
            stopping.targets.push(target);
        }
        if stopping.targets.is_empty() {
            // During exec a process may not show its mark.
            if std::mem::take(&mut looks_again) {
                std::thread::sleep(LOOK_AGAIN);
                continue;
            }
            return Ok(Vec::new());
        }
        if !stopping.wait_for_one(grace_ends)? {
            break;
        }
    }
    stopping.kill()
}

/// A tree that is being stopped.
struct TreeStop<'a> {
    stop: &'a Stop<'a>,
    /// This process and its ancestors, which are never signalled.
    spared: HashSet<u32>,
    targets: Vec<Target>,
}

impl<'a> TreeStop<'a> {
    fn new(stop: &'a Stop<'a>) -> io::Result<Self> {
        let spared = own_ancestors()?;
        match stop.root {
            Root::Process(root) if spared.contains(&root.pid) => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("process {} is this process or started it", root.pid),
            )),
            Root::Process(_) | Root::OwnDescendants | Root::Marked => {
                Ok(Self { stop, spared, targets: Vec::new() })
            }
        }
    }

    /// Finds the live processes of the tree that are not targets yet.
    fn find(&self) -> io::Result<Vec<Target>> {
        let mut processes = process_table::all()?;
        let mut seeds: HashSet<u32> = self.targets.iter().map(|target| target.info.pid).collect();
        match self.stop.root {
            Root::OwnDescendants => {
                seeds.insert(std::process::id());
            }
            Root::Marked => {}
            Root::Process(root) => {
                if processes.is_empty() {
                    processes.extend(process_table::info(root.pid).ok());
                }
                let root_lives = processes.iter().any(|info| reference(info) == root);
                let in_group = |info: &ProcessInfo| info.group == root.pid;
                // The kernel may reuse the id of a group after its last member has ended.
                if root_lives || self.targets.iter().any(|target| in_group(&target.info)) {
                    seeds.extend(processes.iter().filter(|info| in_group(info)).map(|info| info.pid));
                }
                if root_lives {
                    seeds.insert(root.pid);
                }
            }
        }
        if let Some(mark) = self.stop.mark {
            seeds.extend(processes.iter().filter(|info| has_mark(info.pid, mark)).map(|info| info.pid));
        }
        let tree = with_descendants(&processes, seeds);
        let known: HashSet<ProcessRef> = self.targets.iter().map(|target| reference(&target.info)).collect();
        let fresh = processes.into_iter().filter(|info| {
            tree.contains(&info.pid)
                && info.state != TaskState::Zombie
                && !self.spared.contains(&info.pid)
                && !known.contains(&reference(info))
        });
        Ok(fresh.filter_map(Target::open).collect())
    }

    /// Waits until at least one target has ended, and removes those that have. Returns false when the time is up.
    fn wait_for_one(&mut self, until: Option<Instant>) -> io::Result<bool> {
        loop {
            let before = self.targets.len();
            let remaining = until.map(|until| until.saturating_duration_since(Instant::now()));
            let handles: Vec<BorrowedFd<'_>> =
                self.targets.iter().filter_map(|t| Some(t.handle.as_ref()?.as_fd())).collect();
            let all_have_handles = handles.len() == before;
            let limit = if all_have_handles {
                remaining
            } else {
                remaining.min(Some(POLL_EVERY)).or(Some(POLL_EVERY))
            };
            poll::wait(&handles, limit)?;
            self.targets.retain(|target| !target.has_ended());
            if self.targets.len() < before {
                return Ok(true);
            }
            if remaining == Some(Duration::ZERO) {
                return Ok(false);
            }
        }
    }

    /// Kills until no process is left, and returns those that cannot be killed.
    fn kill(mut self) -> io::Result<Vec<ProcessRef>> {
        let give_up_at = Instant::now().checked_add(KILL_LIMIT);
        loop {
            self.freeze()?;
            if self.targets.is_empty() {
                return Ok(Vec::new());
            }
            for target in &self.targets {
                target.send(Signal::KILL);
            }
            if !self.wait_for_one(give_up_at)? {
                return Ok(self.targets.iter().map(|target| reference(&target.info)).collect());
            }
        }
    }

    /// Sends SIGSTOP to every target first, so that no dying process leaves a new child that the search has missed.
    fn freeze(&mut self) -> io::Result<()> {
        let mut fresh = std::mem::take(&mut self.targets);
        while !fresh.is_empty() {
            for target in &fresh {
                target.send(Signal::STOP);
            }
            self.targets.append(&mut fresh);
            fresh = self.find()?;
        }
        self.targets.extend(self.find()?);
        Ok(())
    }
}

struct Target {
    info: ProcessInfo,
    handle: Option<Arc<OwnedFd>>,
}

impl Target {
    /// Opens a pidfd where there are any. Returns `None` when the process has ended meanwhile.
    fn open(info: ProcessInfo) -> Option<Self> {
        match process::watch(reference(&info)) {
            process::Watch::Exit(handle) => Some(Self { info, handle: Some(handle) }),
            process::Watch::Gone => None,
            process::Watch::Unavailable => Some(Self { info, handle: None }),
        }
    }

    /// Sends a signal. An error is ignored: the caller notices that the process does not end.
    fn send(&self, signal: Signal) {
        let _ = match &self.handle {
            Some(handle) => pidfd::send(handle, signal).ok(),
            None if process::look(reference(&self.info)) == ProcessState::Running => {
                checked(self.info.pid).and_then(|pid| kill_process(pid, signal).ok())
            }
            None => None,
        };
    }

    fn has_ended(&self) -> bool {
        match &self.handle {
            Some(handle) => pidfd::has_ended(handle).unwrap_or(false),
            None => match process::look(reference(&self.info)) {
                ProcessState::Gone | ProcessState::Reused => true,
                ProcessState::Running | ProcessState::Unreadable => false,
            },
        }
    }
}

/// Adds all descendants to a set of pids.
fn with_descendants(processes: &[ProcessInfo], mut tree: HashSet<u32>) -> HashSet<u32> {
    loop {
        let before = tree.len();
        let children: Vec<u32> =
            processes.iter().filter(|info| tree.contains(&info.parent)).map(|info| info.pid).collect();
        tree.extend(children);
        if tree.len() == before {
            return tree;
        }
    }
}

/// Returns the pids of this process and its ancestors, init included.
fn own_ancestors() -> io::Result<HashSet<u32>> {
    let own = process_table::own_info()?;
    let mut pids = HashSet::from([1, own.pid]);
    let mut parent = own.parent;
    while parent != 0 && pids.insert(parent) {
        parent = process_table::info(parent).map_or(0, |info| info.parent);
    }
    Ok(pids)
}
