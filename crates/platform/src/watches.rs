//! Cache of process handles: to reuse an open pidfd costs less than to open it again.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use lockkeeper_core::liveness::ProcessRef;

use super::pidfd;
use super::process::{Watch, watch};

/// How many handles stay open: enough for a line of 64 that take turns.
const MOST: usize = 64;

/// The handles that were used last.
#[derive(Debug)]
pub struct Watches {
    open: Mutex<Vec<(ProcessRef, Arc<OwnedFd>)>>,
    most: usize,
}

impl Watches {
    /// An empty cache of at most `most` handles.
    fn keeping(most: usize) -> Self {
        Self { open: Mutex::new(Vec::new()), most }
    }

    /// As [`watch`].
    pub fn watch(&self, process: ProcessRef) -> Watch {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = open.iter().position(|(known, _)| *known == process) {
            if !pidfd::has_ended(&open[place].1).unwrap_or(true) {
                return Watch::Exit(Arc::clone(&open[place].1));
            }
            open.remove(place);
        }
        let watch = watch(process);
        if let Watch::Exit(handle) = &watch {
            open.truncate(self.most - 1);
            open.insert(0, (process, Arc::clone(handle)));
        }
        watch
    }
}

impl Default for Watches {
    fn default() -> Self {
        Self::keeping(MOST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poll;
    use crate::process::identify;
    use std::os::fd::AsFd;
    use std::process::{Child, Command};

    fn sleeper() -> Child {
        Command::new("sleep").arg("600").spawn().unwrap()
    }

    #[test]
    fn a_process_that_is_watched_again_is_seen_to_end() {
        let watches = Watches::keeping(2);
        let mut children: Vec<Child> = (0..3).map(|_| sleeper()).collect();
        let processes: Vec<ProcessRef> = children.iter().map(|child| identify(child.id()).unwrap()).collect();
        for process in processes.iter().chain(&processes) {
            assert!(matches!(watches.watch(*process), Watch::Exit(_)));
        }
        for (child, process) in children.iter_mut().zip(processes) {
            let Watch::Exit(end) = watches.watch(process) else { panic!("no watch") };
            child.kill().unwrap();
            assert!(poll::wait(&[end.as_fd()], None).unwrap().any());
            assert!(matches!(watches.watch(process), Watch::Gone), "a zombie is nothing to wait for");
            child.wait().unwrap();
            assert!(matches!(watches.watch(process), Watch::Gone));
        }
    }
}
