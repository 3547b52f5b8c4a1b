//! Copies the output of runs to a store that several machines share, so that the other machines can read it.
//!
//! The command writes to its file, and a thread of the worker sends what is new, a few times a second. Nothing waits for it: while the
//! store cannot be reached, the command runs on, and its run ends as always. Of a long output the store keeps the first and the last part.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use lockkeeper_core::id::RunId;
use lockkeeper_store::StoreError;
use lockkeeper_store::runs::{OutputChange, Piece};

use super::control::ActiveRuns;
use crate::runs::Runs;
use crate::runs::output::Output;

/// How much of the beginning, and of the end, the store keeps.
const PART: u64 = 256 * 1024;
/// The shortest pause between two copies. A copy that takes long is followed by a longer one.
const PAUSE: Duration = Duration::from_millis(250);
/// The pause after a copy that failed.
const RETRY: Duration = Duration::from_secs(2);
/// How many bytes are sent at once.
const MOST_BYTES: usize = 1024 * 1024;

/// An attempt of a run.
type Attempt = (RunId, u32);

enum Message {
    /// A run has begun.
    Began,
    /// The end of an attempt is written.
    Ended(Attempt),
}

/// The thread that copies. It copies the rest and ends when this is dropped.
#[derive(Default)]
pub(super) struct OutputCopier {
    messages: Option<Sender<Message>>,
    thread: Option<JoinHandle<()>>,
}

impl OutputCopier {
    /// Starts it for a worker on this machine. It does nothing where one machine has all runs.
    pub(super) fn start(runs: &Arc<Runs>, active: &Arc<ActiveRuns>, host: &str) -> std::io::Result<Self> {
        if !runs.is_shared() {
            return Ok(Self::default());
        }
        let (messages, receiver) = channel();
        let (runs, active, host) = (Arc::clone(runs), Arc::clone(active), host.to_owned());
        let mut copies = Copies { runs, host, known: HashMap::new(), ended: Vec::new() };
        let thread = thread::Builder::new().name("output".to_owned());
        let thread = thread.spawn(move || copies.run(&active, &receiver))?;
        Ok(Self { messages: Some(messages), thread: Some(thread) })
    }

    /// A run has begun, or was adopted.
    pub(super) fn began(&self) {
        self.send(Message::Began);
    }

    /// The end of an attempt is written: nothing will follow.
    pub(super) fn ended(&self, run: &RunId, attempt: u32) {
        self.send(Message::Ended((run.clone(), attempt)));
    }

    fn send(&self, message: Message) {
        if let Some(messages) = &self.messages {
            // The thread is gone only if it has panicked.
            let _ = messages.send(message);
        }
    }
}

