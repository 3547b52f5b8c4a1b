//! Which process stands for a lease that is taken by a command which exits.
//!
//! The command itself is gone a moment later. Somebody can name the process; if nobody does, the nearest ancestor
//! that outlives the command is taken: not a shell that was started just to run it, nor a wrapper such as `timeout`.

use std::fmt;

use lockkeeper_core::liveness::ProcessRef;
use lockkeeper_core::secret::shown_command;
use thiserror::Error;

use super::facts;
use super::process::{self, IdentifyError, MAX_PID};

const SHELLS: [&str; 12] =
    ["sh", "ash", "bash", "busybox", "dash", "fish", "ksh", "mksh", "oksh", "rbash", "yash", "zsh"];
const WRAPPERS: [&str; 18] = [
    "chroot", "chrt", "doas", "env", "ionice", "nice", "nohup", "nsenter", "runuser", "setsid", "stdbuf",
    "strace", "su", "sudo", "time", "timeout", "unshare", "xargs",
];
/// They never end: reaching one means that nobody stands for the command.
const INITS: [&str; 10] = [
    "catatonit",
    "docker-init",
    "dumb-init",
    "init",
    "launchd",
    "runit",
    "s6-svscan",
    "systemd",
    "tini",
    "tini-static",
];
/// Deeper than any tree of shells; a table that changes under the walk cannot make it endless.
const MAX_STEPS: usize = 256;
const MAX_SHOWN: usize = 60;

/// The process that stands for a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anchor {
    /// The process.
    pub process: ProcessRef,
    /// Why it was chosen.
    pub reason: AnchorReason,
}

/// Why a process was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnchorReason {
    /// By `--pid`.
    Option,
    /// By an environment variable.
    Variable(&'static str),
    /// By nobody: it is an ancestor, with this command line.
    Ancestor(String),
}

impl fmt::Display for AnchorReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Option => f.write_str("given with --pid"),
            Self::Variable(name) => write!(f, "given by {name}"),
            Self::Ancestor(command) => {
                write!(f, "the nearest ancestor that outlives this command: `{command}`")
            }
        }
    }
}

/// Why the process that somebody named cannot stand for a lease.
#[derive(Debug, Error)]
pub enum AnchorError {
    /// Not a number of a process at all.
    #[error("{origin} is `{}`, which is not the number of a process", value.escape_debug())]
    NotANumber {
        /// `--pid` or the name of a variable.
        origin: &'static str,
        /// What was given.
        value: String,
    },
    /// No such process, or one that cannot be looked at.
    #[error("{origin} names a process that cannot stand for a lease")]
    NotAProcess {
        /// `--pid` or the name of a variable.
        origin: &'static str,
        /// What is wrong with it.
        source: IdentifyError,
    },
}

impl AnchorError {
    /// The way out, for the person who named it.
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
/// None means that nothing but init stands above: then only time can end the lease.
pub fn choose(
    explicit: Option<u32>,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<Anchor>, AnchorError> {
    let named = |origin, reason, pid| match process::identify(pid) {
        Ok(process) => Ok(Some(Anchor { process, reason })),
        Err(source) => Err(AnchorError::NotAProcess { origin, source }),
    };
    if let Some(pid) = explicit {
        return named("--pid", AnchorReason::Option, pid);
    }
    for name in ["LOCKKEEPER_PID", "CLAUDE_PID"] {
        if let Some(value) = env(name).filter(|value| !value.is_empty()) {
            let number = value.parse().ok().filter(|pid| (1..=MAX_PID).contains(pid));
            let pid = number.ok_or(AnchorError::NotANumber { origin: name, value })?;
            return named(name, AnchorReason::Variable(name), pid);
        }
    }
    Ok(lasting_ancestor())
}

/// The command line of a process in one short line; empty when it cannot be read.
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "only Linux shows who holds a file lock"))]
pub(super) fn command_line(pid: u32) -> String {
    shown(&facts::arguments(pid))
}

fn lasting_ancestor() -> Option<Anchor> {
    let mut pid = facts::own().ok()?.parent;
    for _ in 0..MAX_STEPS {
        let facts = facts::of(pid).ok()?;
        let arguments = facts::arguments(pid);
        match role(&arguments) {
            Role::PassesThrough => pid = facts.parent,
            Role::Init => return None,
            Role::Lasts => {
                let process = process::identify(pid).ok()?;
                return Some(Anchor { process, reason: AnchorReason::Ancestor(shown(&arguments)) });
            }
        }
    }
    None
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// It ends with the command that it runs.
    PassesThrough,
    /// It is there for good.
    Init,
    Lasts,
}

