//! Application of downgrade rules: counts failures, reads load and memory, and does what a triggered rule says.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use lockkeeper_core::request::RequestStatus;
use lockkeeper_core::run::{Reason, Run};
use lockkeeper_core::time::format_span;
use lockkeeper_platform::load;
use lockkeeper_stages::{Downgrade, Fallback, Reduction};
use serde_json::json;

use super::{PhaseExecutor, PhaseListener};
use crate::stages::downgrade_rules::{RuleAction, TriggerEvent, is_network_failure, retry_rule, triggered};
use crate::stages::log::fields;
use crate::stages::outcome::{State, Stopped};
use crate::stages::phase_control::PhaseControl;
use crate::stages::{PhaseEvent, StageError};

/// How often load and memory are read while groups are ready to start.
const CHECK_EVERY: Duration = Duration::from_secs(2);

impl PhaseExecutor<'_> {
    /// Counts a failed agent, and applies the rules for failures, the network and timeouts.
    pub(super) fn count_failure(
        &self,
        run: &Run,
        control: &PhaseControl,
        state: &mut State<'_>,
        listener: PhaseListener<'_>,
    ) -> Result<(), StageError> {
        if matches!(RequestStatus::from(run), RequestStatus::Done | RequestStatus::Canceled) {
            return Ok(());
        }
        state.failures += 1;
        self.apply_rules(&TriggerEvent::Failures(state.failures), control, state, listener)?;
        if run.ending().is_some_and(is_network_failure) {
            state.network_failures += u64::from(run.attempt());
            let event = TriggerEvent::Network(state.network_failures);
            self.apply_rules(&event, control, state, listener)?;
        }
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
        control: &PhaseControl,
        state: &mut State<'_>,
        listener: PhaseListener<'_>,
    ) -> Result<(), StageError> {
        for (rule, action) in triggered(&self.stages.downgrades, event) {
            let name = &rule.name.value;
            let what = match action {
                RuleAction::Abort | RuleAction::AbortWithRollback if control.is_stopped() => continue,
                RuleAction::Abort => "abort".to_owned(),
                RuleAction::AbortWithRollback => {
                    state.outcome.rollback_wanted = true;
                    "abort with rollback".to_owned()
                }
                // The groups run one by one already.
                RuleAction::Serial(_)
                    if state.slots == 1 && control.wait_without_limit.load(Ordering::SeqCst) =>
                {
                    continue;
                }
                RuleAction::Serial(pause) => {
                    state.slots = 1;
                    state.tuned = None;
                    state.pause_between = pause;
                    control.wait_without_limit.store(true, Ordering::SeqCst);
                    state.pause_until = Instant::now().checked_add(pause);
                    "serial".to_owned()
                }
                RuleAction::ReduceParallelism(_) if state.slots <= self.fewest() => continue,
                RuleAction::ReduceParallelism(reduction) => {
                    state.slots = self.reduced(reduction, state);
                    format!("{} at a time", state.slots)
                }
                RuleAction::Pause(pause) => {
                    state.pause_until = Instant::now().checked_add(pause);
                    format!("a pause of {}", format_span(pause))
                }
                RuleAction::Notify => "told".to_owned(),
            };
            let is_downgrade = action != RuleAction::Notify;
            self.record_rule(rule, is_downgrade, what, event.to_string(), state, listener)?;
            if matches!(action, RuleAction::Abort | RuleAction::AbortWithRollback) {
                self.stop(Stopped::Rule(name.clone()), control, state, listener);
            }
        }
        Ok(())
    }

    /// Records what a rule has done: in the log, and for the user if the rule says so.
    fn record_rule(
        &self,
        rule: &Downgrade,
        is_downgrade: bool,
        what: String,
        why: String,
        state: &mut State<'_>,
        listener: PhaseListener<'_>,
    ) -> Result<(), StageError> {
        let name = &rule.name.value;
        state.outcome.downgrades += u32::from(is_downgrade);
        let status = if is_downgrade { "DOWNGRADED" } else { "NOTICED" };
        let mut line = fields([("rule", json!(name)), ("to", json!(what)), ("reason", json!(why))]);
        line.extend(rule.level.as_ref().map(|level| ("level".to_owned(), json!(level))));
        line.extend(rule.reason.as_ref().map(|note| ("note".to_owned(), json!(note))));
        self.log.write(status, line)?;
        if rule.notify {
            let downgraded = PhaseEvent::Downgraded { rule: name.clone(), what, why };
            listener(Some(&downgraded), state.progress.states());
        }
        Ok(())
    }

    /// Records that a rule has retried an agent.
    pub(super) fn record_retries(
        &self,
        agent: &str,
        run: &Run,
        state: &mut State<'_>,
        listener: PhaseListener<'_>,
    ) -> Result<(), StageError> {
        let retries = run.attempt().saturating_sub(1);
        match retry_rule(&self.stages.downgrades) {
            Some(rule) if retries > 0 => {
                let what = if retries == 1 { "1 retry".to_owned() } else { format!("{retries} retries") };
                let why = format!("agent {agent} failed before");
                self.record_rule(rule, true, what, why, state, listener)
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Records the conflict rules by which groups do not run side by side: once for an execution.
    pub(super) fn record_fallbacks(
        &self,
        state: &mut State<'_>,
        listener: PhaseListener<'_>,
    ) -> Result<(), StageError> {
        if self.options.resume {
            return Ok(());
        }
        for Fallback { rule, strategy, why } in self.plan.fallbacks() {
            let what = strategy.as_str().to_lowercase();
            state.outcome.downgrades += 1;
            let line = fields([("rule", json!(rule)), ("to", json!(what)), ("reason", json!(why))]);
            self.log.write("DOWNGRADED", line)?;
            let downgraded = PhaseEvent::Downgraded { rule: rule.to_owned(), what, why };
            listener(Some(&downgraded), state.progress.states());
        }
        Ok(())
    }

    /// Applies the rules for conflicts that the plan has.
    pub(super) fn check_plan(
        &self,
        control: &PhaseControl,
        state: &mut State<'_>,
        listener: PhaseListener<'_>,
    ) -> Result<(), StageError> {
        let rulings = self.plan.findings.conflicts.iter().map(|conflict| conflict.ruling);
        let names: BTreeSet<Option<&str>> = rulings.map(|ruling| self.plan.rule_name(ruling)).collect();
        for name in names {
            let event = TriggerEvent::ConflictFound(name.map(ToOwned::to_owned));
            self.apply_rules(&event, control, state, listener)?;
        }
        Ok(())
    }

    /// The number of groups at a time after a reduction. It is never below the minimum of autotune.
    fn reduced(&self, reduction: Reduction, state: &State<'_>) -> usize {
        let now = state.slots.min(self.plan.groups.len());
        let fewer = match reduction {
            Reduction::One => (state.running().max(2) - 1).min(state.slots - 1),
            Reduction::By(number) => now.saturating_sub(usize::try_from(number).unwrap_or(usize::MAX)),
            Reduction::Half => now / 2,
        };
        fewer.max(self.fewest())
    }

    fn fewest(&self) -> usize {
        let tune = self.stages.autotune.as_ref().filter(|tune| tune.value.enabled);
        tune.and_then(|tune| usize::try_from(tune.value.min).ok()).unwrap_or(1).max(1)
    }

    /// Reads load and memory, and applies the rules for them.
    pub(super) fn check_machine(
        &self,
        control: &PhaseControl,
        state: &mut State<'_>,
        listener: PhaseListener<'_>,
    ) -> Result<(), StageError> {
        let now = Instant::now();
        if state.machine_checked_at.is_some_and(|at| now.duration_since(at) < CHECK_EVERY) {
            return Ok(());
        }
        state.machine_checked_at = Some(now);
        if let Some(load) = self.options.load.or_else(load::average) {
            self.apply_rules(&TriggerEvent::Load(load, load::cores().get()), control, state, listener)?;
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
        control: &PhaseControl,
        state: &mut State<'_>,
        listener: PhaseListener<'_>,
    ) {
        let text = why.to_string();
        state.outcome.stopped = Some(why);
        control.stop(self.worker, &text);
        listener(Some(&PhaseEvent::Stopping { why: text }), state.progress.states());
    }
}
