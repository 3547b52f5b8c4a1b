//! Start of groups: the initial state of an execution, which groups may start, and one thread for each of them.

use std::collections::{HashMap, HashSet};
use std::sync::PoisonError;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

use lockkeeper_core::plan::{GroupState, Progress};
use lockkeeper_core::tune::{Bounds, Sign};
use serde_json::json;

use super::{Message, PhaseExecutor, PhaseListener};
use crate::runs::RunError;
use crate::stages::StageError;
use crate::stages::agents::request_id;
use crate::stages::downgrade_rules::{agent_timeout, lock_timeouts, retry_policy};
use crate::stages::group::GroupExecution;
use crate::stages::log::{ExecutionLog, fields};
use crate::stages::outcome::{Outcome, State};
use crate::stages::patience::Patience;
use crate::stages::phase_control::PhaseControl;

/// How long a group waits for its locks, if nothing else is said.
const LOCK_TIMEOUT: Duration = Duration::from_secs(300);

impl<'c> PhaseExecutor<'c> {
    /// The state before the first group starts. A resumed execution keeps the groups that have succeeded.
    pub(super) fn initial_state(&self) -> State<'c> {
        let bounds = self.stages.autotune.as_ref().filter(|tune| tune.value.enabled).map(|tune| {
            let number = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
            let (min, max) = (number(tune.value.min), number(tune.value.max));
            let most = self.plan.plan.slots.map_or(max, |slots| slots.get().min(max));
            Bounds {
                min: min.min(most),
                max: most,
                step: number(tune.value.step),
                decrease: number(tune.value.decrease_step),
            }
        });
        let all = self.plan.plan.slots.map_or(usize::MAX, |slots| slots.get());
        let one_by_one = all == 1;
        let execution = self.execution.lock().unwrap_or_else(PoisonError::into_inner);
        let mut progress = Progress::new(&self.plan.plan);
        for index in 0..self.plan.groups.len() {
            let done = execution.ended.get(self.plan.id(index)).is_some_and(|end| end == "SUCCESS");
            if done {
                progress.begin(index);
                progress.end(index, true);
            }
        }
        State {
            progress,
            slots: bounds.filter(|_| !one_by_one).map_or(all, |bounds| bounds.min.max(1)),
            tuned: bounds.filter(|_| !one_by_one),
            failures: 0,
            network_failures: 0,
            conflicts: HashMap::new(),
            conflicts_at: HashMap::new(),
            pause_until: None,
            pause_between: Duration::ZERO,
            streak: (Sign::Smooth, 0),
            tuned_at_conflicts: 0,
            machine_checked_at: None,
            outcome: Outcome::new(&self.id),
            execution_ids: HashMap::new(),
            waits: HashMap::new(),
            overlapped: HashSet::new(),
            critical_failed: false,
        }
    }

    /// Starts every group that may start now.
    pub(super) fn start_groups<'scope>(
        &'scope self,
        scope: &'scope thread::Scope<'scope, '_>,
        control: &'scope PhaseControl,
        sender: &Sender<Message>,
        state: &mut State<'_>,
        listener: PhaseListener<'_>,
    ) -> Result<(), StageError> {
        if control.is_stopped() || state.pause_until.is_some_and(|until| until > Instant::now()) {
            return Ok(());
        }
        if state.progress.startable(state.slots).is_empty() {
            return Ok(());
        }
        self.check_machine(control, state, listener)?;
        if control.is_stopped() {
            return Ok(());
        }
        for index in state.progress.startable(state.slots) {
            state.progress.begin(index);
            if state.running() > 1 {
                let states = state.progress.states().iter().enumerate();
                let running = states.filter(|(_, one)| **one == GroupState::Running).map(|(other, _)| other);
                state.overlapped.extend(running);
            }
            let execution_id = ExecutionLog::execution_id(self.plan.id(index));
            let pid = std::process::id();
            let line = [
                ("execution_id", json!(execution_id)),
                ("phase", json!(self.plan.phase)),
                ("group_id", json!(self.plan.id(index))),
                ("pid", json!(pid)),
            ];
            self.log.write("STARTED", fields(line))?;
            state.execution_ids.insert(index, execution_id);
            let group = self.group_execution(index, control);
            let sender = sender.clone();
            let work = move || {
                let begun = Instant::now();
                // The receiver outlives this thread, so sending does not fail.
                let send = |message| {
                    let _ = sender.send(Message::FromGroup(index, message));
                };
                let ended = group.execute(&send);
                let _ = sender.send(Message::Ended(index, ended, begun.elapsed()));
            };
            let spawned = thread::Builder::new().name(format!("group {index}")).spawn_scoped(scope, work);
            spawned.map_err(RunError::Machine)?;
        }
        Ok(())
    }

    fn group_execution<'t>(&'t self, index: usize, control: &'t PhaseControl) -> GroupExecution<'t> {
        let group = &self.plan.groups[index];
        let agents = &self.agents[index];
        let retry = retry_policy(&self.stages.downgrades);
        let most = group.max_concurrent.as_ref().map_or(agents.len() as u64, |most| most.value);
        let env = vec![
            ("LOCKKEEPER_PHASE".to_owned(), self.plan.phase.clone()),
            ("LOCKKEEPER_GROUP".to_owned(), group.id.value.clone()),
        ];
        GroupExecution {
            worker: self.worker,
            index,
            owner: self.owner(index),
            name: self.names[index].clone(),
            paths: group.conflict_paths.iter().map(|path| path.value.clone()).collect(),
            agents,
            ids: (0..agents.len()).map(|agent| request_id(&self.id, index, agent)).collect(),
            at_once: usize::try_from(most).unwrap_or(usize::MAX),
            dir: &self.options.dir,
            env,
            retry,
            timeout: agent_timeout(&self.stages.downgrades),
            patience: self.patience(),
            lock: self.locks.as_ref().map(|locks| (&locks.folders, &locks.ids[index])),
            control,
        }
    }

    /// How long a group waits for its locks: as `LOCK_TIMEOUT` says, else as the file says, else five minutes.
    pub(super) fn patience(&self) -> Patience {
        let resolution = &self.stages.resolution;
        let (each, retries) = match (self.options.lock_timeout, resolution.timeout) {
            (Some(variable), _) => (variable, 0),
            (None, Some(file)) => (file, resolution.retries),
            (None, None) => (LOCK_TIMEOUT, 0),
        };
        Patience::new(each, retries, lock_timeouts(&self.stages.downgrades))
    }
}
