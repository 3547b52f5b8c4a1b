//! End of an execution: the rollback if one is needed, the record, the log line and the metrics.

use std::path::Path;
use std::sync::PoisonError;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use lockkeeper_core::id::Name;
use lockkeeper_core::plan::GroupState;
use lockkeeper_core::retry::RetryPolicy;
use lockkeeper_platform::signal::Signals;
use lockkeeper_stages::METRICS;
use serde_json::json;

use super::{PhaseExecutor, TICK};
use crate::runs::RunError;
use crate::stages::StageError;
use crate::stages::agents::{AgentCommand, request_id};
use crate::stages::group::{End, GroupExecution};
use crate::stages::log::{ExecutionLog, fields};
use crate::stages::outcome::{Outcome, State, Stopped};
use crate::stages::phase_control::PhaseControl;

impl PhaseExecutor<'_> {
    /// Whether the rollback has to run: a rule aborted the phase, or a group on the critical path failed. A user who sends
    /// a signal wants the command to end, so there is no rollback then.
    pub(super) fn needs_rollback(&self, state: &State<'_>) -> bool {
        let wanted = match &state.outcome.stopped {
            Some(Stopped::Signal(_)) => false,
            Some(Stopped::Rule(_)) => true,
            None => state.critical_failed,
        };
        wanted && self.options.rollback.is_some()
    }

    /// Runs the rollback command as a request. Returns whether it succeeded. A signal stops it.
    pub(super) fn roll_back(&self, signals: &Signals) -> Result<Option<bool>, StageError> {
        let Some(template) = &self.options.rollback else { return Ok(None) };
        let head =
            self.execution.lock().unwrap_or_else(PoisonError::into_inner).head.clone().unwrap_or_default();
        let values =
            [("phase", self.plan.phase.as_str()), ("execution", self.id.as_str()), ("head", head.as_str())];
        let agents = [AgentCommand {
            agent: "rollback".to_owned(),
            task: Some("put things back".to_owned()),
            command: template.fill(&values),
        }];
        let control = PhaseControl::new()?;
        let index = self.plan.groups.len();
        let name: Name =
            format!("rollback-{}", self.id).parse().expect("letters, digits and dashes are a name");
        let group = GroupExecution {
            worker: self.worker,
            index,
            owner: self.owner(index),
            name,
            paths: Vec::new(),
            agents: &agents,
            ids: vec![request_id(&self.id, index, 0)],
            at_once: 1,
            dir: &self.options.dir,
            env: vec![("LOCKKEEPER_PHASE".to_owned(), self.plan.phase.clone())],
            retry: RetryPolicy::default(),
            timeout: None,
            patience: self.patience(),
            lock: None,
            control: &control,
        };
        let ended = thread::scope(|scope| {
            let (sender, receiver) = channel();
            let (group, control) = (&group, &control);
            // The receiver is gone only if reading the signals failed. Then that error is returned.
            scope.spawn(move || drop(sender.send(group.execute(&|_| {}))));
            loop {
                match receiver.recv_timeout(TICK) {
                    Ok(ended) => return ended,
                    Err(RecvTimeoutError::Disconnected) => return Ok(End::Stopped),
                    Err(RecvTimeoutError::Timeout) => {
                        if !signals.take().map_err(RunError::Machine)?.is_empty() {
                            control.stop(self.worker, "a signal came");
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

    /// Writes the record, the log line and the metrics.
    pub(super) fn finish(&self, outcome: &Outcome) -> Result<(), StageError> {
        let mut execution = self.execution.lock().unwrap_or_else(PoisonError::into_inner);
        // An execution that was stopped or failed can be resumed.
        execution.finished = outcome.is_success();
        execution.save(self.worker.runs().folder())?;
        drop(execution);
        let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        let line = [
            ("mode", json!(self.plan.plan.mode.as_str())),
            ("wall_ms", json!(millis(outcome.wall))),
            ("serial_ms", json!(millis(outcome.serial()))),
            ("waited_ms", json!(millis(outcome.waited))),
            ("downgrades", json!(outcome.downgrades)),
            ("stopped", json!(outcome.stopped.as_ref().map(ToString::to_string))),
            ("success", json!(outcome.is_success())),
        ];
        if outcome.rollback_wanted && outcome.rolled_back.is_none() {
            self.log.write("ROLLBACK", fields([("result", json!("NONE"))]))?;
        }
        self.log.write("COMPLETED", fields(line))?;
        self.write_metrics(outcome)
    }

    fn write_metrics(&self, outcome: &Outcome) -> Result<(), StageError> {
        let monitoring = &self.stages.monitoring;
        let Some(output) = monitoring.output.as_ref().filter(|_| monitoring.enabled != Some(false)) else {
            return Ok(());
        };
        // As its users write it, the path begins at the root of the repository.
        let log = ExecutionLog::of(Path::new(&self.options.dir).join(output), &self.id, &self.plan.phase);
        let count = |standing| outcome.standings.iter().filter(|one| **one == standing).count();
        let values = [
            json!(outcome.standings.len()),
            json!(count(GroupState::Succeeded)),
            json!(count(GroupState::Failed)),
            json!(count(GroupState::Skipped)),
            json!(outcome.wall.as_secs_f64()),
            json!(outcome.waited.as_secs_f64()),
            json!(outcome.downgrades),
        ];
        log.write("METRICS", METRICS.into_iter().map(ToOwned::to_owned).zip(values).collect())
    }
}
