//! `hook`: answers the hooks of coding agents. Reads JSON on standard input and prints JSON for the harness.
//!
//! It exits with 0 whatever happens, because some harnesses refuse every edit after another code. Windsurf alone is denied by
//! the code 2. If something breaks, the edit passes, and `<state>/hooks.log` has a line.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use lockkeeper_agents::{HookCall, HookLog, MAX_BYTES, Marks, Printed, Settings, answer, locate, takes_part};
use lockkeeper_core::time::parse_span;
use lockkeeper_engine::config::{Config, Inputs};
use lockkeeper_engine::report::{Exit, Report};

use super::Verb;
use super::agent_settings::settings;
use super::context::Globals;

/// How long a call may take: half of the time-out that `init` writes into the settings of harnesses.
const LIMIT: Duration = Duration::from_secs(5);
/// How long a call waits for a name at most.
const PATIENCE: Duration = Duration::from_secs(5);
/// Folders that are in the search path of every shell.
const USUAL: [&str; 3] = ["/usr/local/bin", "/usr/bin", "/bin"];

/// Answer a hook of a coding agent: JSON on stdin, JSON on stdout, always exit 0
#[derive(clap::Args)]
#[command(hide = true)]
pub(super) struct Args {
    /// Ignored: harnesses add words of their own
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

impl Verb for Args {
    const NAME: &'static str = "hook";

    fn run(self, _globals: &Globals) -> Result<Exit, Report> {
        drop(self.words);
        Ok(run())
    }
}

/// Answers one call.
pub(super) fn run() -> Exit {
    exit_well_after_a_panic();
    let (sender, receiver) = mpsc::channel();
    // The call runs in a thread of its own: neither a harness that keeps stdin open nor a store that does not answer may hold
    // the agent up.
    let started = thread::Builder::new().name("hook".to_owned()).spawn(move || {
        // After the time limit the receiver is gone.
        let _ = sender.send(answer_call());
    });
    let printed = match started {
        Ok(_) => receiver.recv_timeout(limit()),
        Err(_) => Ok(answer_call()),
    };
    let Ok(printed) = printed else {
        log("no answer within the limit: the call was let pass");
        return Exit::Done;
    };
    // If nobody reads the answer, there is nobody to tell.
    let _ = std::io::stdout().write_all(printed.stdout.as_bytes());
    let _ = std::io::stderr().write_all(printed.stderr.as_bytes());
    if printed.code == 2 { Exit::Usage } else { Exit::Done }
}

fn answer_call() -> Printed {
    let mut input = Vec::new();
    let most = MAX_BYTES as u64 + 1;
    // If reading fails, the part that was read is incomplete JSON: the call is logged and passes.
    let _ = std::io::stdin().lock().take(most).read_to_end(&mut input);
    answer(&HookCall {
        input: &input,
        marks: Marks::read(variable),
        cwd: std::env::current_dir().unwrap_or_default(),
        home: variable("HOME").map(PathBuf::from),
        state: named_state(),
        variable: &variable,
        program: &program,
        settings: &settings_of,
        patience: patience(),
    })
}

/// A release build aborts after a panic, and harnesses refuse the edit then. So the process ends here instead.
#[expect(
    clippy::disallowed_methods,
    reason = "after a panic nothing is left to be cleaned up, and the exit code counts"
)]
pub(super) fn exit_well_after_a_panic() {
    std::panic::set_hook(Box::new(|panic| {
        log(&panic.to_string());
        std::process::exit(0);
    }));
}

/// Logs into the repository of the current folder, if that takes part.
fn log(message: &str) {
    let Ok(cwd) = std::env::current_dir() else { return };
    if let Some(location) = locate(&cwd, named_state().as_deref()).filter(takes_part) {
        HookLog::new(&location.state).add("-", message);
    }
}

pub(super) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

pub(super) fn named_state() -> Option<PathBuf> {
    variable("LOCKKEEPER_DIR").map(PathBuf::from)
}

pub(super) fn limit() -> Duration {
    variable("LOCKKEEPER_AGENTS_LIMIT").and_then(|text| parse_span(&text).ok()).unwrap_or(LIMIT)
}

/// How long a call waits for a name that another owner has. It ends before the limit, so that the call is still answered.
fn patience() -> Duration {
    let named = variable("LOCKKEEPER_AGENTS_PATIENCE").and_then(|text| parse_span(&text).ok());
    named.unwrap_or(PATIENCE).min(limit() * 4 / 5)
}

/// The settings of a project. If they cannot be read, the defaults hold: the claims matter more than their times. The log says so,
/// because names for commands are off then.
fn settings_of(root: &Path) -> Settings {
    match Config::load(&Inputs { root, variable: &variable, flags: &[] }) {
        Ok(config) => settings(&config),
        Err(error) => {
            let message = format!("settings cannot be read, so names for commands are off: {error}");
            if let Some(location) = locate(root, named_state().as_deref()).filter(takes_part) {
                HookLog::new(&location.state).add_once("-", &message);
            }
            Settings::default()
        }
    }
}

/// How the agent's shell finds this program: by its name if every shell does, else by its path.
pub(super) fn program() -> String {
    let Ok(own) = std::env::current_exe() else { return "lockkeeper".to_owned() };
    let is_own = |folder: &str| {
        let found = Path::new(folder).join("lockkeeper").canonicalize();
        found.is_ok_and(|found| Ok(found) == own.canonicalize().map_err(drop))
    };
    if USUAL.iter().any(|folder| is_own(folder)) {
        "lockkeeper".to_owned()
    } else {
        own.display().to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test starts itself again, and panics there.
    #[test]
    fn a_panic_ends_the_process_with_0() {
        const MARK: &str = "LOCKKEEPER_TEST_PANIC";
        if variable(MARK).is_some() {
            exit_well_after_a_panic();
            panic!("on purpose");
        }
        let own = std::env::current_exe().unwrap();
        let name = "cli::hook::tests::a_panic_ends_the_process_with_0";
        let mut again = std::process::Command::new(own);
        let output = again.args(["--exact", name]).env(MARK, "1").output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains("running 1 test") && !text.contains("test result"), "it did not panic: {text}");
        assert_eq!(output.status.code(), Some(0), "{text}");
    }
}
