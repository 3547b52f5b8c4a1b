//! The end of an execution: things are put back if need be, and what became of it is written down.

use std::path::Path;
use std::sync::PoisonError;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use lockkeeper_core::id::Name;
use lockkeeper_core::plan::GroupState;
use lockkeeper_core::retry::RetryPolicy;
use serde_json::json;

use super::StageError;
use super::agents::{AgentCommand, request_id};
use super::conductor::{Conductor, TICK};
use super::group::{Control, End, Task};
use super::log::{ExecutionLog, fields};
use super::outcome::{Outcome, State, Stopped};
use crate::runs::RunError;
use lockkeeper_platform::signal::Signals;

impl Conductor<'_> {
    /// Whether things are to be put back: a rule ended everything after failures, or a group on the longest path failed.
    /// Whoever ends it by a signal wants it to end, and not to begin something else.
    pub(super) fn needs_rollback(&self, state: &State<'_>) -> bool {
        let wanted = match &state.outcome.stopped {
            Some(Stopped::Signal(_)) => false,
            Some(Stopped::Rule(_)) => true,
            None => state.critical_failed,
        };
        wanted && self.options.rollback.is_some()
    }

    /// Does what puts things back, as a request of its own; says whether that succeeded. A signal ends it.
    pub(super) fn roll_back(&self, signals: &Signals) -> Result<Option<bool>, StageError> {
        let Some(template) = &self.options.rollback else { return Ok(None) };
        let values = [("phase", self.plan.phase.as_str()), ("execution", self.id.as_str())];
        let agents = [AgentCommand {
            agent: "rollback".to_owned(),
            task: Some("put things back".to_owned()),
            command: template.fill(&values),
        }];
        let control = Control::new()?;
        let place = self.plan.groups.len();
        let name: Name =
            format!("rollback-{}", self.id).parse().expect("letters, digits and dashes are a name");
        let task = Task {
            executor: self.executor,
            place,
            owner: self.owner(place),
            name,
            paths: Vec::new(),
            agents: &agents,
            ids: vec![request_id(&self.id, place, 0)],
            at_once: 1,
            dir: &self.options.dir,
            env: vec![("LOCKKEEPER_PHASE".to_owned(), self.plan.phase.clone())],
            retry: RetryPolicy::default(),
            timeout: None,
            patience: self.stages.resolution.timeout,
            tell_after: Vec::new(),
            tries: 0,
            control: &control,
        };
        let ended = thread::scope(|scope| {
            let (sender, receiver) = channel();
            let (task, control) = (&task, &control);
            // Nobody listens any more only when everything is over.
            scope.spawn(move || drop(sender.send(task.execute(&|_| {}))));
            loop {
                match receiver.recv_timeout(TICK) {
                    Ok(ended) => return ended,
                    Err(RecvTimeoutError::Disconnected) => return Ok(End::Stopped),
                    Err(RecvTimeoutError::Timeout) => {
                        if !signals.take().map_err(RunError::Machine)?.is_empty() {
                            control.stop(self.executor, "a signal came");
                        }
                    }
                }
            }
        })?;
        let success = matches!(ended, End::Succeeded);
        let result = if success { "SUCCESS" } else { "FAILED" };
        self.log.write("ROLLBACK", fields([("result", json!(result))]))?;
        Ok(Some(success))
    }

    pub(super) fn finish(&self, outcome: &Outcome) -> Result<(), StageError> {
        let mut execution = self.execution.lock().unwrap_or_else(PoisonError::into_inner);
        // One that was cut short, or failed, can be gone on with.
        execution.finished = outcome.is_success();
        execution.keep(self.executor.runs().folder())?;
        drop(execution);
        let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        let line = [
            ("mode", json!(self.plan.plan.mode.as_str())),
            ("wall_ms", json!(millis(outcome.wall))),
            ("serial_ms", json!(millis(outcome.serial()))),
            ("waited_ms", json!(millis(outcome.waited))),
            ("downgrades", json!(outcome.downgrades)),
            ("stopped", json!(outcome.stopped.as_ref().map(ToString::to_string))),
        ];
        self.log.write("COMPLETED", fields(line))?;
        self.write_metrics(outcome)
    }

    fn write_metrics(&self, outcome: &Outcome) -> Result<(), StageError> {
        let monitoring = &self.stages.monitoring;
        let Some(output) = monitoring.output.as_ref().filter(|_| monitoring.enabled != Some(false)) else {
            return Ok(());
        };
        let folder = self.options.file.parent().unwrap_or(Path::new(""));
        let log = ExecutionLog::of(folder.join(output), &self.id, &self.plan.phase);
        let count = |standing| outcome.standings.iter().filter(|one| **one == standing).count();
        let line = [
            ("groups", json!(outcome.standings.len())),
            ("succeeded", json!(count(GroupState::Succeeded))),
            ("failed", json!(count(GroupState::Failed))),
            ("skipped", json!(count(GroupState::Skipped))),
            ("wall_seconds", json!(outcome.wall.as_secs_f64())),
            ("lock_wait_seconds", json!(outcome.waited.as_secs_f64())),
            ("downgrades", json!(outcome.downgrades)),
        ];
        log.write("METRICS", fields(line))
    }
}
