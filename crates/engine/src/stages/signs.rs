//! Signs that things go badly, and what is done about them.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use lockkeeper_core::request::RequestStatus;
use lockkeeper_core::run::{Reason, Run};
use lockkeeper_core::time::format_span;
use serde_json::json;

use super::conductor::{Conductor, Watcher};
use super::downgrade::{Answer, Sign, answers};
use super::group::Control;
use super::log::fields;
use super::outcome::{State, Stopped};
use super::{News, StageError};
use lockkeeper_platform::load;

/// How often the machine is looked at, while groups wait to begin.
const LOOK_EVERY: Duration = Duration::from_secs(2);

impl Conductor<'_> {
    pub(super) fn count_failure(
        &self,
        run: &Run,
        control: &Control,
        state: &mut State<'_>,
        watch: Watcher<'_>,
    ) -> Result<(), StageError> {
        if matches!(RequestStatus::from(run), RequestStatus::Done | RequestStatus::Canceled) {
            return Ok(());
        }
        state.failures += 1;
        self.answer(&Sign::Failures(state.failures), control, state, watch)?;
        if run.reason == Some(Reason::ExecutionTimeout) {
            self.answer(&Sign::Timeout(run.timeout.unwrap_or_default()), control, state, watch)?;
        }
        Ok(())
    }

    /// Does what the file's rules say about a sign.
    pub(super) fn answer(
        &self,
        sign: &Sign,
        control: &Control,
        state: &mut State<'_>,
        watch: Watcher<'_>,
    ) -> Result<(), StageError> {
        for (rule, answer) in answers(&self.stages.downgrades, sign) {
            let what = match answer {
                Answer::Abort if control.is_stopped() => continue,
                Answer::Abort => "abort".to_owned(),
                // Whoever runs alone already cannot be made slower.
                Answer::Serial(_) if state.slots == 1 && control.patient.load(Ordering::SeqCst) => continue,
                Answer::Serial(pause) => {
                    state.slots = 1;
                    state.tuned = None;
                    control.patient.store(true, Ordering::SeqCst);
                    state.pause_until = Instant::now().checked_add(pause);
                    "serial".to_owned()
                }
                Answer::Fewer if state.slots == 1 => continue,
                Answer::Fewer => {
                    state.slots = (state.running().max(2) - 1).min(state.slots - 1);
                    format!("{} at a time", state.slots)
                }
                Answer::Pause(pause) => {
                    state.pause_until = Instant::now().checked_add(pause);
                    format!("a pause of {}", format_span(pause))
                }
                Answer::Tell => "told".to_owned(),
            };
            state.outcome.downgrades += u32::from(answer != Answer::Tell);
            let status = if answer == Answer::Tell { "NOTICED" } else { "DOWNGRADED" };
            let line = [("rule", json!(rule)), ("to", json!(what)), ("reason", json!(sign.to_string()))];
            self.log.write(status, fields(line))?;
            let news = News::Downgraded { rule: rule.to_owned(), what, why: sign.to_string() };
            watch(Some(&news), state.progress.states());
            if answer == Answer::Abort {
                self.stop(Stopped::Rule(rule.to_owned()), control, state, watch);
            }
        }
        Ok(())
    }

    pub(super) fn look_at_machine(
        &self,
        control: &Control,
        state: &mut State<'_>,
        watch: Watcher<'_>,
    ) -> Result<(), StageError> {
        let now = Instant::now();
        if state.looked_at.is_some_and(|at| now.duration_since(at) < LOOK_EVERY) {
            return Ok(());
        }
        state.looked_at = Some(now);
        if let Some(load) = self.options.load.or_else(load::average) {
            self.answer(&Sign::Load(load), control, state, watch)?;
        }
        if let Some(share) = load::memory_in_use() {
            self.answer(&Sign::Memory(share), control, state, watch)?;
        }
        Ok(())
    }

    pub(super) fn stop(&self, why: Stopped, control: &Control, state: &mut State<'_>, watch: Watcher<'_>) {
        let text = why.to_string();
        state.outcome.stopped = Some(why);
        control.stop(self.executor, &text);
        watch(Some(&News::Stopping { why: text }), state.progress.states());
    }
}
