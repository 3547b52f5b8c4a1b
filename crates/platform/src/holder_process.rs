//! Holder process: which process a lease belongs to when the command that takes it exits at once.
//!
//! The lease lasts as long as this process lives. The user can name the process. If the user does not, the nearest
//! ancestor that outlives the command is taken: not a shell that was started only to run it, nor a wrapper such as
//! `timeout`, nor a subshell.
//!
//! A shell forks a subshell for `$(…)`, `( … )` and the parts of a pipeline. A subshell has the command line of its script, but
//! it ends at once. It is known by its memory layout: a fork has the layout of its parent, and each exec makes a new one.
//! A job in the background is chosen, because the script may end before it.

mod background;
mod role;
mod subshell;

use std::fmt;

use lockkeeper_core::liveness::ProcessRef;
use lockkeeper_core::secret::shown_command;
use thiserror::Error;

use super::process::{self, IdentifyError, MAX_PID};
use super::process_table;
use background::{Placement, is_background_command};
use role::{Role, role};
use subshell::{Ancestor, script_process};

/// The process that the kernel makes the parent of orphans.
const FIRST_PROCESS: u32 = 1;
/// The most ancestors that the search visits, so that it ends even if the process table changes meanwhile.
const MAX_STEPS: usize = 256;
/// The most characters of a command line that are shown.
const MAX_SHOWN: usize = 60;

/// The process that a lease belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HolderProcess {
    /// The process.
    pub process: ProcessRef,
    /// How it was chosen.
    pub reason: ChosenBy,
}

/// How the process was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChosenBy {
    /// The user named it with `--pid`.
    Option,
    /// An environment variable names it.
    Variable(&'static str),
    /// Nobody named it: it is an ancestor with this command line.
    Ancestor(String),
    /// Nobody named it: it is the background job, with this command line, that runs the command.
    Job(String),
    /// Nobody named it: it is an ancestor with this command line, unless the command runs in a background job, which
    /// cannot be seen.
    AncestorOrJob(String),
}

impl fmt::Display for ChosenBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Option => f.write_str("given with --pid"),
            Self::Variable(name) => write!(f, "given by {name}"),
            Self::Ancestor(command) => {
                write!(f, "the nearest ancestor that outlives this command: `{command}`")
            }
            Self::Job(command) => write!(f, "the background job that runs this command: `{command}`"),
            Self::AncestorOrJob(command) => write!(
                f,
                "the nearest ancestor that outlives this command: `{command}`; in a background job use `exec` or --pid"
            ),
        }
    }
}

/// Why the named process cannot hold a lease.
#[derive(Debug, Error)]
pub enum HolderProcessError {
    /// The value is not a process id.
    #[error("{origin} is `{}`, which is not the number of a process", value.escape_debug())]
    NotANumber {
        /// `--pid` or the name of a variable.
        origin: &'static str,
        /// What was given.
        value: String,
    },
    /// There is no such process, or it cannot be inspected.
    #[error("{origin} names a process that cannot stand for a lease")]
    NotAProcess {
        /// `--pid` or the name of a variable.
        origin: &'static str,
        /// What is wrong with it.
        source: IdentifyError,
    },
}

impl HolderProcessError {
    /// What the user can do about it.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::NotANumber { .. } | Self::NotAProcess { source: IdentifyError::OutOfRange(_), .. } => {
                "give a process number between 1 and 4194304, such as $$"
            }
            Self::NotAProcess { source: IdentifyError::NotRunning(_), .. } => {
                "name a process that lives as long as the lease, or use --ttl to hold by time alone"
            }
            Self::NotAProcess { source: IdentifyError::Thread(_), .. } => {
                "give the number of its process instead"
            }
            Self::NotAProcess { source: IdentifyError::Unreadable { .. }, .. } => {
                "use --ttl to hold by time alone where /proc cannot be read"
            }
        }
    }
}

