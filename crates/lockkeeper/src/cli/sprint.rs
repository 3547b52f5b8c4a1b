//! `sprint`: the lock file `.sprint-running`, which lets one sprint run at a time.

mod hold;

use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_formats::sprint::{
    self, Answer, Call, Caller, Input, Lang, LockInfo, Machine, Mode, Notice, Problem, Severity, Status,
    Text, USER_CONFIRM_TIMEOUT,
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
    lockkeeper sprint check --project-root . || echo 'not now'\n  lockkeeper sprint release --project-root . --session-id sprint-1\n  \
    lockkeeper sprint hold --project-root . --session-id sprint-1 --epic-spec epic5 -- ./run-the-sprint\n\n\
    Prints status, mode, lock_info, message and errors as YAML, or with --json as JSON. Exit code 0: acquired, released, \
    clean; 75: blocked, zombie-detected; 1: failure; 2: bad input. A lock whose process is gone, that is older than 24 \
    hours or that cannot be parsed is a zombie: acquire asks before it takes it over (30 seconds, then no; standard \
    input may be a pipe). The lock is tied to a process that outlives this command: --pid, LOCKKEEPER_PID, \
    CLAUDE_PID, else the nearest ancestor that is not a shell started just for it, nor a subshell. hold ties it to the \
    command, releases it at the end, and exits as the command does; 76: another sprint has taken the lock meanwhile."
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
    /// With hold: the process that takes the lock and then becomes the command
    #[arg(long, hide = true)]
    in_place: bool,
    /// With hold: the command and its arguments
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
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
        Some(Box::new(["acquire", "release", "check", "hold"].into_iter().map(PossibleValue::new)))
    }
}

impl Verb for Args {
    const NAME: &'static str = "sprint";

    fn run(self, globals: &Globals) -> Result<Exit, Report> {
        let context = Context::without_store(globals)?;
        if self.mode == hold::MODE {
            return hold::run(&context, &self);
        }
        if !self.command.is_empty() {
            return Err(Report::usage(format!("sprint {} starts no command", self.mode))
                .with_hint("`lockkeeper sprint hold … -- CMD` holds the lock while a command runs"));
        }
        let done = Done::of(&context, &self, &self.mode, None);
        done.print(&context);
        if done.answer.status == Status::Acquired {
            print::check_written("the lock was released").inspect_err(|_| {
                // The caller does not know of it.
                Done::of(&context, &self, "release", None);
            })?;
        }
        Ok(exit(&done.answer))
    }
}

fn input(context: &Context, args: &Args, mode: &str) -> Input {
    Input {
        mode: mode.to_owned(),
        project_root: args.project_root.as_ref().map(|root| context.cwd.join(root)),
        session_id: args.session_id.clone(),
        epic_spec: args.epic_spec.clone(),
        force: args.force,
        lock_file_name: args.lock_file_name.clone(),
    }
}

/// A call that was carried out, with its answer.
struct Done {
    input: Input,
    lang: Lang,
    answer: Answer,
    /// The warnings that were printed before a question.
    told: Vec<String>,
}

impl Done {
    /// Carries out a call. Without `pid`, the process that the lock is tied to is looked for.
    fn of(context: &Context, args: &Args, mode: &str, pid: Option<u32>) -> Self {
        let input = input(context, args, mode);
        let lang = language(context);
        let mut told = Vec::new();
        match input.check().and_then(|call| act(context, &call, args, pid, &mut told)) {
            Ok(answer) => Self { input, lang, answer, told },
            Err(problem) => Self::refused(context, input, problem),
        }
    }

    /// The answer to bad input.
    fn refused(context: &Context, input: Input, problem: Problem) -> Self {
        let info = if input.something_is_there() { LockInfo::Unread } else { LockInfo::Absent };
        let lang = language(context);
        Self { input, lang, answer: Answer::failure(problem, info), told: Vec::new() }
    }

    /// Prints the document of the format, and everything else.
    fn print(&self, context: &Context) {
        if context.json {
            print::json(&self.answer.to_json(&self.input.mode));
        } else {
            print::document(&self.answer.to_yaml(&self.input.mode));
        }
        self.print_problems(context);
    }

    /// Prints errors, warnings and hints.
    fn print_problems(&self, context: &Context) {
        for problem in &self.answer.problems {
            if !self.told.contains(&problem.printable()) {
                print::talk(&problem_line(context, problem));
            }
            // After a success no hint is needed.
            if self.answer.status != Status::Acquired {
                print::talk(&hint_line(context, problem));
            }
        }
        if self.answer.status == Status::Acquired {
            offer_to_ignore(context, &self.input, self.lang);
        }
    }
}

fn language(context: &Context) -> Lang {
    Lang::of(Some(context.language().code()))
}

/// Carries out the call. `told` gets the warnings that were printed before a question.
fn act(
    context: &Context,
    call: &Call,
    args: &Args,
    pid: Option<u32>,
    told: &mut Vec<String>,
) -> Result<Answer, Problem> {
    let lang = language(context);
    let binding = match (call.mode(), pid) {
        (Mode::Acquire, None) => Some(Binding::choose(args, lang)?),
        (Mode::Acquire, Some(_)) | (Mode::Release | Mode::Check, _) => None,
    };
    let mut caller = Caller {
        lang,
        // Texts in JSON are English.
        answer_lang: if context.json { Lang::En } else { lang },
        confirm: &mut |question| args.yes || confirm(question, USER_CONFIRM_TIMEOUT),
        tell: &mut |notice| match notice {
            Notice::Sentence(sentence) => print::talk(sentence),
            Notice::Warning(warning) => {
                print::talk(&problem_line(context, warning));
                told.push(warning.printable());
            }
        },
        pid: pid.or(binding.as_ref().map(|binding| binding.pid)).unwrap_or(INIT),
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

/// A problem on one line. The sentences of the format are English in every language.
fn problem_line(context: &Context, problem: &Problem) -> String {
    let key = match problem.severity() {
        Severity::Fatal => "sprint.error",
        Severity::Warning => "sprint.warning",
    };
    context.say(key, &[("what", &problem.printable())])
}

/// What to do about a problem.
fn hint_line(context: &Context, problem: &Problem) -> String {
    let hint = context.say(&format!("sprint.hint.{}", problem.hint_key()), &[]);
    format!("{}: {hint}", context.say("hint", &[]))
}

fn offer_to_ignore(context: &Context, input: &Input, lang: Lang) {
    let name = input.lock_file_name.as_deref().unwrap_or(sprint::LOCK_FILE_NAME);
    let Some(root) = &input.project_root else { return };
    if sprint::is_ignored(root, name) == Some(false) {
        let text = Text::NotIgnored.fill(lang, &[("file", name)]);
        print::talk(&format!("{}: {text}", context.say("hint", &[])));
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
