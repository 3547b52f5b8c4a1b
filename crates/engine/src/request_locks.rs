//! Lock files of other programs on a request: who holds it, beside the runs of the store.

use std::path::PathBuf;

use lockkeeper_core::request::Request;
use lockkeeper_formats::aiflow::Subject;
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
