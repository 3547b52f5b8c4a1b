//! Executors of one store: all of them lock requests in the same format. Otherwise the programs of that format could start a
//! request that an executor without it runs already.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use lockkeeper_platform::folder::{try_lock, try_lock_shared, unlock};
use lockkeeper_platform::fs::open_private;
use lockkeeper_store::StoreError;

use crate::report::{Exit, Report};
use crate::work::Settings;

/// The pause before the locks of other executors are checked again.
const PAUSE: Duration = Duration::from_millis(10);

/// How executors lock requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecutorFormat {
    /// Only in the store.
    Native,
    /// In the store and in the lock files of aiflow.
    Aiflow,
}

impl ExecutorFormat {
    /// The format of a worker with these settings.
    pub fn of(settings: &Settings) -> Self {
        if settings.aiflow.is_some() { Self::Aiflow } else { Self::Native }
    }

    /// The value of `--lock-format`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Aiflow => "aiflow",
        }
    }

    const fn other(self) -> Self {
        match self {
            Self::Native => Self::Aiflow,
            Self::Aiflow => Self::Native,
        }
    }

    /// How often the locks of other executors are checked. If two executors start at the same time, each sees the other. The one
    /// with fewer checks gives up first.
    const fn looks(self) -> u32 {
        match self {
            Self::Native => 30,
            Self::Aiflow => 10,
        }
    }

    fn path(self, state: &Path) -> PathBuf {
        state.join(format!("executors.{}", self.as_str()))
    }

    fn open(self, state: &Path) -> Result<File, StoreError> {
        let path = self.path(state);
        open_private(&path).map(File::from).map_err(|error| StoreError::io("open", &path, error))
    }
}

/// The registration of an executor, until it is dropped or its process ends.
#[derive(Debug)]
#[must_use = "the executor is registered as long as this lives"]
pub struct Registration(#[expect(dead_code, reason = "its lock ends when it is closed")] File);

/// Registers an executor. Refused while executors with another format are at work.
pub fn register(state: &Path, format: ExecutorFormat) -> Result<Registration, Report> {
    let failed = |error: io::Error| Report::machine(&error);
    let own = format.open(state)?;
    let others = format.other().open(state)?;
    for _ in 0..format.looks() {
        // A process that checks our file now locks it for a moment.
        if try_lock_shared(&own).map_err(failed)? && try_lock(&others).map_err(failed)? {
            unlock(&others);
            return Ok(Registration(own));
        }
        thread::sleep(PAUSE);
    }
    let other = format.other().as_str();
    let message =
        format!("executors of this store are at work that lock requests with --lock-format {other}");
    Err(Report::new(Exit::Refused, "LOCK_FORMAT_DIFFERS", message)
        .with_hint(format!("start this one with --lock-format {other}, too, or end the others first"))
        .with_context("lock_format", other))
}

/// Whether executors with this format are at work. Creates nothing.
pub fn at_work(state: &Path, format: ExecutorFormat) -> Result<bool, Report> {
    let Ok(file) = File::open(format.path(state)) else { return Ok(false) };
    // An executor that registers at this moment sees the lock, and tries again.
    Ok(!try_lock(&file).map_err(|error| Report::machine(&error))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executors_with_different_formats_exclude_each_other() {
        let state = tempfile::tempdir().unwrap();
        let register = |format| register(state.path(), format);
        let (one, two) =
            (register(ExecutorFormat::Aiflow).unwrap(), register(ExecutorFormat::Aiflow).unwrap());
        assert_eq!(register(ExecutorFormat::Native).unwrap_err().code(), "LOCK_FORMAT_DIFFERS");
        assert!(at_work(state.path(), ExecutorFormat::Aiflow).unwrap());
        assert!(!at_work(state.path(), ExecutorFormat::Native).unwrap());
        drop(one);
        assert!(register(ExecutorFormat::Native).is_err());
        drop(two);
        let native = register(ExecutorFormat::Native).unwrap();
        let error = register(ExecutorFormat::Aiflow).unwrap_err();
        assert!(error.hint().unwrap().contains("--lock-format native"), "{error}");
        drop(native);
    }
}
