//! Conducting a phase: who begins when.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use lockkeeper_core::conflict::Action;
use lockkeeper_core::id::{Name, Owner};
use lockkeeper_core::plan::{Bond, Cause, GroupState, Mode, Progress};
use lockkeeper_core::record::Lease;
use lockkeeper_core::retry::RetryPolicy;
use lockkeeper_core::tune::{Bounds, Sign as Smoothness, tune};
use serde_json::json;

use super::agents::{AgentCommand, commands, request_id};
use super::downgrade::{NETWORK_CODES, Sign, agent_timeout, lock_timeouts, network_retries};
use super::group::{Control, End, Task, Word};
use super::log::{ExecutionLog, fields};
use super::outcome::{Outcome, State, Stopped, critical};
use super::record::{self, Execution};
use super::{News, StageError};
use crate::conflicts::{self, ConflictLog};
use crate::runs::{RunError, template::Template};
use crate::work::{Attendant, Executor};
use lockkeeper_platform::signal::Signals;
use lockkeeper_platform::wall_clock::WallTime;
use lockkeeper_stages::{PhasePlan, Stages};

/// How often signals are looked for and the watchers are told of the time.
pub(super) const TICK: Duration = Duration::from_millis(200);

/// How a phase is executed.
pub struct Options {
    /// The file, for the logs beside it and to go on from an earlier execution.
    pub file: PathBuf,
    /// The folder that commands run in.
    pub dir: String,
    /// What agents without a command of their own do.
    pub template: Option<Template>,
    /// What is done when the phase was aborted, or a group on the longest path failed.
    pub rollback: Option<Template>,
    /// Whether to go on with the latest execution that did not come to its end.
    pub resume: bool,
    /// The machine's load, where it is not to be asked for it.
    pub load: Option<f64>,
}

/// Whoever watches: told of everything that happens, and now and then how things stand.
pub type Watcher<'w> = &'w mut dyn FnMut(Option<&News>, &[GroupState]);

/// Conducts one phase.
pub struct Conductor<'c> {
    pub(super) executor: &'c Arc<Executor>,
    pub(super) stages: &'c Stages,
    pub(super) plan: &'c PhasePlan,
    pub(super) options: Options,
    pub(super) log: ExecutionLog,
    pub(super) id: String,
    pub(super) execution: Mutex<Execution>,
    /// Nobody else conducts this execution meanwhile.
    baton: Lease,
    agents: Vec<Vec<AgentCommand>>,
    names: Vec<Name>,
    critical: Vec<bool>,
}

/// What a group's thread tells.
enum Message {
    Word(usize, Word),
    Ended(usize, Result<End, StageError>, Duration),
}