impl Drop for OutputCopier {
    fn drop(&mut self) {
        drop(self.messages.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Copies {
    runs: Arc<Runs>,
    host: String,
    /// What was copied of the attempts that are executed.
    known: HashMap<Attempt, Copied>,
    /// Attempts that have ended and are not copied completely.
    ended: Vec<Attempt>,
}

impl Copies {
    fn run(&mut self, active: &ActiveRuns, messages: &Receiver<Message>) {
        let mut pause = PAUSE;
        loop {
            if active.is_empty() && self.ended.is_empty() {
                let Ok(message) = messages.recv() else { return };
                self.note(message);
            }
            let until = Instant::now() + pause;
            let is_last = loop {
                match messages.recv_timeout(until.saturating_duration_since(Instant::now())) {
                    Ok(message) => self.note(message),
                    Err(RecvTimeoutError::Timeout) => break false,
                    Err(RecvTimeoutError::Disconnected) => break true,
                }
            };
            let began = Instant::now();
            let copied = self.copy_all(active.attempts());
            if is_last {
                return;
            }
            pause = if copied.is_ok() { PAUSE.max(began.elapsed() * 2) } else { RETRY };
        }
    }

    fn note(&mut self, message: Message) {
        match message {
            Message::Began => {}
            Message::Ended(attempt) => self.ended.push(attempt),
        }
    }

    /// Copies what is new of all attempts.
    fn copy_all(&mut self, active: Vec<Attempt>) -> Result<(), StoreError> {
        let ended = std::mem::take(&mut self.ended);
        self.known.retain(|attempt, _| active.contains(attempt) || ended.contains(attempt));
        let active = active.into_iter().filter(|attempt| !ended.contains(attempt));
        let all = ended.iter().map(|attempt| (attempt.clone(), true));
        let mut todo: Vec<(Attempt, bool)> = all.chain(active.map(|attempt| (attempt, false))).collect();
        while !todo.is_empty() {
            let mut changes = Vec::new();
            let mut bytes = 0;
            while bytes < MOST_BYTES
                && let Some((attempt, has_ended)) = todo.pop()
            {
                let copied = self.known.get(&attempt).cloned().unwrap_or_default();
                if let Some(change) = self.change(&attempt, copied, has_ended) {
                    bytes += change.add.iter().map(|piece| piece.bytes.len()).sum::<usize>();
                    changes.push((attempt, has_ended, change));
                }
            }
            if let Err(error) = self.send(&changes) {
                // What was sent may be there or not: all of it is sent again.
                for (attempt, has_ended, _) in changes {
                    self.known.remove(&attempt);
                    todo.push((attempt, has_ended));
                }
                self.ended =
                    todo.into_iter().filter(|(_, has_ended)| *has_ended).map(|(one, _)| one).collect();
                return Err(error);
            }
            for (attempt, has_ended, change) in changes {
                if has_ended {
                    self.known.remove(&attempt);
                } else {
                    self.known.insert(attempt, change.after);
                }
            }
        }
        Ok(())
    }

    fn send(&self, changes: &[(Attempt, bool, Change)]) -> Result<(), StoreError> {
        if changes.is_empty() {
            return Ok(());
        }
        let changes = changes.iter().map(|((run, attempt), _, change)| OutputChange {
            run,
            attempt: *attempt,
            host: &self.host,
            remove: &change.remove,
            add: &change.add,
        });
        self.runs.store().keep_output(&changes.collect::<Vec<_>>())
    }

    /// What has to be sent for an attempt; none if nothing is new. A file that cannot be read has nothing new.
    fn change(&self, (run, attempt): &Attempt, copied: Copied, has_ended: bool) -> Option<Change> {
        let output = Output::of_attempt(&self.runs.folder_of(run), *attempt).ok()?;
        let mut change = match output {
            Some(output) => copied.next(&output).ok()?,
            // It has written nothing, or another machine has executed it: what that one has sent stays.
            None => Change { remove: 0..0, ..copied.unchanged() },
        };
        if has_ended {
            change.add.push(Piece { from: change.after.end, bytes: Vec::new() });
        }
        (!change.add.is_empty()).then_some(change)
    }
}

/// What was copied of an output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Copied {
    /// Whether anything was sent: before that, the store may have pieces of another process.
    is_known: bool,
    /// The offset after the last byte that was copied or left out.
    end: u64,
    /// The pieces after the first part.
    last: Vec<Range<u64>>,
}

/// What is sent, and what was copied then.
struct Change {
    remove: Range<u64>,
    add: Vec<Piece>,
    after: Copied,
}

impl Copied {
    fn unchanged(self) -> Change {
        let remove = if self.is_known { 0..0 } else { 0..u64::MAX };
        Change { remove, add: Vec::new(), after: Self { is_known: true, ..self } }
    }

    /// Reads what is new: the rest of the first part, and the end of what follows.
    fn next(self, output: &Output) -> std::io::Result<Change> {
        let size = output.len()?;
        let Change { mut remove, mut add, mut after } = self.unchanged();
        while after.end < size.min(PART) {
            let window = output.read(after.end, (size.min(PART) - after.end) as usize)?;
            if window.bytes.is_empty() {
                break;
            }
            after.end = window.end();
            add.push(Piece { from: window.from, bytes: window.bytes });
        }
        let from = after.end.max(size.saturating_sub(PART));
        let mut at = from;
        while at < size && from >= PART {
            let window = output.read(at, (size - at) as usize)?;
            if window.bytes.is_empty() {
                break;
            }
            if window.from > after.end {
                // Something is left out: what was kept after the first part would be a third part.
                after.last.clear();
                add.retain(|piece| piece.end() <= PART);
            }
            (at, after.end) = (window.end(), window.end());
            after.last.push(window.from..window.end());
            add.push(Piece { from: window.from, bytes: window.bytes });
        }
        after.last.retain(|piece| piece.end > size.saturating_sub(PART));
        if remove.is_empty()
            && let Some(first) = after.last.first()
        {
            remove = PART..first.start;
        }
        Ok(Change { remove, add, after })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::RunFolder;

    /// Sends what is new of an output with these bytes to a store, which is a map.
    fn send(copied: Copied, store: &mut std::collections::BTreeMap<u64, Vec<u8>>, bytes: &[u8]) -> Copied {
        let state = tempfile::tempdir().unwrap();
        let folder = RunFolder::new(state.path(), &"RUN-1".parse().unwrap());
        folder.make().unwrap();
        std::fs::write(folder.output(), bytes).unwrap();
        let change = copied.next(&Output::of_attempt(&folder, 1).unwrap().unwrap()).unwrap();
        store.retain(|from, _| !change.remove.contains(from));
        store.extend(change.add.into_iter().map(|piece| (piece.from, piece.bytes)));
        change.after
    }

    #[test]
    fn the_first_and_the_last_part_are_kept_however_the_output_grows() {
        let part = PART as usize;
        let whole: Vec<u8> = (0..8 * part).map(|at| (at / 7 % 251) as u8).collect();
        for step in [part / 3, part / 2 + 1, part, 3 * part] {
            let (mut copied, mut store) = (Copied::default(), std::collections::BTreeMap::new());
            // Pieces of a process that was killed.
            store.insert(3, vec![0; 9]);
            let mut size = 0;
            while size < whole.len() {
                size = (size + step).min(whole.len());
                copied = send(copied, &mut store, &whole[..size]);
                let mut end = 0;
                let mut gaps = Vec::new();
                for (from, bytes) in &store {
                    let from = *from as usize;
                    assert_eq!(bytes[..], whole[from..from + bytes.len()]);
                    gaps.extend((from != end).then_some((end, from)));
                    end = from + bytes.len();
                }
                assert_eq!(end, size);
                match gaps[..] {
                    [] => assert!(size <= 3 * part),
                    [(from, to)] => assert!(from == part && to + part <= size, "{from} {to} {size}"),
                    _ => panic!("{gaps:?}"),
                }
                assert!(store.values().map(Vec::len).sum::<usize>() <= 3 * part);
            }
        }
    }
}
