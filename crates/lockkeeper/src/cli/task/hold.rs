//! `task hold`: locks a task, runs a command with heartbeats, and unlocks the task.

use std::ffi::OsString;
use std::time::Duration;

use lockkeeper_core::time::{Moment, format_span, parse_span};
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_formats::guard::ReplaceMethod;
use lockkeeper_formats::swarm::{Attempt, HEARTBEAT_EVERY, Swarm, TaskLock};
use lockkeeper_platform::clock;
use lockkeeper_platform::exec::{Ending, Event, Next, Spec, start};
use lockkeeper_platform::wall_clock::WallTime;

use super::{WorkerArgs, busy, swarm};
use crate::cli::args::ttl;
use crate::cli::context::Context;
use crate::cli::obtain::grace;
use crate::cli::{print, table};

/// The pause before a failed heartbeat is retried.
const RETRY: Duration = Duration::from_secs(1);

/// Hold a task while a command runs, with heartbeats
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    whose: WorkerArgs,
    /// How long the lock lives without a heartbeat
    #[arg(long, value_name = "DUR", allow_hyphen_values = true)]
    ttl: Option<String>,
    /// The interval between heartbeats [default: 10s, or a third of a shorter TTL]
    #[arg(long, value_name = "DUR", allow_hyphen_values = true)]
    interval: Option<String>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

pub(super) fn run(context: &Context, args: Args) -> Result<Exit, Report> {
    let swarm = swarm()?;
    let (task, worker) = (args.whose.task.as_str(), args.whose.worker.as_str());
    let span = args.ttl.as_deref().map(ttl).transpose()?;
    let interval = args.interval.as_deref().map(parse_span).transpose()?;
    if interval == Some(Duration::ZERO) {
        return Err(
            Report::usage("the interval of heartbeats cannot be zero").with_hint("leave --interval out")
        );
    }
    let lock = match swarm.lock(task, worker, span, WallTime::now())? {
        Attempt::Locked { lock, replaced } => {
            if let Some(old) = replaced.and_then(|standing| standing.record) {
                print::talk(&format!(
                    "taken over from {}, whose lock had expired",
                    table::plain(&old.worker_id)
                ));
            }
            lock
        }
        Attempt::Busy(standing) => return Err(busy(&swarm, task, &standing)),
    };
    let ttl = lock.record().ttl;
    let interval = interval.unwrap_or_else(|| HEARTBEAT_EVERY.min(ttl / 3));
    if interval >= ttl {
        lock.unlock()?;
        let message = format!(
            "heartbeats every {} are too rare for a TTL of {}",
            format_span(interval),
            format_span(ttl)
        );
        return Err(
            Report::usage(message).with_hint("use a third of the TTL, so that one heartbeat may be late")
        );
    }
    let mut command = args.command.into_iter();
    let spec = Spec {
        program: command.next().unwrap_or_default(),
        args: command.collect(),
        env: vec![("LOCKKEEPER_TASK".into(), task.into()), ("LOCKKEEPER_WORKER".into(), worker.into())],
        ..Spec::default()
    };
    let mut heartbeat = Heartbeat::new(lock, interval, grace(context));
    heartbeat.prepare();
    let running = match start(&spec, None) {
        Ok(running) => running,
        Err(error) => {
            heartbeat.lock.unlock()?;
            return Err(print::not_started(&error, "the task was unlocked"));
        }
    };
    let ending = running.supervise(&[], &mut |event| heartbeat.on_event(event));
    let ending = ending.map_err(|error| {
        Report::of(Exit::Failed, "SUPERVISION_FAILED", &error)
            .with_hint("the command may still run; the lock stays until its TTL ends")
    })?;
    if let Some(loss) = heartbeat.loss {
        return Err(lost(&swarm, &args.whose, loss, Some(ending)));
    }
    match heartbeat.lock.unlock() {
        Ok(true) => Ok(print::pass_on(ending)),
        Ok(false) => Err(lost(&swarm, &args.whose, Loss::TakenOver, None)),
        Err(error) => {
            // The lock ends with its TTL.
            print::report(&Report::from(error), false, context.language());
            Ok(print::pass_on(ending))
        }
    }
}

