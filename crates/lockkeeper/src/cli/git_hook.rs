//! `git-hook`: what the hooks of git call. It refuses an agent's commit of others' files, and tells others when HEAD moved.
//!
//! It exits with 1 only if it refuses. If something breaks, git goes on, and `<state>/hooks.log` has a line.

use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;

use lockkeeper_agents::{GitAnswer, GitCall, GitEvent, HookLog, answer_git, takes_part};
use lockkeeper_engine::location::{Location, LocationInputs};
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_platform::{origin, process};

use super::context::Globals;
use super::hook::{exit_well_after_a_panic, limit, named_state, program, variable};
use super::{Verb, print};

/// Answer a hook of git
#[derive(clap::Args)]
#[command(hide = true)]
pub(super) struct Args {
    /// The hook, such as pre-commit
    #[arg(value_name = "EVENT")]
    event: String,
    /// What git passes to the hook
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

impl Verb for Args {
    const NAME: &'static str = "git-hook";

    fn run(self, _globals: &Globals) -> Result<Exit, Report> {
        // A newer version may have set up a hook that this one does not know.
        let Ok(event) = self.event.parse() else { return Ok(Exit::Done) };
        Ok(run(event, self.words))
    }
}

fn run(event: GitEvent, words: Vec<String>) -> Exit {
    exit_well_after_a_panic();
    let Some(location) = location() else { return Exit::Done };
    if !takes_part(&location) {
        return Exit::Done;
    }
    let log = HookLog::new(&location.state);
    let (sender, receiver) = mpsc::channel();
    // A store that does not answer must not hold git up.
    let started = thread::Builder::new().name("git-hook".to_owned()).spawn(move || {
        // After the time limit the receiver is gone.
        let _ = sender.send(answer(event, &words, &location));
    });
    let answered = started.map_err(|error| error.to_string()).and_then(|_| {
        receiver
            .recv_timeout(limit())
            .map_err(|_| "no answer within the limit: git was let go on".to_owned())?
    });
    match answered {
        Ok(GitAnswer { message, refused }) => {
            message.iter().for_each(|message| print::talk(message));
            if refused { Exit::Failed } else { Exit::Done }
        }
        Err(error) => {
            log.add(event.name(), &error);
            Exit::Done
        }
    }
}

fn answer(event: GitEvent, words: &[String], location: &Location) -> Result<GitAnswer, String> {
    let here = origin::origin().map_err(|error| error.to_string())?;
    let ancestors = process::with_ancestors().unwrap_or_default();
    let call = GitCall {
        event,
        words,
        location,
        here: &here,
        ancestors: &ancestors,
        variable: &variable,
        program: &program,
    };
    answer_git(&call).map_err(|error| error.to_string())
}

/// The repository in which git runs. Git names it in the environment of its hooks.
fn location() -> Option<Location> {
    let named: Option<PathBuf> = named_state().filter(|named| named.is_absolute());
    LocationInputs::of_process(named).ok()?.locate().ok()
}
