//! Ending a process with everything that it started.
//!
//! Nobody is signalled by number alone: each process is known by its start time and, on Linux, signalled through a
//! handle that was verified after it was opened. A wrapper that is a subreaper inherits what its command left behind
//! and finds it among its own descendants. A stranger can only follow the tree as long as it hangs together, the
//! root's process group, and a mark in the environment; whether anything is left then is for the kernel lock to say.
//! Systems other than Linux and macOS do not show who started whom: there only the root itself is ended.

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lockkeeper_core::liveness::{ProcessRef, ProcessState};
use rustix::process::{Signal, kill_process};

use super::facts::{self, Facts, State};
use super::process::{self, checked, reference};
use super::{pidfd, poll};

/// How long killed processes may take to go; those that do not are stuck in the kernel.
const KILL_PATIENCE: Duration = Duration::from_secs(5);
/// After this time marks are looked for once more, before it is said that there are none.
const LOOK_AGAIN: Duration = Duration::from_millis(2);
/// How often processes without a handle are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Makes this process the parent of whatever its descendants leave behind. Only Linux can; elsewhere nothing happens.
pub fn become_subreaper() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    Ok(())
}

/// Everything that the process started, and what that started, as far as it still hangs together.
pub fn descendants(pid: u32) -> io::Result<Vec<ProcessRef>> {
    let everyone = facts::everyone()?;
    let below = closure(&everyone, HashSet::from([pid]));
    let alive =
        |facts: &&Facts| facts.pid != pid && below.contains(&facts.pid) && facts.state != State::Zombie;
    Ok(everyone.iter().filter(alive).map(reference).collect())
}

/// Every process of this user that was started with this variable, and what it was. Only Linux tells.
pub fn marked(name: &str) -> io::Result<Vec<(ProcessRef, String)>> {
    let alive = facts::everyone()?.into_iter().filter(|facts| facts.state != State::Zombie);
    let marked =
        alive.filter_map(|facts| Some((reference(&facts), facts::environment_value(facts.pid, name)?)));
    Ok(marked.collect())
}

/// Whether a process was started with this `NAME=value` in its environment.
pub fn carries(pid: u32, mark: &str) -> bool {
    facts::has_environment_entry(pid, mark.as_bytes())
}

/// The process that a worker started with this mark: it leads a process group, and cannot lead a session therefore.
/// What it started may lead groups of their own, but began later.
pub fn marked_leader(mark: &str) -> Option<ProcessRef> {
    let everyone = facts::everyone().ok()?;
    let leads = |facts: &&Facts| {
        facts.group == facts.pid && facts.session != facts.pid && facts.state != State::Zombie
    };
    let marked = everyone.iter().filter(leads).filter(|facts| carries(facts.pid, mark));
    marked.min_by_key(|facts| (facts.started, facts.pid)).map(reference)
}

/// What is to be ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Root {
    /// A process, all below it, and its process group if it leads one.
    Process(ProcessRef),
    /// Everything below this process, which is a subreaper and stays.
    OwnDescendants,
    /// Only what carries the mark.
    Marked,
}

/// How to end a tree.
#[derive(Clone, Copy, Debug)]
pub struct Stop<'a> {
    /// What is to be ended.
    pub root: Root,
    /// How long it may take to end by itself after it was asked.
    pub grace: Duration,
    /// `NAME=value`: processes with this in their environment belong to the tree as well.
    pub mark: Option<&'a str>,
}

/// Asks the whole tree to end (TERM), waits until it has or the grace is over, and then kills what is left.
///
/// Returns those that could not be ended: owned by another user, or stuck in the kernel. This process and its
/// ancestors are never among the targets; a root that is one of them is refused.
pub fn stop_tree(stop: &Stop<'_>) -> io::Result<Vec<ProcessRef>> {
    let mut hunt = Hunt::begin(stop)?;
    let grace_ends = Instant::now().checked_add(stop.grace);
    let mut looks_again = stop.mark.is_some();
    loop {
        for target in hunt.find()? {
            target.send(Signal::TERM);
            // A stopped process acts on it only when it goes on.
            if target.facts.state == State::Stopped {
                target.send(Signal::CONT);
            }
            hunt.targets.push(target);
        }
        if hunt.targets.is_empty() {
            // A process that exchanges its program shows its mark only most of the time.
            if std::mem::take(&mut looks_again) {
                std::thread::sleep(LOOK_AGAIN);
                continue;
            }
            return Ok(Vec::new());
        }
        if !hunt.wait_for_one(grace_ends)? {
            break;
        }
    }
    hunt.kill()
}

struct Hunt<'a> {
    stop: &'a Stop<'a>,
    spared: HashSet<u32>,
    targets: Vec<Target>,
}

