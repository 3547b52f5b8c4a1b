//! Conducting a phase: who begins when, and what is done when things go badly.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use lockkeeper_core::id::{Name, Owner};
use lockkeeper_core::plan::{Mode, Progress, Standing};
use lockkeeper_core::request::RequestStatus;
use lockkeeper_core::retry::RetryPolicy;
use lockkeeper_core::run::Reason;
use lockkeeper_core::tune::{Bounds, Sign as Smoothness, tune};
use serde_json::json;

use super::agents::{AgentCommand, commands, request_id};
use super::downgrade::{Answer, NETWORK_CODES, Sign, agent_timeout, answers, network_retries};
use super::group::{Control, End, Task, Word};
use super::log::{ExecutionLog, fields};
use super::record::{Execution, latest_unfinished};
use super::{News, StageError};
use crate::clock::WallTime;
use crate::conflicts::{self, ConflictLog};
use crate::engine::runs::{RunError, new_id, template::Template};
use crate::engine::work::{Attendant, Executor};
use crate::platform::load;
use crate::platform::signal::Signals;
use crate::stages::{PhasePlan, Stages};
use crate::store::runs::now;

/// How often signals are looked for and the watchers are told of the time.
const TICK: Duration = Duration::from_millis(200);
/// How often the machine is looked at, while groups wait to begin.
const LOOK_EVERY: Duration = Duration::from_secs(2);

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
}

/// What became of a phase.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The id of the execution.
    pub execution: String,
    /// How each group ended, by its place in the plan.
    pub standings: Vec<Standing>,
    /// Why groups did not end well, by their places.
    pub reasons: HashMap<usize, String>,
    /// How long it took.
    pub wall: Duration,
    /// How long the groups would have taken one after the other.
    pub work: Duration,
    /// How long groups waited for what others held.
    pub waited: Duration,
    /// How often something was done because things went badly.
    pub downgrades: u32,
    /// Why everything was ended before its time.
    pub stopped: Option<String>,
}

impl Outcome {
    /// Whether every group ended well.
    pub fn is_success(&self) -> bool {
        self.standings.iter().all(|standing| *standing == Standing::Succeeded)
    }
}

/// Whoever watches: told of everything that happens, and now and then how things stand.
pub type Watcher<'w> = &'w mut dyn FnMut(Option<&News>, &[Standing]);

/// Conducts one phase.
pub struct Conductor<'c> {
    executor: &'c Arc<Executor>,
    stages: &'c Stages,
    plan: &'c PhasePlan,
    options: Options,
    log: ExecutionLog,
    id: String,
    execution: Mutex<Execution>,
    agents: Vec<Vec<AgentCommand>>,
    names: Vec<Name>,
}

/// What a group's thread tells.
enum Message {
    Word(usize, Word),
    Ended(usize, Result<End, StageError>, Duration),
}

