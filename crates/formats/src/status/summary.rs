//! Status summary: the latest state of each task and each worker, read in one pass.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use lockkeeper_platform::wall_clock::WallTime;

use super::error::StatusError;
use super::files::{open_all, path_of};
use super::line::{State, StatusLine};
use super::line_splitter::{Found, Splitter};

/// The most that clocks may differ. A line with a later time has a wrong time.
const SKEW: Duration = Duration::from_secs(60);
/// The most characters of a message that are kept.
const MAX_MESSAGE: usize = 500;
const CHUNK: usize = 256 * 1024;

/// The state of a swarm. Its size depends on the number of tasks and workers, not on the number of lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Every task, the latest first.
    pub tasks: Vec<TaskStatus>,
    /// Every worker that gave its id, the latest first.
    pub workers: Vec<WorkerStatus>,
    /// The number of status lines.
    pub lines: u64,
    /// The number of lines that are not status lines.
    pub bad_lines: u64,
}

/// The latest state of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskStatus {
    /// Its id.
    pub task: String,
    /// Its state.
    pub state: State,
    /// When the line was written.
    pub at: WallTime,
    /// The worker that wrote it.
    pub worker: Option<String>,
    /// The message, shortened if it is long.
    pub message: Option<String>,
    /// The number of lines about the task.
    pub lines: u64,
}

/// The latest line of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerStatus {
    /// Its id.
    pub worker: String,
    /// The task of the line.
    pub task: String,
    /// The state of the task.
    pub state: State,
    /// When the line was written.
    pub at: WallTime,
    /// The number of lines of the worker.
    pub lines: u64,
}

impl Summary {
    /// Returns the tasks that need a person, the latest first.
    pub fn needs_help(&self) -> impl Iterator<Item = &TaskStatus> {
        self.tasks.iter().filter(|task| task.state.needs_help())
    }

    pub(super) fn read(folder: &Path, now: WallTime) -> Result<Self, StatusError> {
        let mut builder = SummaryBuilder::new(now);
        let mut buffer = vec![0; CHUNK];
        let files = open_all(folder)?;
        let newest = files.len().saturating_sub(1);
        for (place, (_, mut file)) in files.into_iter().enumerate() {
            let mut splitter = Splitter::default();
            loop {
                let read = file.read(&mut buffer).map_err(StatusError::io("read", &path_of(folder, 0)))?;
                if read == 0 {
                    break;
                }
                splitter.feed(&buffer[..read], |found| builder.add(found));
            }
            // The last line of the newest file may still be written.
            splitter.finish(place == newest, |found| builder.add(found));
        }
        Ok(builder.finish())
    }
}

/// The sort key of a line: its time, then its position in the log.
type Rank = (WallTime, u64);

/// Collects lines into a summary.
struct SummaryBuilder {
    latest_possible: WallTime,
    /// The time of the last line with a possible time.
    last: WallTime,
    tasks: BTreeMap<String, (Rank, TaskStatus)>,
    workers: BTreeMap<String, (Rank, WorkerStatus)>,
    lines: u64,
    bad_lines: u64,
}

impl SummaryBuilder {
    fn new(now: WallTime) -> Self {
        let (tasks, workers) = (BTreeMap::new(), BTreeMap::new());
        let (latest_possible, last) = (now.after(SKEW), WallTime::UNIX_EPOCH);
        Self { latest_possible, last, tasks, workers, lines: 0, bad_lines: 0 }
    }

    fn add(&mut self, found: Found) {
        match found {
            Found::Line(line) => self.add_line(&line),
            Found::Garbage => self.bad_lines += 1,
        }
    }

    fn add_line(&mut self, line: &StatusLine) {
        self.lines += 1;
        // A line with a time in the future would stay the latest for years. It gets the time of the line before it.
        if line.at() <= self.latest_possible {
            self.last = line.at();
        }
        let rank = (self.last, self.lines);
        match self.tasks.get_mut(line.task()) {
            Some((known, task)) => {
                task.lines += 1;
                if *known <= rank {
                    *known = rank;
                    *task = TaskStatus { lines: task.lines, ..task_of(line) };
                }
            }
            None => {
                self.tasks.insert(line.task().to_owned(), (rank, task_of(line)));
            }
        }
        let Some(worker) = line.worker() else { return };
        match self.workers.get_mut(worker) {
            Some((known, status)) => {
                status.lines += 1;
                if *known <= rank {
                    *known = rank;
                    *status = WorkerStatus { lines: status.lines, ..worker_of(worker, line) };
                }
            }
            None => {
                self.workers.insert(worker.to_owned(), (rank, worker_of(worker, line)));
            }
        }
    }

    fn finish(self) -> Summary {
        Summary {
            tasks: latest_first(self.tasks),
            workers: latest_first(self.workers),
            lines: self.lines,
            bad_lines: self.bad_lines,
        }
    }
}

fn task_of(line: &StatusLine) -> TaskStatus {
    TaskStatus {
        task: line.task().to_owned(),
        state: line.state(),
        at: line.at(),
        worker: line.worker().map(str::to_owned),
        message: line.message().map(|message| message.chars().take(MAX_MESSAGE).collect()),
        lines: 1,
    }
}

fn worker_of(worker: &str, line: &StatusLine) -> WorkerStatus {
    let (worker, task) = (worker.to_owned(), line.task().to_owned());
    WorkerStatus { worker, task, state: line.state(), at: line.at(), lines: 1 }
}

fn latest_first<T>(found: BTreeMap<String, (Rank, T)>) -> Vec<T> {
    let mut sorted: Vec<(Rank, T)> = found.into_values().collect();
    sorted.sort_by_key(|(rank, _)| std::cmp::Reverse(*rank));
    sorted.into_iter().map(|(_, status)| status).collect()
}