/// How a lock was lost.
#[derive(Clone, Copy)]
enum Loss {
    /// The lock file belongs to another worker, or does not exist.
    TakenOver,
    /// No heartbeat could be written before the TTL ended.
    Expired,
}

/// Writes heartbeats while the command runs, and stops the command if the lock is lost.
struct Heartbeat {
    lock: Box<TaskLock>,
    interval: Duration,
    grace: Duration,
    /// When the TTL ends unless a heartbeat succeeds.
    ends_at: Moment,
    /// Whether the user was warned about the current failure.
    warned: bool,
    loss: Option<Loss>,
}

impl Heartbeat {
    fn new(lock: Box<TaskLock>, interval: Duration, grace: Duration) -> Self {
        let ends_at = clock::now().after(lock.record().ttl);
        Self { lock, interval, grace, ends_at, warned: false, loss: None }
    }

    /// Reserves disk space for heartbeats, and warns if the file system weakens the lock.
    fn prepare(&mut self) {
        if let Err(error) = self.lock.reserve() {
            print::talk(&format!("warning: no disk space could be reserved for heartbeats: {error}"));
        }
        match self.lock.replace_method() {
            Ok(ReplaceMethod::Exchange) | Err(_) => {}
            Ok(ReplaceMethod::TwoRenames) => print::talk(
                "warning: this file system cannot exchange two file names; another program that breaks stale locks \
                 could take the lock between two steps",
            ),
        }
    }

    fn on_event(&mut self, event: Event) -> Next {
        match event {
            Event::Started | Event::Ready(_) => Next::WaitUntil(clock::now().after(self.interval)),
            Event::Deadline => self.beat(),
        }
    }

    fn beat(&mut self) -> Next {
        let began = clock::now();
        match self.lock.heartbeat(WallTime::now()) {
            Ok(true) => {
                self.ends_at = began.after(self.lock.record().ttl);
                self.warned = false;
                Next::WaitUntil(began.after(self.interval))
            }
            Ok(false) => self.stop(Loss::TakenOver),
            Err(_) if self.ends_at <= clock::now() => self.stop(Loss::Expired),
            Err(error) => {
                if !self.warned {
                    print::talk(&format!("warning: the heartbeat failed and is retried: {error}"));
                    self.warned = true;
                }
                Next::WaitUntil(clock::now().after(RETRY.min(self.interval)))
            }
        }
    }

    fn stop(&mut self, loss: Loss) -> Next {
        self.loss = Some(loss);
        Next::Stop(self.grace)
    }
}

fn lost(swarm: &Swarm, whose: &WorkerArgs, loss: Loss, stopped: Option<Ending>) -> Report {
    let holder = swarm.show(&whose.task, WallTime::now()).ok().flatten().and_then(|standing| standing.record);
    let how = match (loss, &holder) {
        (Loss::TakenOver, Some(holder)) => format!("{} has it now", holder.worker_id.escape_debug()),
        (Loss::TakenOver, None) => "its lock file is gone".to_owned(),
        (Loss::Expired, _) => "no heartbeat could be written in time".to_owned(),
    };
    let what = match stopped {
        Some(ending) => format!("the command was stopped and {ending}"),
        None => "the command had ended by itself".to_owned(),
    };
    let message = format!("the lock on {} was lost ({how}); {what}", whose.task.escape_debug());
    Report::new(Exit::LeaseLost, "LEASE_LOST", message)
        .with_hint("another worker may have started that task: check before you try again")
        .with_context("task_id", whose.task.as_str())
        .with_context("holder", holder.map(|record| record.to_object()))
}
