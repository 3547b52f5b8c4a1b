//! Start marks: a file in which a worker notes each claim just before it starts the command, `spare/WORKER/begun`.
//!
//! A worker may be killed between the claim and the start. The run of a claim without a mark can be claimed again: its
//! command has not begun. The mark is not forced to the disk. It survives the death of the worker, and not a power cut:
//! after that every claim counts as begun.
//!
//! Where the worker has a guardian, that one writes the mark, and how each command ended, into `spare/WORKER/ended`.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use lockkeeper_core::id::{RunId, WorkerId};
use lockkeeper_core::run::Run;
use lockkeeper_platform::exec::Note;
use lockkeeper_platform::{access, flock};

use super::attempt::reusable_log;
use super::end_records;
use super::processes::mark;

/// The length of one mark.
const WIDTH: usize = 128;

/// The marks of one worker: a place for each job slot, then one for each single run.
#[derive(Debug)]
pub(super) struct StartMarks {
    file: File,
    /// The guardian's records of ends. It is locked while this worker or its guardian lives.
    ended: File,
    next: AtomicU64,
}

impl StartMarks {
    /// Makes the file, with room for the marks of all job slots.
    pub(super) fn make(state: &Path, worker: &WorkerId, slots: u32) -> io::Result<Self> {
        let folder = reusable_log::folder_of(state, worker);
        access::make_folder(&folder)?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true).mode(0o600);
        let file = options.open(path(state, worker))?;
        access::inherit(&file, &folder)?;
        let ended = options.open(end_records::path(&folder))?;
        access::inherit(&ended, &folder)?;
        flock::try_lock(&ended)?;
        let blank = format!("{:<width$}\n", "", width = WIDTH - 1);
        file.write_all_at(blank.repeat(slots as usize).as_bytes(), 0)?;
        Ok(Self { file, ended, next: AtomicU64::new(u64::from(slots)) })
    }

    /// The files that the guardian writes: marks and ends.
    pub(super) fn files(&self) -> (&File, &File) {
        (&self.file, &self.ended)
    }

    /// What the guardian writes about the command of a claim. None without a kernel lock, by which it would be found.
    pub(super) fn note(&self, slot: Option<u32>, run: &Run) -> Option<Note> {
        let holder = run.process()?.holder;
        let place = self.place(slot);
        let begun = (line(&run.id, run.claim()), place * WIDTH as u64);
        Some(Note { begun, place, holder, mark: mark(&run.id) })
    }

    /// Notes that the command of a claim may begin from now on. A slot has one place, from 1; a single run gets a new one.
    pub(super) fn set(&self, slot: Option<u32>, run: &RunId, claim: u64) -> io::Result<()> {
        self.file.write_all_at(line(run, claim).as_bytes(), self.place(slot) * WIDTH as u64)
    }

    fn place(&self, slot: Option<u32>) -> u64 {
        match slot {
            Some(number) => u64::from(number) - 1,
            None => self.next.fetch_add(1, Ordering::Relaxed),
        }
    }
}

/// Whether the command of the current claim may have begun. Where a worker made no file, that is not known: yes.
pub(super) fn may_have_begun(state: &Path, worker: &WorkerId, run: &Run) -> bool {
    let mark = mark_of(&run.id, run.claim());
    match fs::read_to_string(path(state, worker)) {
        Ok(text) => text.lines().any(|line| line.trim_end() == mark),
        Err(_) => true,
    }
}

/// The runs in the marks of a worker, whose files are in this folder. Most of them have ended.
pub(super) fn marked_runs(folder: &Path) -> Vec<RunId> {
    let text = fs::read_to_string(folder.join("begun")).unwrap_or_default();
    text.lines().filter_map(|line| line.split_ascii_whitespace().next()?.parse().ok()).collect()
}

fn line(run: &RunId, claim: u64) -> String {
    format!("{:<width$}\n", mark_of(run, claim), width = WIDTH - 1)
}

fn mark_of(run: &RunId, claim: u64) -> String {
    format!("{run} {claim}")
}

fn path(state: &Path, worker: &WorkerId) -> PathBuf {
    reusable_log::folder_of(state, worker).join("begun")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lockkeeper_core::request::Request;
    use lockkeeper_core::run::Stamp;
    use lockkeeper_core::run::transition::{self, Claimant};
    use lockkeeper_core::time::Moment;

    use super::*;

    fn claimed(id: &str) -> Run {
        let now = Stamp { moment: Moment::from_micros(1), unix_micros: 1 };
        let request = Request {
            timeout: Some(Duration::from_secs(1)),
            ..Request::new("RQ-1".parse().unwrap(), vec!["true".to_owned()], "/".to_owned())
        };
        let run = transition::submit(&request, id.parse().unwrap(), now).run;
        let claimant = Claimant { worker: "W-1".parse().unwrap(), holder: None, lease: None };
        transition::claim(&run, claimant, now).unwrap().run
    }

    #[test]
    fn only_a_marked_claim_may_have_begun() {
        let state = tempfile::tempdir().unwrap();
        let (state, worker) = (state.path(), "W-1".parse().unwrap());
        let [first, second, third] = ["RUN-1", "RUN-2", "RUN-3"].map(claimed);
        assert!(may_have_begun(state, &worker, &first), "nothing is known of a worker without a file");
        let marks = StartMarks::make(state, &worker, 2).unwrap();
        assert!(!may_have_begun(state, &worker, &first));
        marks.set(Some(2), &first.id, first.claim()).unwrap();
        marks.set(None, &second.id, second.claim()).unwrap();
        marks.set(None, &third.id, third.claim() + 1).unwrap();
        assert!(may_have_begun(state, &worker, &first) && may_have_begun(state, &worker, &second));
        assert!(!may_have_begun(state, &worker, &third), "the mark is of another claim");
        let marked = marked_runs(&reusable_log::folder_of(state, &worker));
        assert_eq!(marked, ["RUN-1", "RUN-2", "RUN-3"].map(|id| id.parse().unwrap()));
        marks.set(Some(2), &third.id, third.claim()).unwrap();
        assert!(!may_have_begun(state, &worker, &first) && may_have_begun(state, &worker, &third));
    }
}
