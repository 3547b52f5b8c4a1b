//! Application of downgrade rules: counts failures, reads load and memory, and does what a triggered rule says.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use lockkeeper_core::request::RequestStatus;
use lockkeeper_core::run::{Reason, Run};
use lockkeeper_core::time::format_span;
use lockkeeper_platform::load;
use serde_json::json;

use super::{PhaseExecutor, PhaseListener};
use crate::stages::downgrade_rules::{RuleAction, TriggerEvent, triggered};
use crate::stages::group::Control;
use crate::stages::log::fields;
use crate::stages::outcome::{State, Stopped};
use crate::stages::{PhaseEvent, StageError};

/// How often load and memory are read while groups are ready to start.
const CHECK_EVERY: Duration = Duration::from_secs(2);

impl PhaseExecutor<'_> {
    /// Counts a failed agent, and applies the rules for failures and timeouts.
    pub(super) fn count_failure(
        &self,
        run: &Run,
        control: &Control,
        state: &mut State<'_>,
        listener: PhaseListener<'_>,
    ) -> Result<(), StageError> {
        if matches!(RequestStatus::from(run), RequestStatus::Done | RequestStatus::Canceled) {
            return Ok(());
        }
        state.failures += 1;
        self.apply_rules(&TriggerEvent::Failures(state.failures), control, state, listener)?;
        if run.reason() == Some(Reason::ExecutionTimeout) {
            let event = TriggerEvent::Timeout(run.timeout.unwrap_or_default());
            self.apply_rules(&event, control, state, listener)?;
        }
        Ok(())
    }

    /// Applies every rule that an event triggers.
    pub(super) fn apply_rules(
        &self,
        event: &TriggerEvent,
        control: &Control,
        state: &mut State<'_>,
        listener: PhaseListener<'_>,
    ) -> Result<(), StageError> {
        for (rule, action) in triggered(&self.stages.downgrades, event) {
            let what = match action {
                RuleAction::Abort if control.is_stopped() => continue,
                RuleAction::Abort => "abort".to_owned(),
                // The groups run one by one already.
                RuleAction::Serial(_)
                    if state.slots == 1 && control.wait_without_limit.load(Ordering::SeqCst) =>
                {
                    continue;
                }
                RuleAction::Serial(pause) => {
                    state.slots = 1;
                    state.tuned = None;
                    control.wait_without_limit.store(true, Ordering::SeqCst);
                    state.pause_until = Instant::now().checked_add(pause);
                    "serial".to_owned()
                }
                RuleAction::ReduceParallelism if state.slots == 1 => continue,
                RuleAction::ReduceParallelism => {
                    state.slots = (state.running().max(2) - 1).min(state.slots - 1);
                    format!("{} at a time", state.slots)
                }
                RuleAction::Pause(pause) => {
                    state.pause_until = Instant::now().checked_add(pause);
                    format!("a pause of {}", format_span(pause))
                }
                RuleAction::Notify => "told".to_owned(),
            };
            state.outcome.downgrades += u32::from(action != RuleAction::Notify);
            let status = if action == RuleAction::Notify { "NOTICED" } else { "DOWNGRADED" };
            let line = [("rule", json!(rule)), ("to", json!(what)), ("reason", json!(event.to_string()))];
            self.log.write(status, fields(line))?;
            let downgraded = PhaseEvent::Downgraded { rule: rule.to_owned(), what, why: event.to_string() };
            listener(Some(&downgraded), state.progress.states());
            if action == RuleAction::Abort {
                self.stop(Stopped::Rule(rule.to_owned()), control, state, listener);
            }
        }
        Ok(())
    }

    /// Reads load and memory, and applies the rules for them.
    pub(super) fn check_machine(
        &self,
        control: &Control,
        state: &mut State<'_>,
        listener: PhaseListener<'_>,
    ) -> Result<(), StageError> {
        let now = Instant::now();
        if state.machine_checked_at.is_some_and(|at| now.duration_since(at) < CHECK_EVERY) {
            return Ok(());
        }
        state.machine_checked_at = Some(now);
        if let Some(load) = self.options.load.or_else(load::average) {
            self.apply_rules(&TriggerEvent::Load(load), control, state, listener)?;
        }
        if let Some(share) = load::memory_in_use() {
            self.apply_rules(&TriggerEvent::Memory(share), control, state, listener)?;
        }
        Ok(())
    }

    /// Stops all groups.
    pub(super) fn stop(
        &self,
        why: Stopped,
        control: &Control,
        state: &mut State<'_>,
        listener: PhaseListener<'_>,
    ) {
        let text = why.to_string();
        state.outcome.stopped = Some(why);
        control.stop(self.worker, &text);
        listener(Some(&PhaseEvent::Stopping { why: text }), state.progress.states());
    }
}