fn role(arguments: &[String]) -> Role {
    let mut words = arguments.iter().map(String::as_str);
    // A login shell calls itself `-bash`.
    let path = words.next().unwrap_or_default().trim_start_matches('-');
    let mut name = path.rsplit('/').next().unwrap_or_default();
    if name == "busybox" {
        name = words.next().unwrap_or_default();
    }
    let runs_one_command = SHELLS.contains(&name) && has_command_option(words);
    if runs_one_command || WRAPPERS.contains(&name) {
        Role::PassesThrough
    } else if INITS.contains(&name) {
        Role::Init
    } else {
        Role::Lasts
    }
}

/// Whether a shell's options, before its script if there is one, hold a `-c`: `-c`, `-lc`, `-e -o pipefail -c`.
fn has_command_option<'a>(mut words: impl Iterator<Item = &'a str>) -> bool {
    while let Some(word) = words.next() {
        match word {
            "--" | "-" => return false,
            "--command" => return true,
            "--rcfile" | "--init-file" | "--init-command" => drop(words.next()),
            _ if word.starts_with("--command=") => return true,
            _ if word.starts_with("--") => {}
            _ if word.starts_with('-') && word.contains('c') => return true,
            _ if word.starts_with(['-', '+']) && word.ends_with(['o', 'O']) => drop(words.next()),
            _ if word.starts_with(['-', '+']) => {}
            _ => return false,
        }
    }
    false
}

/// One line, not too long, without anything that could disturb a terminal.
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

    fn role_of(line: &str) -> Role {
        role(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn what_ends_with_the_command_is_passed_by() {
        let lines = [
            "sh -c x",
            "/bin/bash -lc x",
            "bash -e -o pipefail -c x",
            "bash --norc --noprofile -ec x",
            "bash --rcfile /c -c x",
            "-zsh -c x",
            "busybox sh -c x",
            "fish --command=x",
            "dash -ec x",
            "timeout 5 x",
            "/usr/bin/sudo -E x",
            "xargs -n1 x",
            "env -S x",
        ];
        for line in lines {
            assert_eq!(role_of(line), Role::PassesThrough, "{line}");
        }
    }

    #[test]
    fn interactive_shells_scripts_and_programs_last() {
        let lines = [
            "bash",
            "-bash",
            "bash -i",
            "bash --rcfile /tmp/c",
            "sh deploy.sh -c",
            "bash -e deploy.sh -c x",
            "sh -o errexit build.sh",
            "zsh -l",
            "node /usr/bin/agent -c",
            "python3 -c x",
            "sh -- -c",
            "busybox httpd -c x",
        ];
        for line in lines {
            assert_eq!(role_of(line), Role::Lasts, "{line}");
        }
        assert_eq!(role(&[]), Role::Lasts);
        assert_eq!(role_of("/usr/lib/systemd/systemd --user"), Role::Init);
    }

    #[test]
    fn the_option_counts_before_the_variables_and_these_in_order() {
        let own = process::current().unwrap();
        let pid = own.pid.to_string();
        let everything = |name: &str| matches!(name, "LOCKKEEPER_PID" | "CLAUDE_PID").then(|| pid.clone());
        let reason = |explicit, env: &dyn Fn(&str) -> Option<String>| {
            let anchor = choose(explicit, env).unwrap().unwrap();
            assert_eq!(anchor.process, own);
            anchor.reason.to_string()
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
            assert!(matches!(refusal, AnchorError::NotANumber { origin: "LOCKKEEPER_PID", .. }), "{value}");
            assert!(!refusal.hint().is_empty());
        }
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        for pid in [0, u32::MAX, pid] {
            let refusal = choose(Some(pid), &|_| None).unwrap_err();
            assert!(matches!(refusal, AnchorError::NotAProcess { origin: "--pid", .. }), "{pid}");
        }
    }

    #[test]
    fn a_command_line_is_shown_in_one_short_line() {
        assert_eq!(shown(&["a".into(), "b\n\u{1b}[31m".into()]), "a b  [31m");
        assert_eq!(shown(&["é".repeat(100)]).chars().count(), MAX_SHOWN + 1);
    }
}
