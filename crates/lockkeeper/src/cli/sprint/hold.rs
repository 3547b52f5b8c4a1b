//! `sprint hold`: holds the sprint lock while a command runs.
//!
//! The lock file names a process, and that must be the command itself: if this program is killed, the command goes on and
//! still has the lock. So this program starts itself again. The second process takes the lock with its own pid, and then becomes
//! the command. There is no moment in which the command runs and another process is named.

use std::ffi::OsString;

use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_formats::sprint::{Call, Status, release_held};
use lockkeeper_platform::exec::{Ending, Next, Spec, replace_process, start};

use super::{Args, Done, exit, hint_line, input, problem_line};
use crate::cli::context::Context;
use crate::cli::print;

/// The word on the command line. It is no mode of the format: it stands for an acquire and a release.
pub(super) const MODE: &str = "hold";
const ACQUIRE: &str = "acquire";

pub(super) fn run(context: &Context, args: &Args) -> Result<Exit, Report> {
    if args.command.is_empty() {
        return Err(Report::usage("sprint hold needs a command").with_hint("put it after `--`"));
    }
    if args.pid.is_some() {
        return Err(Report::usage("sprint hold ties the lock to its command")
            .with_hint("leave --pid out, or use sprint acquire"));
    }
    if args.in_place {
        return become_command(context, args);
    }
    let input = input(context, args, ACQUIRE);
    let call = match input.check() {
        Ok(call) => call,
        Err(problem) => return Ok(refused(context, &Done::refused(context, input, problem))),
    };
    let own = std::env::current_exe().map_err(|error| Report::of(Exit::Failed, "MACHINE", &error))?;
    let spec = Spec { program: own.into(), args: arguments(context, args), ..Spec::default() };
    let running = start(&spec, None).map_err(|error| print::not_started(&error, "nothing was locked"))?;
    let pid = running.pid();
    let ending = running.supervise(&[], &mut |_| Next::Wait).map_err(|error| {
        Report::of(Exit::Failed, "SUPERVISION_FAILED", &error)
            .with_hint("the command may still run; it holds the lock while it does")
    })?;
    give_back(context, &call, pid, ending)
}

/// Removes the lock after the end of the command.
fn give_back(context: &Context, call: &Call, pid: u32, ending: Ending) -> Result<Exit, Report> {
    match release_held(call, pid) {
        Ok(true) => Ok(print::pass_on(ending)),
        // A failure may mean that the lock was never taken. The second process has said so.
        Ok(false) if ending != Ending::Exited(0) => Ok(print::pass_on(ending)),
        Ok(false) => Err(Report::new(
            Exit::LeaseLost,
            "LEASE_LOST",
            "the sprint lock was lost; the command had ended by itself",
        )
        .with_hint("another sprint may have started meanwhile: `lockkeeper sprint check` shows it")),
        // The process of the lock is gone, so it is a zombie.
        Err(problem) => {
            print::talk(&problem_line(context, &problem));
            print::talk(&hint_line(context, &problem));
            Ok(print::pass_on(ending))
        }
    }
}

/// Takes the lock with our own pid, and becomes the command. Nothing is printed on stdout then: it is the command's.
fn become_command(context: &Context, args: &Args) -> Result<Exit, Report> {
    let pid = std::process::id();
    let done = Done::of(context, args, ACQUIRE, Some(pid));
    if done.answer.status != Status::Acquired {
        return Ok(refused(context, &done));
    }
    done.print_problems(context);
    let mut command = args.command.iter().cloned();
    let error = replace_process(command.next().unwrap_or_default(), command);
    // The lock of this process is a zombie soon, even if it cannot be removed here.
    if let Ok(call) = done.input.check() {
        let _ = release_held(&call, pid);
    }
    Err(print::not_started(&error, "the lock was released"))
}

fn refused(context: &Context, done: &Done) -> Exit {
    done.print(context);
    exit(&done.answer)
}

/// The arguments of the second process.
fn arguments(context: &Context, args: &Args) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec!["sprint".into(), MODE.into(), "--in-place".into()];
    let mut flag = |name: &str, value: Option<OsString>| {
        if let Some(value) = value {
            let mut word = OsString::from(format!("{name}="));
            word.push(value);
            words.push(word);
        }
    };
    flag("--lang", Some(context.language().code().into()));
    flag("--project-root", args.project_root.clone().map(Into::into));
    flag("--session-id", args.session_id.clone().map(Into::into));
    flag("--epic-spec", args.epic_spec.clone().map(Into::into));
    flag("--lock-file-name", args.lock_file_name.clone().map(Into::into));
    let switches = [("--json", context.json), ("--force", args.force), ("--yes", args.yes)];
    words.extend(switches.iter().filter(|(_, is_set)| *is_set).map(|(name, _)| OsString::from(name)));
    words.push("--".into());
    words.extend(args.command.iter().cloned());
    words
}
