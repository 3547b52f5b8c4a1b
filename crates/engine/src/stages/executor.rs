//! Executor of one phase: starts groups in the order of the plan, handles their messages, and records how they end.
//!
//! ```text
//!  start_groups ──► one thread for each group: GroupExecution ──► Message ──► handle_message ──► log, listener
//!       ▲                                                                          │
//!       └────────────── slots, pause, stop (downgrade rules, autotune) ◄───────────┘
//! ```

mod checks;
mod finish;
mod rules;
mod start;

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use lockkeeper_core::id::{Name, Owner};
use lockkeeper_core::plan::{GroupState, Mode};
use lockkeeper_core::record::Lease;
use lockkeeper_core::tune::{Observation, Sign as Smoothness, judge, tune};
use lockkeeper_formats::group::{Folders, GroupId};
use lockkeeper_platform::load;
use lockkeeper_platform::signal::Signals;
use lockkeeper_stages::{PhasePlan, Stages};
use serde_json::json;

use self::checks::{conflict_lines, group_locks, queued_groups, reject_all};
use super::agents::{AgentCommand, commands, digest};
use super::downgrade_rules::TriggerEvent;
use super::group::{End, GroupMessage};
use super::log::{ExecutionLog, fields};
use super::outcome::{Outcome, State, Stopped, critical};
use super::phase_control::PhaseControl;
use super::record::{self, Execution};
use super::{PhaseEvent, StageError};
use crate::conflicts::ConflictLog;
use crate::runs::{RunError, template::Template};
use crate::stage_names;
use crate::work::{ControlListener, Worker};

/// How often the executor checks for signals and calls the listener while nothing happens.
const TICK: Duration = Duration::from_millis(200);

/// How a phase is executed.
pub struct Options {
    /// The STAGES.yml. Logs are written beside it, and `resume` finds earlier executions by its path.
    pub file: PathBuf,
    /// The folder in which commands run.
    pub dir: String,
    /// The command of agents that have none in the file.
    pub template: Option<Template>,
    /// The command that runs after an abort, or after a group on the critical path failed.
    pub rollback: Option<Template>,
    /// Whether to continue the latest execution that is not finished.
    pub resume: bool,
    /// The load to assume; none to read the load of the machine.
    pub load: Option<f64>,
    /// How long a group waits for its locks. It replaces the value in the file.
    pub lock_timeout: Option<Duration>,
    /// The folder of group locks that groups take besides their leases.
    pub lock_folders: Option<Folders>,
}

/// The lock folder, and the name of the lock of each group.
pub struct GroupLocks {
    pub(super) folders: Folders,
    pub(super) ids: Vec<GroupId>,
}

/// Called with each event, and every [`TICK`] without one. The second argument has the state of every group.
pub type PhaseListener<'w> = &'w mut dyn FnMut(Option<&PhaseEvent>, &[GroupState]);

/// Executor of one phase.
pub struct PhaseExecutor<'c> {
    worker: &'c Arc<Worker>,
    stages: &'c Stages,
    plan: &'c PhasePlan,
    options: Options,
    log: ExecutionLog,
    id: String,
    execution: Mutex<Execution>,
    /// Only one process at a time executes this execution: the one that holds this lease.
    lease: Lease,
    agents: Vec<Vec<AgentCommand>>,
    names: Vec<Name>,
    locks: Option<GroupLocks>,
    critical: Vec<bool>,
}

/// A message from the thread of a group. The number is the group's index in the plan.
enum Message {
    FromGroup(usize, GroupMessage),
    Ended(usize, Result<End, StageError>, Duration),
}

impl<'c> PhaseExecutor<'c> {
    /// Checks the plan, writes its conflicts to the log, and begins or resumes an execution. Starts no group.
    pub fn new(
        worker: &'c Arc<Worker>,
        stages: &'c Stages,
        plan: &'c PhasePlan,
        options: Options,
    ) -> Result<Self, StageError> {
        let log_path = ExecutionLog::path_beside(&options.file);
        if !plan.findings.conflicts.is_empty() || !plan.findings.same_dir.is_empty() {
            let lines = conflict_lines(plan);
            ConflictLog::beside(&options.file).append(&lines)?;
        }
        if plan.plan.mode == Mode::Abort {
            reject_all(worker, plan, &options)?;
            return Err(StageError::Abort(plan.plan.reason.clone()));
        }
        let (waiting, size) = (queued_groups(plan), stages.resolution.queue_size);
        if waiting > size {
            return Err(StageError::QueueFull { waiting, size });
        }
        let agents = commands(plan, options.template.as_ref())?;
        let names = plan.groups.iter().map(|group| {
            let id = &group.id.value;
            id.parse::<Name>().map_err(|source| StageError::GroupName { group: id.clone(), source })
        });
        let names = names.collect::<Result<Vec<_>, _>>()?;
        let locks = options.lock_folders.clone().map(|folders| group_locks(plan, folders)).transpose()?;
        let (execution, lease) = record::begin(worker, plan, &options)?;
        let log = ExecutionLog::of(log_path, &execution.id, &plan.phase);
        let (id, execution) = (execution.id.clone(), Mutex::new(execution));
        let critical = critical(&plan.plan);
        Ok(Self { worker, stages, plan, options, log, id, execution, lease, agents, names, locks, critical })
    }