/// Chooses the process: `--pid`, else `LOCKKEEPER_PID`, else `CLAUDE_PID`, else the nearest lasting ancestor.
///
/// Returns `None` when no ancestor outlives this process, or none can be seen.
pub fn choose(
    explicit: Option<u32>,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<HolderProcess>, HolderProcessError> {
    let named = |origin, reason, pid| match process::identify(pid) {
        Ok(process) => Ok(Some(HolderProcess { process, reason })),
        Err(source) => Err(HolderProcessError::NotAProcess { origin, source }),
    };
    if let Some(pid) = explicit {
        return named("--pid", ChosenBy::Option, pid);
    }
    for name in ["LOCKKEEPER_PID", "CLAUDE_PID"] {
        if let Some(value) = env(name).filter(|value| !value.is_empty()) {
            let number = value.parse().ok().filter(|pid| (1..=MAX_PID).contains(pid));
            let pid = number.ok_or(HolderProcessError::NotANumber { origin: name, value })?;
            return named(name, ChosenBy::Variable(name), pid);
        }
    }
    Ok(lasting_ancestor())
}

/// Returns the command line of a process in one short line; empty when it cannot be read.
pub fn command_line(pid: u32) -> String {
    shown(&process_table::arguments(pid))
}

fn lasting_ancestor() -> Option<HolderProcess> {
    let own = process_table::own_info().ok()?;
    // A process that stands directly below another one on the way up. A script is no such process for its subshells.
    let mut below = Some(own.pid);
    let mut pid = own.parent;
    let mut is_unclear = false;
    for _ in 0..MAX_STEPS {
        let ancestor = Ancestor::look(pid)?;
        let script = script_process(&ancestor);
        is_unclear |= script.placement == Placement::Unclear;
        let is_job = script.placement == Placement::Background;
        if script.pid != pid && !is_job {
            (pid, below) = (script.pid, None);
            continue;
        }
        let reason = match role(&ancestor.arguments) {
            _ if is_job => ChosenBy::Job,
            Role::PassesThrough if is_background_command(&ancestor) => ChosenBy::Job,
            Role::PassesThrough => {
                (pid, below) = (ancestor.parent, Some(pid));
                continue;
            }
            Role::Init => return None,
            Role::Lasts if pid == FIRST_PROCESS && below.is_some_and(is_orphan) => return None,
            Role::Lasts if is_unclear => ChosenBy::AncestorOrJob,
            Role::Lasts => ChosenBy::Ancestor,
        };
        let process = process::identify(script.pid).ok()?;
        return Some(HolderProcess { process, reason: reason(shown(&ancestor.arguments)) });
    }
    None
}

/// Says whether the kernel made process 1 the parent of this process when its own parent had ended (`setsid -f`). The entry point of a
/// container starts commands in its own session, as a shell does, or reads their output, as an agent does.
fn is_orphan(pid: u32) -> bool {
    let session = |pid| process_table::info(pid).ok().map(|info| info.session);
    session(pid) != session(FIRST_PROCESS) && !process_table::reads_output_of(FIRST_PROCESS, pid)
}

/// Formats a command line as one short line without control characters.
fn shown(arguments: &[String]) -> String {
    let line = shown_command(arguments).join(" ");
    let line: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    match line.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_option_comes_before_lockkeeper_pid_and_that_before_claude_pid() {
        let own = process::current().unwrap();
        let pid = own.pid.to_string();
        let everything = |name: &str| matches!(name, "LOCKKEEPER_PID" | "CLAUDE_PID").then(|| pid.clone());
        let reason = |explicit, env: &dyn Fn(&str) -> Option<String>| {
            let chosen = choose(explicit, env).unwrap().unwrap();
            assert_eq!(chosen.process, own);
            chosen.reason.to_string()
        };
        assert_eq!(reason(Some(own.pid), &everything), "given with --pid");
        assert_eq!(reason(None, &everything), "given by LOCKKEEPER_PID");
        let claude_only = |name: &str| (name == "CLAUDE_PID").then(|| pid.clone());
        assert_eq!(reason(None, &claude_only), "given by CLAUDE_PID");
    }

    #[test]
    fn bad_numbers_are_errors_with_a_hint() {
        for value in ["0", "-1", "4194305", "x", "12 ", "99999999999999999999"] {
            let refusal = choose(None, &|_| Some(value.to_owned())).unwrap_err();
            assert!(
                matches!(refusal, HolderProcessError::NotANumber { origin: "LOCKKEEPER_PID", .. }),
                "{value}"
            );
            assert!(!refusal.hint().is_empty());
        }
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        for pid in [0, u32::MAX, pid] {
            let refusal = choose(Some(pid), &|_| None).unwrap_err();
            assert!(matches!(refusal, HolderProcessError::NotAProcess { origin: "--pid", .. }), "{pid}");
        }
    }

    #[test]
    fn a_command_line_is_shown_in_one_short_line() {
        assert_eq!(shown(&["a".into(), "b\n\u{1b}[31m".into()]), "a b  [31m");
        assert_eq!(shown(&["é".repeat(100)]).chars().count(), MAX_SHOWN + 1);
    }
}
