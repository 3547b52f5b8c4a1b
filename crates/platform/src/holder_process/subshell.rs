//! Subshells: finds the shell that runs a script, from one of the copies of itself that it forks.

use std::thread;
use std::time::Duration;

use super::MAX_STEPS;
use super::background::{Placement, placement};
use super::role::is_shell;
use crate::process_table::{self, MemoryLayout};

/// How many times, [`PAUSE`] apart, a process is looked at that another process is just starting.
pub(super) const LOOKS: u32 = 100;
pub(super) const PAUSE: Duration = Duration::from_millis(1);

/// What is seen of an ancestor.
pub(super) struct Ancestor {
    pub(super) pid: u32,
    pub(super) parent: u32,
    pub(super) arguments: Vec<String>,
    /// `None` if this user may not see it.
    layout: Option<MemoryLayout>,
}

impl Ancestor {
    /// Looks at a process. If the process is in the middle of exec, waits for the end of that: until then its command line and its
    /// layout do not belong together.
    pub(super) fn look(pid: u32) -> Option<Self> {
        let parent = process_table::info(pid).ok()?.parent;
        let mut looks = 0;
        loop {
            let layout = process_table::memory_layout(pid);
            let arguments = process_table::arguments(pid);
            let is_settled = !arguments.is_empty() && process_table::memory_layout(pid) == layout;
            looks += 1;
            if is_settled || looks == LOOKS {
                return Some(Self { pid, parent, arguments, layout });
            }
            thread::sleep(PAUSE);
        }
    }
}

/// The process that stands for a shell, and how the last subshell below it was started.
pub(super) struct Script {
    pub(super) pid: u32,
    pub(super) placement: Placement,
}

/// Returns the shell that runs a script, for the shell itself or one of its subshells. A subshell in the background, and
/// everything that is not a shell, stands for itself.
pub(super) fn script_process(ancestor: &Ancestor) -> Script {
    let mut script = Script { pid: ancestor.pid, placement: Placement::Foreground };
    if is_shell(&ancestor.arguments) {
        for above in forked_from(ancestor) {
            match placement(script.pid, above) {
                Placement::Background => return Script { placement: Placement::Background, ..script },
                Placement::Unclear => script.placement = Placement::Unclear,
                Placement::Foreground => {}
            }
            script.pid = above;
        }
    }
    script
}

/// The ancestors that a process is a fork of, nearest first: they have its command line and its memory layout.
///
/// There may be others between them. In `cat < <(f)` bash forks a subshell, which forks the one that runs `f` and then turns
/// into `cat`. Where layouts cannot be seen, equal command lines count, one below the other. The lease is then held too long
/// rather than not at all.
fn forked_from(process: &Ancestor) -> Vec<u32> {
    let mut found = Vec::new();
    let mut pid = process.parent;
    for _ in 0..MAX_STEPS {
        let Some(above) = Ancestor::look(pid) else { break };
        let has_arguments = above.arguments == process.arguments;
        let is_same = match (process.layout, above.layout) {
            (Some(own), Some(other)) => has_arguments && own == other,
            (None, _) | (_, None) if !has_arguments => break,
            (None, _) | (_, None) => true,
        };
        if is_same {
            found.push(pid);
        }
        pid = above.parent;
    }
    found
}