    /// The id of the execution.
    pub fn execution(&self) -> &str {
        &self.id
    }

    /// Executes the phase. The first signal stops all groups, the second one kills what has not stopped yet.
    pub fn execute(self, signals: &Signals, listener: PhaseListener<'_>) -> Result<Outcome, StageError> {
        // Before the listener, which rescues all runs: what belongs to this execution is waited for.
        let mut adopted = Vec::new();
        if self.options.resume {
            let prefix = format!("{}.", self.id);
            adopted = self.worker.rescuer().rescue(|run| run.request.as_str().starts_with(&prefix))?;
        }
        let control_listener = ControlListener::begin(self.worker, None)?;
        let control = PhaseControl::new()?;
        let begun = Instant::now();
        let mut state = self.initial_state();
        let (sender, receiver) = channel();
        self.record_fallbacks(&mut state, listener)?;
        self.check_plan(&control, &mut state, listener)?;
        let executed = thread::scope(|scope| {
            let result = loop {
                if let Err(error) = self.start_groups(scope, &control, &sender, &mut state, listener) {
                    break Err(error);
                }
                if state.progress.is_over() {
                    break Ok(());
                }
                let nothing_runs = !state.progress.states().contains(&GroupState::Running);
                if nothing_runs && control.is_stopped() {
                    break Ok(());
                }
                if let Err(error) = self.handle_message(&receiver, signals, &control, &mut state, listener) {
                    break Err(error);
                }
            };
            if result.is_err() {
                control.stop(self.worker, "the executor failed");
            }
            result
        });
        for (run, thread) in adopted {
            // After a stop, the group of an adopted run may never have started. A run that has ended does not change.
            let _ = self.worker.runs().cancel(&run, Some("everything was ended"));
            let _ = thread.join();
        }
        executed?;
        state.outcome.standings = state.progress.states().to_vec();
        state.outcome.wall = begun.elapsed();
        if self.needs_rollback(&state) {
            state.outcome.rolled_back = self.roll_back(signals)?;
        }
        drop(control_listener);
        self.finish(&state.outcome)?;
        // If the release fails, the end of this process frees the lease.
        let _ = self.worker.leases().release(self.lease.id, Some(self.lease.token));
        Ok(state.outcome)
    }

    /// Handles one message of a group, or the end of a tick. Then checks for signals.
    fn handle_message(
        &self,
        receiver: &Receiver<Message>,
        signals: &Signals,
        control: &PhaseControl,
        state: &mut State<'_>,
        listener: PhaseListener<'_>,
    ) -> Result<(), StageError> {
        match receiver.recv_timeout(TICK) {
            Ok(Message::FromGroup(_, GroupMessage::Event(event))) => {
                if let PhaseEvent::GroupStarted { group, waited } = &event {
                    state.outcome.waited += *waited;
                    state.waits.insert(*group, *waited);
                }
                if let PhaseEvent::AgentEnded { agent, run, .. } = &event {
                    self.record_retries(agent, run, state, listener)?;
                    self.count_failure(run, control, state, listener)?;
                }
                listener(Some(&event), state.progress.states());
            }
            Ok(Message::FromGroup(_, GroupMessage::LockTimeout(waited, handled))) => {
                self.apply_rules(&TriggerEvent::LockTimeout(waited), control, state, listener)?;
                // After a stop the group does not wait for this any more.
                let _ = handled.send(());
            }
            Ok(Message::FromGroup(index, GroupMessage::Blocked(held))) => {
                *state.conflicts.entry(index).or_default() += 1;
                for path in held {
                    let count = state.conflicts_at.entry(path.clone()).or_default();
                    *count += 1;
                    let event = TriggerEvent::Conflicts { path, count: *count };
                    self.apply_rules(&event, control, state, listener)?;
                }
            }
            Ok(Message::Ended(index, end, took)) => {
                self.group_ended(index, end?, took, control, state, listener)?;
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                listener(None, state.progress.states());
            }
        }
        for signal in signals.take().map_err(RunError::Machine)? {
            if control.is_stopped() {
                // Nobody wants to wait for the grace any more.
                self.worker.kill_all();
            } else {
                self.stop(Stopped::Signal(signal), control, state, listener);
            }
        }
        Ok(())
    }