/// How things stand while groups run.
struct State<'p> {
    progress: Progress<'p>,
    slots: usize,
    tuned: Option<Bounds>,
    failures: u64,
    met: HashMap<usize, u64>,
    pause_until: Option<Instant>,
    looked_at: Option<Instant>,
    stopped: Option<String>,
    outcome: Outcome,
    began: HashMap<usize, (Instant, String)>,
    critical_failed: bool,
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
        let agents = commands(plan, options.template.as_ref())?;
        let names = plan.groups.iter().map(|group| {
            let id = &group.id.value;
            id.parse::<Name>().map_err(|source| StageError::GroupName { group: id.clone(), source })
        });
        let names = names.collect::<Result<Vec<_>, _>>()?;
        let execution = begin(executor, plan, &options)?;
        let log = ExecutionLog::of(log_path, &execution.id, &plan.phase);
        let (id, execution) = (execution.id.clone(), Mutex::new(execution));
        Ok(Self { executor, stages, plan, options, log, id, execution, agents, names })
    }

    /// The id of the execution.
    pub fn execution(&self) -> &str {
        &self.id
    }

    /// Executes the phase. The first signal ends everything.
    pub fn conduct(self, signals: &Signals, watch: Watcher<'_>) -> Result<Outcome, StageError> {
        let attendant = Attendant::begin(self.executor, None)?;
        if self.options.resume {
            self.executor.adopt_abandoned()?;
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
                let nothing_runs = !state.progress.standings().contains(&Standing::Running);
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
        drop(attendant);
        conducted?;
        let mut outcome = state.outcome;
        outcome.standings = state.progress.standings().to_vec();
        outcome.wall = begun.elapsed();
        outcome.stopped = state.stopped;
        if (outcome.stopped.is_some() && state.failures > 0) || state.critical_failed {
            self.roll_back()?;
        }
        self.finish(&outcome)?;
        Ok(outcome)
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
            stopped: None,
            outcome: Outcome {
                execution: self.id.clone(),
                standings: Vec::new(),
                reasons: HashMap::new(),
                wall: Duration::ZERO,
                work: Duration::ZERO,
                waited: Duration::ZERO,
                downgrades: 0,
                stopped: None,
            },
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
            state.began.insert(place, (Instant::now(), execution_id));
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
                watch(Some(&news), state.progress.standings());
            }
            Ok(Message::Word(_, Word::LockTimeout(waited))) => {
                self.answer(&Sign::LockTimeout(waited), control, state, watch)?;
            }
            Ok(Message::Word(place, Word::Met)) => {
                let met = state.met.entry(place).or_default();
                *met += 1;
                let sum = state.met.values().sum();
                self.answer(&Sign::Conflicts(sum), control, state, watch)?;
            }
            Ok(Message::Ended(place, end, took)) => self.ended(place, end?, took, control, state, watch)?,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                watch(None, state.progress.standings());
            }
        }
        if !signals.take().map_err(RunError::Machine)?.is_empty() && !control.is_stopped() {
            self.stop("a signal came", control, state, watch);
        }
        Ok(())
    }

    fn count_failure(
        &self,
        run: &lockkeeper_core::run::Run,
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

    fn ended(
        &self,
        place: usize,
        end: End,
        took: Duration,
        control: &Control,
        state: &mut State<'_>,
        watch: Watcher<'_>,
    ) -> Result<(), StageError> {
        let in_use = running(&state.progress);
        let (status, success, why) = match end {
            End::Succeeded => ("SUCCESS", true, None),
            End::Failed(why) => ("FAILED", false, Some(why)),
            End::Stopped => ("CANCELED", false, state.stopped.clone()),
        };
        let id = self.plan.id(place).to_owned();
        let began = state.began.remove(&place);
        let line = [
            ("execution_id", json!(began.map(|(_, id)| id))),
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
        if let Some(bounds) = state.tuned {
            state.slots = tune(state.slots, in_use, smooth, bounds);
        }
        if let Some(why) = &why {
            state.outcome.reasons.insert(place, why.clone());
        }
        let standing = state.progress.standings()[place];
        watch(Some(&News::Ended { group: place, standing, why }), state.progress.standings());
        for other in skipped {
            let why = format!("{id}, which it depends on, did not succeed");
            let line = [("group_id", json!(self.plan.id(other))), ("reason", json!(why))];
            self.log.write("SKIPPED", fields(line))?;
            state.outcome.reasons.insert(other, why.clone());
            let news = News::Ended { group: other, standing: Standing::Skipped, why: Some(why) };
            watch(Some(&news), state.progress.standings());
        }
        if standing == Standing::Failed && !control.is_stopped() && self.is_critical(place) {
            state.critical_failed = true;
            self.answer(&Sign::CriticalPath, control, state, watch)?;
        }
        Ok(())
    }

    /// Does what the file's rules say about a sign.
    fn answer(
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
                    state.slots = (running(&state.progress).max(2) - 1).min(state.slots - 1);
                    format!("{} at a time", state.slots)
                }
                Answer::Pause(pause) => {
                    state.pause_until = Instant::now().checked_add(pause);
                    format!("a pause of {}", lockkeeper_core::time::format_span(pause))
                }
                Answer::Tell => "told".to_owned(),
            };
            state.outcome.downgrades += u32::from(answer != Answer::Tell);
            let line = [("rule", json!(rule)), ("to", json!(what)), ("reason", json!(format!("{sign:?}")))];
            self.log.write("DOWNGRADED", fields(line))?;
            let news = News::Downgraded { rule: rule.to_owned(), what };
            watch(Some(&news), state.progress.standings());
            if answer == Answer::Abort {
                self.stop(&format!("rule {rule}"), control, state, watch);
            }
        }
        Ok(())
    }

    fn look_at_machine(
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
        if let Some(load) = load::average() {
            self.answer(&Sign::Load(load), control, state, watch)?;
        }
        if let Some(share) = load::memory_in_use() {
            self.answer(&Sign::Memory(share), control, state, watch)?;
        }
        Ok(())
    }

    fn stop(&self, why: &str, control: &Control, state: &mut State<'_>, watch: Watcher<'_>) {
        state.stopped = Some(why.to_owned());
        control.stop(self.executor, why);
        watch(Some(&News::Stopping { why: why.to_owned() }), state.progress.standings());
    }

    /// Whether the whole phase takes longer when this group does.
    fn is_critical(&self, place: usize) -> bool {
        let steps = &self.plan.plan.steps;
        let ends = steps[place].ends;
        ends == self.plan.plan.length
            || steps.iter().enumerate().any(|(other, step)| {
                let waits = step.after.iter().chain(&step.excludes).any(|bond| bond.group == place);
                other != place && waits && step.begins == ends && self.is_critical(other)
            })
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
            tries: self.stages.resolution.retries,
            control,
        }
    }

    fn owner(&self, place: usize) -> Owner {
        let text = format!("stage:{}.{}", self.id, place + 1);
        text.parse().expect("letters, digits, dots and dashes are an owner")
    }

    fn note_end(&self, group: &str, status: &str) -> Result<(), StageError> {
        let mut execution = self.execution.lock().unwrap_or_else(PoisonError::into_inner);
        execution.ended.insert(group.to_owned(), status.to_owned());
        execution.keep(self.executor.runs().folder())
    }

    /// Does what puts things back, as a request of its own.
    fn roll_back(&self) -> Result<(), StageError> {
        let Some(template) = &self.options.rollback else { return Ok(()) };
        let values = [("phase", self.plan.phase.as_str()), ("execution", self.id.as_str())];
        let command = AgentCommand {
            agent: "rollback".to_owned(),
            task: Some("put things back".to_owned()),
            command: template.fill(&values),
        };
        let control = Control::new()?;
        let place = self.plan.groups.len();
        let name: Name = format!("rollback-{}", self.id).parse().expect("it is a name");
        let agents = [command];
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
            tries: 0,
            control: &control,
        };
        let status = match task.execute(&|_| {})? {
            End::Succeeded => "SUCCESS",
            End::Failed(_) | End::Stopped => "FAILED",
        };
        self.log.write("ROLLBACK", fields([("result", json!(status))]))
    }

    fn finish(&self, outcome: &Outcome) -> Result<(), StageError> {
        let mut execution = self.execution.lock().unwrap_or_else(PoisonError::into_inner);
        // One that was cut short, or failed, can be gone on with.
        execution.finished = outcome.is_success();
        execution.keep(self.executor.runs().folder())?;
        drop(execution);
        let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        let line = [
            ("mode", json!(self.plan.plan.mode.as_str())),
            ("wall_ms", json!(millis(outcome.wall))),
            ("serial_ms", json!(millis(outcome.work.saturating_sub(outcome.waited)))),
            ("waited_ms", json!(millis(outcome.waited))),
            ("downgrades", json!(outcome.downgrades)),
            ("stopped", json!(outcome.stopped)),
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
            ("succeeded", json!(count(Standing::Succeeded))),
            ("failed", json!(count(Standing::Failed))),
            ("skipped", json!(count(Standing::Skipped))),
            ("wall_seconds", json!(outcome.wall.as_secs_f64())),
            ("lock_wait_seconds", json!(outcome.waited.as_secs_f64())),
            ("downgrades", json!(outcome.downgrades)),
        ];
        log.write("METRICS", fields(line))
    }
}

fn begin(executor: &Executor, plan: &PhasePlan, options: &Options) -> Result<Execution, StageError> {
    let file = options.file.to_string_lossy().into_owned();
    if options.resume {
        let found = latest_unfinished(executor.runs().folder(), &file, &plan.phase)?;
        let found = found.ok_or_else(|| StageError::NothingToResume { phase: plan.phase.clone() })?;
        let same =
            found.groups.iter().map(String::as_str).eq((0..plan.groups.len()).map(|place| plan.id(place)));
        return if same { Ok(found) } else { Err(StageError::Changed { execution: found.id }) };
    }
    let started_at = now().unix_micros;
    let id: lockkeeper_core::id::RunId = new_id("EX", started_at)?;
    let execution = Execution {
        id: id.to_string(),
        file,
        phase: plan.phase.clone(),
        groups: plan.groups.iter().map(|group| group.id.value.clone()).collect(),
        started_at,
        ended: std::collections::BTreeMap::new(),
        finished: false,
    };
    execution.keep(executor.runs().folder())?;
    Ok(execution)
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

fn running(progress: &Progress<'_>) -> usize {
    progress.standings().iter().filter(|standing| **standing == Standing::Running).count()
}
