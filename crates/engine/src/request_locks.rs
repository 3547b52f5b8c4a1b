//! Lock files of other programs on a request: who holds it, beside the runs of the store.

use std::path::{Path, PathBuf};

use lockkeeper_core::request::Request;
use lockkeeper_formats::aiflow::Subject;
use lockkeeper_formats::swarm::{Assignment, TASKS_VARIABLE, TaskQueue};
use lockkeeper_platform::wall_clock::WallTime;

use crate::work::Settings;

/// A lock file that keeps a request from being executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockFileHolder {
    /// The format: `aiflow` or `swarm`.
    pub format: &'static str,
    /// The lock file.
    pub path: PathBuf,
    /// The run or worker in it, if it names one.
    pub holder: Option<String>,
}

impl Settings {
    /// Finds the holder of a request's lock file. A file that cannot be judged counts as held. Changes nothing.
    pub fn lock_file_holder(&self, request: &Request) -> Option<LockFileHolder> {
        let now = WallTime::now();
        if let Some(aiflow) = &self.aiflow {
            let subject = Subject::Request(request.id.to_string());
            let path = aiflow.path(&subject).unwrap_or_default();
            match aiflow.show(&subject, now) {
                Ok(Some(found)) if !found.verdict.is_stale() => {
                    let path =
                        if found.plain_run.is_some() { aiflow.plain_path(&subject) } else { Some(path) };
                    let holder = found.run_id().map(str::to_owned);
                    return Some(LockFileHolder { format: "aiflow", path: path.unwrap_or_default(), holder });
                }
                Ok(_) => {}
                Err(_) => return Some(LockFileHolder { format: "aiflow", path, holder: None }),
            }
        }
        self.task_lock_holder(request)
    }

    /// What keeps a run of a request from starting, in words: a lock file of another program, or an assignment in the queue of
    /// its swarm. Changes nothing.
    pub fn held_elsewhere(&self, request: &Request) -> Option<String> {
        if let Some(found) = self.lock_file_holder(request) {
            let holder = found.holder.as_deref().unwrap_or("another program");
            return Some(format!("{} is held by {holder}", found.path.display()));
        }
        let (swarm, task) = self.swarm.as_ref().zip(request.task())?;
        let queue = queue_of(request)?;
        match queue.look(task) {
            // An expired lock shows that the worker of the task is gone: the next worker takes the task over.
            Ok(Assignment::Taken(status)) if matches!(swarm.show(task, WallTime::now()), Ok(None)) => {
                Some(taken_without_lock(task, &status, queue.path()))
            }
            Ok(_) => None,
            Err(error) => Some(error.to_string()),
        }
    }

    fn task_lock_holder(&self, request: &Request) -> Option<LockFileHolder> {
        let now = WallTime::now();
        let (swarm, task) = self.swarm.as_ref().zip(request.task())?;
        let path = swarm.path(task).unwrap_or_default();
        match swarm.show(task, now) {
            Ok(Some(found)) if !found.verdict.is_stale() => {
                let holder = found.record.map(|record| record.worker_id);
                Some(LockFileHolder { format: "swarm", path, holder })
            }
            Ok(_) => None,
            Err(_) => Some(LockFileHolder { format: "swarm", path, holder: None }),
        }
    }
}

/// Why a task waits that is assigned to a worker without a lock. Workers of the original system leave such a task alone, too.
pub(crate) fn taken_without_lock(task: &str, status: &str, queue: &Path) -> String {
    let path = queue.display();
    format!(
        "task {task} is {status}, without a lock: if nobody works on it, set its status to `pending` in {path}"
    )
}

/// The queue of the swarm that a request was imported from.
pub(crate) fn queue_of(request: &Request) -> Option<TaskQueue> {
    let (_, path) =
        request.env.iter().find(|(name, path)| name == TASKS_VARIABLE && path.starts_with('/'))?;
    Some(TaskQueue::new(path))
}
