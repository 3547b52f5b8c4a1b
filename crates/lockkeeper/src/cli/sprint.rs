//! `sprint`: the lock file `.sprint-running`, which lets one sprint run at a time.

use std::ffi::OsStr;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_formats::sprint::{
    self, Answer, Call, Caller, Input, Lang, LockInfo, Machine, Mode, Problem, Status, Text,
    USER_CONFIRM_TIMEOUT,
};
use lockkeeper_platform::{answer, holder_process};

use super::context::{Context, Globals};
use super::{Verb, print};

/// The process in the lock file if no other process outlives this command.
const INIT: u32 = 1;

/// Let one sprint run at a time: the lock file .sprint-running
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  lockkeeper sprint acquire --project-root . --session-id sprint-1 --epic-spec epic5\n  \
    lockkeeper sprint check --project-root . || echo 'not now'\n  lockkeeper sprint release --project-root . --session-id sprint-1\n\n\
    Prints status, mode, lock_info, message and errors as YAML, or with --json as JSON. Exit code 0: acquired, released, \
    clean; 75: blocked, zombie-detected; 1: failure; 2: bad input. A lock whose process is gone, that is older than 24 \
    hours or that cannot be parsed is a zombie: acquire asks before it takes it over (30 seconds, then no; standard \
    input may be a pipe). The lock is tied to a process that outlives this command: --pid, LOCKKEEPER_PID, \
    CLAUDE_PID, else the nearest ancestor that is not a shell started just for it, nor a subshell."
)]
pub(super) struct Args {
    /// What to do
    #[arg(value_name = "MODE", value_parser = AnyMode)]
    mode: String,
    /// The folder of the project, with the lock file
    #[arg(long, value_name = "DIR")]
    project_root: Option<PathBuf>,
    /// The id of the session that runs the sprint
    #[arg(long, value_name = "S")]
    session_id: Option<String>,
    /// What the sprint works on
    #[arg(long, value_name = "E")]
    epic_spec: Option<String>,
    /// Take over a zombie without asking, and the lock of a running sprint after asking
    #[arg(long)]
    force: bool,
    /// Answer every question with yes
    #[arg(long, short)]
    yes: bool,
    /// Another name for the lock file [default: .sprint-running]
    #[arg(long, value_name = "F")]
    lock_file_name: Option<String>,
    /// The process that the lock is tied to
    #[arg(long, value_name = "PID", allow_negative_numbers = true)]
    pid: Option<String>,
}

/// Lists the modes for help and completion, but accepts any text: the format has its own error for an unknown mode.
#[derive(Clone)]
struct AnyMode;

impl TypedValueParser for AnyMode {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        arg: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(["acquire", "release", "check"].into_iter().map(PossibleValue::new)))
    }
}

impl Verb for Args {
    const NAME: &'static str = "sprint";

    fn run(self, globals: &Globals) -> Result<Exit, Report> {
        Ok(run(&Context::without_store(globals)?, &self))
    }
}

fn run(context: &Context, args: &Args) -> Exit {
    let input = Input {
        mode: args.mode.clone(),
        project_root: args.project_root.as_ref().map(|root| context.cwd.join(root)),
        session_id: args.session_id.clone(),
        epic_spec: args.epic_spec.clone(),
        force: args.force,
        lock_file_name: args.lock_file_name.clone(),
    };
    let lang = Lang::of(context.config.text("lang"));
    let mut told = Vec::new();
    let answer = input.check().and_then(|call| act(&call, args, lang, &mut told)).unwrap_or_else(|problem| {
        let info = if input.something_is_there() { LockInfo::Unread } else { LockInfo::Absent };
        Answer::failure(problem, info)
    });
    if context.json {
        print::json(&answer.to_json(&args.mode));
    } else {
        print::document(&answer.to_yaml(&args.mode));
    }
    print_problems(&answer, &told);
    if answer.status == Status::Acquired {
        offer_to_ignore(&input, lang);
    }
    exit(&answer)
}

/// Carries out the call. `told` gets the lines that were printed before a question.
fn act(call: &Call, args: &Args, lang: Lang, told: &mut Vec<String>) -> Result<Answer, Problem> {
    let binding = match call.mode() {
        Mode::Acquire => Some(Binding::choose(args, lang)?),
        Mode::Release | Mode::Check => None,
    };
    let mut caller = Caller {
        lang,
        confirm: &mut |question| args.yes || confirm(question, USER_CONFIRM_TIMEOUT),
        tell: &mut |line| {
            print::talk(line);
            told.push(line.to_owned());
        },
        pid: binding.as_ref().map_or(INIT, |binding| binding.pid),
    };
    let answer = sprint::run(call, &Machine::real(), &mut caller);
    if let Some(binding) = binding.filter(|_| answer.status == Status::Acquired) {
        print::talk(&binding.because);
    }
    Ok(answer)
}

/// The process that the lock is tied to, and why.
struct Binding {
    pid: u32,
    because: String,
}

impl Binding {
    fn choose(args: &Args, lang: Lang) -> Result<Self, Problem> {
        let bad = |error: holder_process::HolderProcessError| Problem::BadPid(Box::new(error));
        let named = args.pid.as_deref().map(str::parse).transpose();
        let named = named.map_err(|error: std::num::ParseIntError| Problem::BadPid(Box::new(error)))?;
        let chosen = holder_process::choose(named, &|name| std::env::var(name).ok()).map_err(bad)?;
        Ok(match chosen {
            Some(chosen) => {
                let pid = chosen.process.pid;
                let values = [("pid", &*pid.to_string()), ("reason", &*chosen.reason.to_string())];
                Self { pid, because: Text::HeldByProcess.fill(lang, &values) }
            }
            None => {
                let because = Text::NoHolderProcess.fill(lang, &[("pid", &*INIT.to_string())]);
                Self { pid: INIT, because }
            }
        })
    }
}

/// Asks on stderr, and reads one line of standard input. Only `y` and `yes` mean yes.
fn confirm(question: &str, within: Duration) -> bool {
    let mut stderr = io::stderr();
    let asked = write!(stderr, "{question} ").and_then(|()| stderr.flush());
    let line = answer::read_line(io::stdin().as_fd(), within).ok().flatten().filter(|_| asked.is_ok());
    let yes = line.as_ref().is_some_and(|line| matches!(&*line.trim().to_lowercase(), "y" | "yes"));
    // At a terminal, the user's Enter has ended the line.
    if line.is_none() || !io::stdin().is_terminal() {
        let _ = writeln!(stderr);
    }
    yes
}

fn print_problems(answer: &Answer, told: &[String]) {
    for problem in &answer.problems {
        let line = problem.line();
        if !told.contains(&line) {
            print::talk(&line);
        }
        // After a success no hint is needed.
        if answer.status != Status::Acquired {
            print::talk(&format!("hint: {}", problem.hint()));
        }
    }
}

fn offer_to_ignore(input: &Input, lang: Lang) {
    let name = input.lock_file_name.as_deref().unwrap_or(sprint::LOCK_FILE_NAME);
    let Some(root) = &input.project_root else { return };
    if sprint::is_ignored(root, name) == Some(false) {
        print::talk(&format!("hint: {}", Text::NotIgnored.fill(lang, &[("file", name)])));
    }
}

fn exit(answer: &Answer) -> Exit {
    match answer.status {
        Status::Acquired | Status::Released | Status::Clean => Exit::Done,
        Status::Blocked | Status::ZombieDetected => Exit::Refused,
        Status::Failure if answer.problems.iter().any(Problem::is_bad_input) => Exit::Usage,
        Status::Failure => Exit::Failed,
    }
}