impl<'c> Conductor<'c> {
    /// Makes everything ready; nothing is executed yet.
    pub fn new(
        executor: &'c Arc<Executor>,
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
            return Err(StageError::Abort(plan.plan.reason.clone()));
        }
        let (waiting, size) = (in_queue(plan), stages.resolution.queue_size);
        if waiting > size {
            return Err(StageError::QueueFull { waiting, size });
        }
        let agents = commands(plan, options.template.as_ref())?;
        let names = plan.groups.iter().map(|group| {
            let id = &group.id.value;
            id.parse::<Name>().map_err(|source| StageError::GroupName { group: id.clone(), source })
        });
        let names = names.collect::<Result<Vec<_>, _>>()?;
        let (execution, baton) = record::begin(executor, plan, &options)?;
        let log = ExecutionLog::of(log_path, &execution.id, &plan.phase);
        let (id, execution) = (execution.id.clone(), Mutex::new(execution));
        let critical = critical(&plan.plan);
        Ok(Self { executor, stages, plan, options, log, id, execution, baton, agents, names, critical })
    }

    /// The id of the execution.
    pub fn execution(&self) -> &str {
        &self.id
    }

    /// Executes the phase. The first signal ends everything.
    pub fn conduct(self, signals: &Signals, watch: Watcher<'_>) -> Result<Outcome, StageError> {
        let attendant = Attendant::begin(self.executor, None)?;
        let mut adopted = Vec::new();
        if self.options.resume {
            let ours = format!("{}.", self.id);
            adopted = self.executor.adopt_abandoned(|run| run.request.as_str().starts_with(&ours))?;
        }
        let control = Control::new()?;
        let begun = Instant::now();
        let mut state = self.first_state();
        let (sender, receiver) = channel();
        let conducted = thread::scope(|scope| {
            let result = loop {
                if let Err(error) = self.start_groups(scope, &control, &sender, &mut state, watch) {
                    break Err(error);
                }
                if state.progress.is_over() {
                    break Ok(());
                }
                let nothing_runs = !state.progress.states().contains(&GroupState::Running);
                if nothing_runs && control.is_stopped() {
                    break Ok(());
                }
                if let Err(error) = self.attend(&receiver, signals, &control, &mut state, watch) {
                    break Err(error);
                }
            };
            if result.is_err() {
                control.stop(self.executor, "the executor failed");
            }
            result
        });
        for (run, thread) in adopted {
            // Its group may not have begun again before everything was ended; one that has ended is left as it is.
            let _ = self.executor.runs().cancel(&run, Some("everything was ended"));
            let _ = thread.join();
        }
        conducted?;
        state.outcome.standings = state.progress.states().to_vec();
        state.outcome.wall = begun.elapsed();
        if self.needs_rollback(&state) {
            state.outcome.rolled_back = self.roll_back(signals)?;
        }
        drop(attendant);
        self.finish(&state.outcome)?;
        // The end of this process frees it all the same.
        let _ = self.executor.leases().release(self.baton.id, Some(self.baton.token));
        Ok(state.outcome)
    }

    fn first_state(&self) -> State<'c> {
        let bounds = self.stages.autotune.as_ref().filter(|tune| tune.value.enabled).map(|tune| {
            let number = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
            let (min, max) = (number(tune.value.min), number(tune.value.max));
            let most = self.plan.plan.slots.map_or(max, |slots| slots.get().min(max));
            Bounds { min: min.min(most), max: most, step: number(tune.value.step) }
        });
        let all = self.plan.plan.slots.map_or(usize::MAX, |slots| slots.get());
        let one_by_one = all == 1;
        let execution = self.execution.lock().unwrap_or_else(PoisonError::into_inner);
        let mut progress = Progress::new(&self.plan.plan);
        for place in 0..self.plan.groups.len() {
            let done = execution.ended.get(self.plan.id(place)).is_some_and(|end| end == "SUCCESS");
            if done {
                progress.begin(place);
                progress.end(place, true);
            }
        }
        State {
            progress,
            slots: bounds.filter(|_| !one_by_one).map_or(all, |bounds| bounds.min.max(1)),
            tuned: bounds.filter(|_| !one_by_one),
            failures: 0,
            met: HashMap::new(),
            pause_until: None,
            looked_at: None,
            outcome: Outcome::new(&self.id),
            began: HashMap::new(),
            critical_failed: false,
        }
    }

    fn start_groups<'scope>(
        &'scope self,
        scope: &'scope thread::Scope<'scope, '_>,
        control: &'scope Control,
        sender: &Sender<Message>,
        state: &mut State<'_>,
        watch: Watcher<'_>,
    ) -> Result<(), StageError> {
        if control.is_stopped() || state.pause_until.is_some_and(|until| until > Instant::now()) {
            return Ok(());
        }
        if state.progress.startable(state.slots).is_empty() {
            return Ok(());
        }
        self.look_at_machine(control, state, watch)?;
        if control.is_stopped() {
            return Ok(());
        }
        for place in state.progress.startable(state.slots) {
            state.progress.begin(place);
            let execution_id = ExecutionLog::execution_id(self.plan.id(place));
            let pid = std::process::id();
            let line = [
                ("execution_id", json!(execution_id)),
                ("phase", json!(self.plan.phase)),
                ("group_id", json!(self.plan.id(place))),
                ("pid", json!(pid)),
            ];
            self.log.write("STARTED", fields(line))?;
            state.began.insert(place, execution_id);
            let task = self.task(place, control);
            let sender = sender.clone();
            let work = move || {
                let begun = Instant::now();
                // Nobody listens any more only when everything is over.
                let say = |word| {
                    let _ = sender.send(Message::Word(place, word));
                };
                let ended = task.execute(&say);
                let _ = sender.send(Message::Ended(place, ended, begun.elapsed()));
            };
            let spawned = thread::Builder::new().name(format!("group {place}")).spawn_scoped(scope, work);
            spawned.map_err(RunError::Machine)?;
        }
        Ok(())
    }

    fn attend(
        &self,
        receiver: &Receiver<Message>,
        signals: &Signals,
        control: &Control,
        state: &mut State<'_>,
        watch: Watcher<'_>,
    ) -> Result<(), StageError> {
        match receiver.recv_timeout(TICK) {
            Ok(Message::Word(_, Word::News(news))) => {
                if let News::Began { waited, .. } = &news {
                    state.outcome.waited += *waited;
                }
                if let News::Agent { run, .. } = &news {
                    self.count_failure(run, control, state, watch)?;
                }
                watch(Some(&news), state.progress.states());
            }
            Ok(Message::Word(_, Word::LockTimeout(waited, answered))) => {
                self.answer(&Sign::LockTimeout(waited), control, state, watch)?;
                // The group may have stopped listening, since everything ends.
                let _ = answered.send(());
            }
            Ok(Message::Word(place, Word::Met)) => {
                let met = state.met.entry(place).or_default();
                *met += 1;
                let sum = state.met.values().sum();
                self.answer(&Sign::Conflicts(sum), control, state, watch)?;
            }
            Ok(Message::Ended(place, end, took)) => self.ended(place, end?, took, control, state, watch)?,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                watch(None, state.progress.states());
            }
        }
        let came = signals.take().map_err(RunError::Machine)?;
        if let Some(signal) = came.first().filter(|_| !control.is_stopped()) {
            self.stop(Stopped::Signal(*signal), control, state, watch);
        }
        Ok(())
    }

    fn ended(
        &self,
        place: usize,
        end: End,
        took: Duration,
        control: &Control,
        state: &mut State<'_>,
        watch: Watcher<'_>,
    ) -> Result<(), StageError> {
        let in_use = state.running();
        let (status, success, why) = match end {
            End::Succeeded => ("SUCCESS", true, None),
            End::Failed(why) => ("FAILED", false, Some(why)),
            End::Stopped => ("CANCELED", false, state.outcome.stopped.as_ref().map(ToString::to_string)),
        };
        let id = self.plan.id(place).to_owned();
        let began = state.began.remove(&place);
        let line = [
            ("execution_id", json!(began)),
            ("group_id", json!(id)),
            ("duration_ms", json!(u64::try_from(took.as_millis()).unwrap_or(u64::MAX))),
            ("reason", json!(why)),
        ];
        self.log.write(status, fields(line))?;
        state.outcome.work += took;
        let skipped = state.progress.end(place, success);
        self.note_end(&id, status)?;
        let smooth = if success && !state.met.contains_key(&place) {
            Smoothness::Smooth
        } else {
            Smoothness::Strained
        };
        self.tune(in_use, smooth, state, watch)?;
        if let Some(why) = &why {
            state.outcome.reasons.insert(place, why.clone());
        }
        let standing = state.progress.states()[place];
        watch(Some(&News::Ended { group: place, standing, why }), state.progress.states());
        for other in skipped {
            let why = format!("{id}, which it depends on, did not succeed");
            let line = [("group_id", json!(self.plan.id(other))), ("reason", json!(why))];
            self.log.write("SKIPPED", fields(line))?;
            state.outcome.reasons.insert(other, why.clone());
            let news = News::Ended { group: other, standing: GroupState::Skipped, why: Some(why) };
            watch(Some(&news), state.progress.states());
        }
        if standing == GroupState::Failed && !control.is_stopped() && self.critical[place] {
            state.critical_failed = true;
            self.answer(&Sign::CriticalPath, control, state, watch)?;
        }
        Ok(())
    }

    /// More groups at a time while all goes well, fewer when it does not.
    fn tune(
        &self,
        in_use: usize,
        sign: Smoothness,
        state: &mut State<'_>,
        watch: Watcher<'_>,
    ) -> Result<(), StageError> {
        let Some(bounds) = state.tuned else { return Ok(()) };
        let before = state.slots;
        state.slots = tune(before, in_use, sign, bounds);
        if before == state.slots {
            return Ok(());
        }
        self.log.write("TUNED", fields([("from", json!(before)), ("to", json!(state.slots))]))?;
        watch(Some(&News::Tuned { slots: state.slots }), state.progress.states());
        Ok(())
    }

    fn task<'t>(&'t self, place: usize, control: &'t Control) -> Task<'t> {
        let group = &self.plan.groups[place];
        let agents = &self.agents[place];
        let retry =
            network_retries(&self.stages.downgrades).map_or_else(RetryPolicy::default, |(limit, base)| {
                RetryPolicy { limit, base, codes: NETWORK_CODES.to_vec(), ..RetryPolicy::default() }
            });
        let most = group.max_concurrent.as_ref().map_or(agents.len() as u64, |most| most.value);
        let env = vec![
            ("LOCKKEEPER_PHASE".to_owned(), self.plan.phase.clone()),
            ("LOCKKEEPER_GROUP".to_owned(), group.id.value.clone()),
        ];
        Task {
            executor: self.executor,
            place,
            owner: self.owner(place),
            name: self.names[place].clone(),
            paths: group.conflict_paths.iter().map(|path| path.value.clone()).collect(),
            agents,
            ids: (0..agents.len()).map(|agent| request_id(&self.id, place, agent)).collect(),
            at_once: usize::try_from(most).unwrap_or(usize::MAX),
            dir: &self.options.dir,
            env,
            retry,
            timeout: agent_timeout(&self.stages.downgrades),
            patience: self.stages.resolution.timeout,
            tell_after: lock_timeouts(&self.stages.downgrades),
            tries: self.stages.resolution.retries,
            control,
        }
    }

    pub(super) fn owner(&self, place: usize) -> Owner {
        record::group_owner(&self.id, place).parse().expect("letters, digits, dots and dashes are an owner")
    }

    fn note_end(&self, group: &str, status: &str) -> Result<(), StageError> {
        let mut execution = self.execution.lock().unwrap_or_else(PoisonError::into_inner);
        execution.ended.insert(group.to_owned(), status.to_owned());
        execution.keep(self.executor.runs().folder())
    }
}

fn conflict_lines(plan: &PhasePlan) -> Vec<conflicts::Line> {
    let groups: Vec<lockkeeper_core::conflict::Group> = plan
        .groups
        .iter()
        .map(|group| lockkeeper_core::conflict::Group {
            id: group.id.value.clone(),
            paths: group.conflict_paths.iter().map(|path| path.value.clone()).collect(),
        })
        .collect();
    conflicts::lines(&plan.phase, &groups, &plan.rules, &plan.findings, WallTime::now())
}

/// How many groups wait in line behind others, because a rule puts them there.
fn in_queue(plan: &PhasePlan) -> u64 {
    let by_queue = |bond: &Bond| match bond.cause {
        Cause::Conflict(place) => plan
            .findings
            .conflicts
            .get(place)
            .is_some_and(|conflict| conflict.ruling.action == Action::QueueExecution),
        Cause::Completion | Cause::Beginning | Cause::Folder(_) | Cause::Phase => false,
    };
    plan.plan.steps.iter().filter(|step| step.after.iter().any(by_queue)).count() as u64
}