impl<'a> Hunt<'a> {
    fn begin(stop: &'a Stop<'a>) -> io::Result<Self> {
        let spared = own_line()?;
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

    /// Those that belong to the tree, live and are not yet among the targets.
    fn find(&self) -> io::Result<Vec<Target>> {
        let mut everyone = facts::everyone()?;
        let mut seeds: HashSet<u32> = self.targets.iter().map(|target| target.facts.pid).collect();
        match self.stop.root {
            Root::OwnDescendants => {
                seeds.insert(std::process::id());
            }
            Root::Marked => {}
            Root::Process(root) => {
                if everyone.is_empty() {
                    everyone.extend(facts::of(root.pid).ok());
                }
                let root_lives = everyone.iter().any(|facts| reference(facts) == root);
                let in_group = |facts: &Facts| facts.group == root.pid;
                // A group's number is given again once its last member is gone.
                if root_lives || self.targets.iter().any(|target| in_group(&target.facts)) {
                    seeds.extend(everyone.iter().filter(|facts| in_group(facts)).map(|facts| facts.pid));
                }
                if root_lives {
                    seeds.insert(root.pid);
                }
            }
        }
        if let Some(mark) = self.stop.mark {
            let marked = |facts: &&Facts| facts::has_environment_entry(facts.pid, mark.as_bytes());
            seeds.extend(everyone.iter().filter(marked).map(|facts| facts.pid));
        }
        let tree = closure(&everyone, seeds);
        let known: HashSet<ProcessRef> = self.targets.iter().map(|target| reference(&target.facts)).collect();
        let fresh = everyone.into_iter().filter(|facts| {
            tree.contains(&facts.pid)
                && facts.state != State::Zombie
                && !self.spared.contains(&facts.pid)
                && !known.contains(&reference(facts))
        });
        Ok(fresh.filter_map(Target::open).collect())
    }

    /// Waits until at least one target has ended, and forgets those; false when the time was up first.
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
                remaining.min(Some(LOOK_EVERY)).or(Some(LOOK_EVERY))
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

    /// Kills until nothing is left, and returns what cannot be killed.
    fn kill(mut self) -> io::Result<Vec<ProcessRef>> {
        let patience_ends = Instant::now().checked_add(KILL_PATIENCE);
        loop {
            self.freeze()?;
            if self.targets.is_empty() {
                return Ok(Vec::new());
            }
            for target in &self.targets {
                target.send(Signal::KILL);
            }
            if !self.wait_for_one(patience_ends)? {
                return Ok(self.targets.iter().map(|target| reference(&target.facts)).collect());
            }
        }
    }

    /// Stops everyone first, so that nobody who is about to die leaves a child that no scan has seen.
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
    facts: Facts,
    handle: Option<Arc<OwnedFd>>,
}

impl Target {
    /// None when it ended in the meantime.
    fn open(facts: Facts) -> Option<Self> {
        match process::watch(reference(&facts)) {
            process::Watch::Exit(handle) => Some(Self { facts, handle: Some(handle) }),
            process::Watch::Gone => None,
            process::Watch::Unavailable => Some(Self { facts, handle: None }),
        }
    }

    /// What cannot be signalled shows by not ending.
    fn send(&self, signal: Signal) {
        let _ = match &self.handle {
            Some(handle) => pidfd::send(handle, signal).ok(),
            None if process::look(reference(&self.facts)) == ProcessState::Running => {
                checked(self.facts.pid).and_then(|pid| kill_process(pid, signal).ok())
            }
            None => None,
        };
    }

    fn has_ended(&self) -> bool {
        match &self.handle {
            Some(handle) => pidfd::has_ended(handle).unwrap_or(false),
            None => match process::look(reference(&self.facts)) {
                ProcessState::Gone | ProcessState::Reused => true,
                ProcessState::Running | ProcessState::Unreadable => false,
            },
        }
    }
}

/// The seeds and everything below them.
fn closure(everyone: &[Facts], mut tree: HashSet<u32>) -> HashSet<u32> {
    loop {
        let before = tree.len();
        tree.extend(
            everyone
                .iter()
                .filter(|facts| tree.contains(&facts.parent))
                .map(|facts| facts.pid)
                .collect::<Vec<_>>(),
        );
        if tree.len() == before {
            return tree;
        }
    }
}

/// This process and everything above it, init included.
fn own_line() -> io::Result<HashSet<u32>> {
    let own = facts::own()?;
    let mut line = HashSet::from([1, own.pid]);
    let mut parent = own.parent;
    while parent != 0 && line.insert(parent) {
        parent = facts::of(parent).map_or(0, |facts| facts.parent);
    }
    Ok(line)
}
