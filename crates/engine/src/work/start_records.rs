//! Start records: a file in which a worker notes each claim just before it starts the command, `spare/WORKER/begun`.
//!
//! A worker may be killed between the claim and the start. The run of a claim without a record can be claimed again: its
//! command has not begun. The record is not forced to the disk. It survives the death of the worker, and not a power cut:
//! after that every claim counts as begun.
//!
//! The guardian, if there is one, writes the start record to `begun` and the end of each command to `ended`.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use lockkeeper_core::id::{RunId, WorkerId};
use lockkeeper_core::run::Run;
use lockkeeper_platform::exec::{EndRecord, Note};
use lockkeeper_platform::{access, flock, origin};

use super::attempt::reusable_log;
use super::end_records;
use super::processes::process_mark;

/// The length of one record.
const WIDTH: usize = 128;

/// The start records of one worker: a place for each job slot, then one for each single run.
#[derive(Debug)]
pub(super) struct StartRecords {
    file: File,
    /// The guardian's records of ends. It is locked while this worker or its guardian lives.
    ended: File,
    next: AtomicU64,
}

impl StartRecords {
    /// Makes the file, with room for the records of all job slots.
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
        EndRecord::write_boot(&ended, &origin::origin()?.boot)?;
        let blank = format!("{:<width$}\n", "", width = WIDTH - 1);
        file.write_all_at(blank.repeat(slots as usize).as_bytes(), 0)?;
        Ok(Self { file, ended, next: AtomicU64::new(u64::from(slots)) })
    }

    /// The files that the guardian writes: start records and end records.
    pub(super) fn files(&self) -> (&File, &File) {
        (&self.file, &self.ended)
    }

    /// What the guardian writes about the command of a claim. None without a liveness lock, which is the key of the record.
    pub(super) fn note(&self, slot: Option<u32>, run: &Run) -> Option<Note> {
        let holder = run.process()?.holder;
        let place = self.place(slot);
        let begun = (line(&run.id, run.claim()), place * WIDTH as u64);
        Some(Note { begun, place, holder, mark: process_mark(&run.id) })
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

/// Whether the command of the current claim may have begun. True if the worker made no file, because then it is unknown.
pub(super) fn may_have_begun(state: &Path, worker: &WorkerId, run: &Run) -> bool {
    let record = record_of(&run.id, run.claim());
    match fs::read_to_string(path(state, worker)) {
        Ok(text) => text.lines().any(|line| line.trim_end() == record),
        Err(_) => true,
    }
}

/// The runs in the start records of a worker, whose files are in this folder. Most of them have ended.
pub(super) fn recorded_runs(folder: &Path) -> Vec<RunId> {
    let text = fs::read_to_string(folder.join("begun")).unwrap_or_default();
    text.lines().filter_map(|line| line.split_ascii_whitespace().next()?.parse().ok()).collect()
}

fn line(run: &RunId, claim: u64) -> String {
    format!("{:<width$}\n", record_of(run, claim), width = WIDTH - 1)
}

fn record_of(run: &RunId, claim: u64) -> String {
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
    fn only_a_recorded_claim_may_have_begun() {
        let state = tempfile::tempdir().unwrap();
        let (state, worker) = (state.path(), "W-1".parse().unwrap());
        let [first, second, third] = ["RUN-1", "RUN-2", "RUN-3"].map(claimed);
        assert!(may_have_begun(state, &worker, &first), "nothing is known of a worker without a file");
        let start_records = StartRecords::make(state, &worker, 2).unwrap();
        assert!(!may_have_begun(state, &worker, &first));
        start_records.set(Some(2), &first.id, first.claim()).unwrap();
        start_records.set(None, &second.id, second.claim()).unwrap();
        start_records.set(None, &third.id, third.claim() + 1).unwrap();
        assert!(may_have_begun(state, &worker, &first) && may_have_begun(state, &worker, &second));
        assert!(!may_have_begun(state, &worker, &third), "the record is of another claim");
        let recorded = recorded_runs(&reusable_log::folder_of(state, &worker));
        assert_eq!(recorded, ["RUN-1", "RUN-2", "RUN-3"].map(|id| id.parse().unwrap()));
        start_records.set(Some(2), &third.id, third.claim()).unwrap();
        assert!(!may_have_begun(state, &worker, &first) && may_have_begun(state, &worker, &third));
    }
}
