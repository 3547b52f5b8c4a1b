//! Background jobs: says whether a shell waits for a process that it started, by the signals that the process ignores.
//!
//! Without job control, a shell lets a job in the background ignore SIGINT and SIGQUIT. bash has an exception: if the job is a
//! function, `eval` or `.`, it ignores SIGQUIT only. bash and zsh ignore SIGQUIT themselves, but their subshells in the
//! foreground do not, nor do the commands that they run.

use std::thread;

use super::role::{Role, is_shell, role};
use super::subshell::{Ancestor, LOOKS, PAUSE};
use crate::process_table::{self, ignored_signals};

/// How a shell started a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Placement {
    /// The shell goes on when the process has ended.
    Foreground,
    /// The shell goes on at once, and may end before the process.
    Background,
    /// Either: with job control (`set -m`), and in a shell that was itself started with SIGINT ignored.
    Unclear,
}

/// Says how a shell started one of its subshells.
pub(super) fn placement(subshell: u32, script: u32) -> Placement {
    let (job, shell) = (ignored_signals(subshell), ignored_signals(script));
    // A signal that was ignored when the shell was started is ignored by everything below it, this process included.
    let is_function = || job.quit && !ignored_signals(std::process::id()).quit;
    if (job.interrupt && job.quit && !shell.interrupt) || is_function() {
        return if is_read(subshell, script) { Placement::Foreground } else { Placement::Background };
    }
    let has_own_group = || group(subshell) != group(script);
    let is_unclear = (job.interrupt && job.quit) || has_own_group();
    if is_unclear && !reads(script, subshell) { Placement::Unclear } else { Placement::Foreground }
}

/// Says whether a shell with `-c` is a job in the background of the shell above it, or of a shell that has ended.
pub(super) fn is_background_command(command: &Ancestor) -> bool {
    let job = ignored_signals(command.pid);
    is_shell(&command.arguments)
        && (job.interrupt && job.quit)
        && Ancestor::look(command.parent).is_some_and(|above| {
            let is_job_of = is_shell(&above.arguments) && !ignored_signals(above.pid).interrupt;
            // Process 1 adopts orphans, whatever its name is.
            is_job_of || above.pid == 1 || role(&above.arguments) == Role::Init
        })
}

/// Says whether the output of a subshell is read by its script, or by a command that the script runs in the foreground.
///
/// The subshell of `<(…)` ignores the same signals as a background job, but its script waits for it this way.
fn is_read(subshell: u32, script: u32) -> bool {
    let layout = process_table::memory_layout(script);
    let is_job = |pid| {
        let job = ignored_signals(pid);
        job.interrupt || job.quit && layout.is_some() && process_table::memory_layout(pid) == layout
    };
    // In this order: the script closes its end of the pipe only after it has forked the command that reads.
    let has_reader = || {
        (!ignored_signals(script).interrupt && reads(script, subshell)) || {
            let children = process_table::all().unwrap_or_default();
            let mut children = children.iter().filter(|child| child.parent == script && !is_job(child.pid));
            children.any(|child| reads(child.pid, subshell))
        }
    };
    // While a script starts a pipeline in the background, it looks for a moment as if it read the output itself, and then as if
    // the next part of the pipeline was in the foreground.
    for _ in 0..LOOKS {
        // Twice: the reader may move the pipe to another descriptor while its descriptors are listed.
        if !has_reader() && !has_reader() {
            return false;
        }
        thread::sleep(PAUSE);
    }
    true
}

fn reads(reader: u32, writer: u32) -> bool {
    process_table::reads_output_of(reader, writer)
}

fn group(pid: u32) -> Option<u32> {
    process_table::info(pid).ok().map(|info| info.group)
}