    /// Records the end of a group. Skips the groups that depend on it if it failed.
    fn group_ended(
        &self,
        index: usize,
        end: End,
        took: Duration,
        control: &PhaseControl,
        state: &mut State<'_>,
        listener: PhaseListener<'_>,
    ) -> Result<(), StageError> {
        let in_use = state.running();
        let (status, success, why) = match end {
            End::Succeeded => ("SUCCESS", true, None),
            End::Failed(why) => ("FAILED", false, Some(why)),
            End::Stopped => ("CANCELED", false, state.outcome.stopped.as_ref().map(ToString::to_string)),
        };
        let id = self.plan.id(index).to_owned();
        let execution_id = state.execution_ids.remove(&index);
        // A group that never got its leases only waited.
        let waited = state.waits.remove(&index);
        let ran = waited.map_or(Duration::ZERO, |waited| took.saturating_sub(waited));
        if waited.is_none() {
            state.outcome.waited += took;
        }
        // One command at a time, and no other group beside it: this is how long the commands take one by one.
        let one_by_one = self.plan.groups[index].slots() == 1 || self.agents[index].len() == 1;
        let line = [
            ("execution_id", json!(execution_id)),
            ("group_id", json!(id)),
            ("duration_ms", json!(u64::try_from(took.as_millis()).unwrap_or(u64::MAX))),
            ("ran_ms", json!(u64::try_from(ran.as_millis()).unwrap_or(u64::MAX))),
            ("alone", json!(one_by_one && !state.overlapped.contains(&index))),
            ("commands", json!(digest(&self.agents[index]))),
            ("reason", json!(why)),
        ];
        self.log.write(status, fields(line))?;
        state.outcome.work += took;
        if !state.pause_between.is_zero() {
            state.pause_until = Instant::now().checked_add(state.pause_between);
        }
        let skipped = state.progress.end(index, success);
        self.save_end(&id, status)?;
        let smooth = if success && !state.conflicts.contains_key(&index) {
            Smoothness::Smooth
        } else {
            Smoothness::Strained
        };
        self.tune(in_use, smooth, state, listener)?;
        if let Some(why) = &why {
            state.outcome.reasons.insert(index, why.clone());
        }
        let group_state = state.progress.states()[index];
        listener(
            Some(&PhaseEvent::GroupEnded { group: index, state: group_state, why }),
            state.progress.states(),
        );
        for other in skipped {
            let why = format!("{id}, which it depends on, did not succeed");
            let line = [("group_id", json!(self.plan.id(other))), ("reason", json!(why))];
            self.log.write("SKIPPED", fields(line))?;
            state.outcome.reasons.insert(other, why.clone());
            let event = PhaseEvent::GroupEnded { group: other, state: GroupState::Skipped, why: Some(why) };
            listener(Some(&event), state.progress.states());
        }
        if group_state == GroupState::Failed && !control.is_stopped() && self.critical[index] {
            state.critical_failed = true;
            self.apply_rules(&TriggerEvent::CriticalPath, control, state, listener)?;
        }
        Ok(())
    }

    /// Autotune: adapts the number of groups that run at a time.
    fn tune(
        &self,
        in_use: usize,
        last: Smoothness,
        state: &mut State<'_>,
        listener: PhaseListener<'_>,
    ) -> Result<(), StageError> {
        let (Some(bounds), Some(tuning)) = (state.tuned, &self.stages.autotune) else { return Ok(()) };
        let conflicts: u64 = state.conflicts.values().sum();
        let streak = if state.streak.0 == last { state.streak.1 + 1 } else { 1 };
        state.streak = (last, streak);
        let cores = load::cores().get() as f64;
        let seen = Observation {
            last,
            streak,
            conflicts: conflicts - state.tuned_at_conflicts,
            load: self.options.load.or_else(load::average).map(|average| average / cores),
            memory: load::memory_in_use(),
        };
        let Some(sign) = judge(&seen, &tuning.value.increase, &tuning.value.decrease) else { return Ok(()) };
        let before = state.slots;
        state.slots = tune(before, in_use, sign, bounds);
        if before == state.slots {
            return Ok(());
        }
        state.tuned_at_conflicts = conflicts;
        state.streak.1 = 0;
        self.log.write("TUNED", fields([("from", json!(before)), ("to", json!(state.slots))]))?;
        listener(Some(&PhaseEvent::Tuned { slots: state.slots }), state.progress.states());
        Ok(())
    }

    fn owner(&self, index: usize) -> Owner {
        stage_names::group_owner(&self.id, index)
            .parse()
            .expect("letters, digits, dots and dashes are an owner")
    }

    fn save_end(&self, group: &str, status: &str) -> Result<(), StageError> {
        let mut execution = self.execution.lock().unwrap_or_else(PoisonError::into_inner);
        execution.ended.insert(group.to_owned(), status.to_owned());
        execution.save(self.worker.runs().folder())
    }
}
