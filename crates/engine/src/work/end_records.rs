//! End records: what the guardians of workers wrote about the ends of commands, `spare/WORKER/ended`.
//!
//! The record of a command is found by the liveness lock that its processes share. It says `running` from just before the
//! command starts, and how and when it ended as soon as it has. The file is locked while its worker or guardian lives.

use std::fs::{self, File};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use lockkeeper_core::id::HolderId;
use lockkeeper_core::run::transition::AttemptOutcome;
use lockkeeper_core::run::{Ending, Run, Status};
use lockkeeper_core::time::Moment;
use lockkeeper_platform::exec::EndRecord;
use lockkeeper_platform::{flock, fs as local, origin};

use super::attempt::reusable_log;
use crate::runs::Runs;

/// How long the doctor waits for a guardian, which writes the end of a command at once. The doctor only reports, and can be called again.
const GUARDIAN_TIMEOUT: Duration = Duration::from_secs(1);
/// How often the record is read until then.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// How and when a command ended, on the clock of this machine. The time is not known after a reboot.
pub(super) type SeenEnd = (Ending, Option<Moment>);

/// What is known about the end of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// There is no record: the command had no guardian, or has not begun.
    Nothing,
    /// The record has no end yet. The guardian lives and will write it.
    Guarded,
    /// The record has no end, and its guardian is dead: there will be none.
    NeverWritten,
    /// The command ended like this.
    Ended(SeenEnd),
}

/// The records in the folder of a worker.
pub(super) fn path(folder: &Path) -> PathBuf {
    folder.join("ended")
}

/// Looks for the record of the command with this liveness lock.
pub(super) fn look(state: &Path, holder: HolderId) -> Known {
    let name = format!("{:016x} ", holder.0);
    for folder in reusable_log::folders(state) {
        // Checked before the file is read: a guardian that ends in between has written everything.
        let is_guarded = is_guarded(&folder);
        let text = fs::read_to_string(path(&folder)).unwrap_or_default();
        if let Some(line) = lines(&text).find(|line| line.starts_with(&name)) {
            return match EndRecord::parse(line).and_then(|record| record.ended) {
                Some((ending, at)) => Known::Ended((ending.into(), is_of_this_boot(&text).then_some(at))),
                None if is_guarded => Known::Guarded,
                None => Known::NeverWritten,
            };
        }
    }
    Known::Nothing
}

/// Whether a guardian has written that the command with this liveness lock has ended.
pub(crate) fn has_ended(state: &Path, holder: HolderId) -> bool {
    matches!(look(state, holder), Known::Ended(_))
}

/// Reads the record of a command that has exited, until its guardian has written the end.
pub(super) fn poll_after_exit(state: &Path, holder: HolderId) -> Known {
    let until = Instant::now() + GUARDIAN_TIMEOUT;
    loop {
        let known = look(state, holder);
        if known != Known::Guarded || until <= Instant::now() {
            return known;
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Whether the folder of a worker that is gone has to stay: its guardian lives, or an active run has its record there.
pub(super) fn is_needed(folder: &Path, holders: &[HolderId]) -> bool {
    let text = || fs::read_to_string(path(folder)).unwrap_or_default();
    is_guarded(folder)
        || lines(&text()).filter_map(EndRecord::parse).any(|record| holders.contains(&record.holder))
}

/// What a seen end means for a run whose worker did not see it.
pub(super) fn outcome(runs: &Runs, run: &Run, (ending, at): SeenEnd) -> AttemptOutcome {
    // Its worker may have stopped it: such a run is no success, also if its command returned 0.
    let is_late = |limit| at.is_some_and(|at| runs.local_moment(limit) <= at);
    if run.times_out_at().is_some_and(is_late) {
        AttemptOutcome::TimedOut(Some(ending))
    } else if run.status() == Status::Cancelling {
        AttemptOutcome::Stopped(Some(ending))
    } else {
        AttemptOutcome::Ended(ending)
    }
}

/// Whether the moments of these records can be compared with those of the clock now.
fn is_of_this_boot(text: &str) -> bool {
    origin::origin().is_ok_and(|here| EndRecord::is_of_boot(text, &here.boot))
}

/// The records in a text. A place that was never used is empty: zero bytes.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.split(['\n', '\0']).filter(|line| !line.is_empty())
}

fn is_guarded(folder: &Path) -> bool {
    let opened =
        File::options().read(true).custom_flags(local::NO_FOLLOW | local::NO_WAIT).open(path(folder));
    opened.is_ok_and(|file| flock::is_locked(&file).unwrap_or(false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_found_by_its_liveness_lock_and_open_ones_need_a_guardian() {
        let state = tempfile::tempdir().unwrap();
        let folder = state.path().join("spare/W-1");
        fs::create_dir_all(&folder).unwrap();
        let text =
            "\0\0\n0000000000000001 running\n0000000000000002 exited 3 40\n0000000000000003 signaled 9 50\n";
        fs::write(path(&folder), text).unwrap();
        let look = |holder| look(state.path(), HolderId(holder));
        assert_eq!((look(1), look(4)), (Known::NeverWritten, Known::Nothing));
        assert_eq!(look(2), Known::Ended((Ending::Exited(3), Some(Moment::from_micros(40)))));
        assert_eq!(look(3), Known::Ended((Ending::Signaled(9), Some(Moment::from_micros(50)))));
        assert!(is_needed(&folder, &[HolderId(2)]) && !is_needed(&folder, &[HolderId(4)]));
        let guardian = File::options().write(true).open(path(&folder)).unwrap();
        assert!(flock::try_lock(&guardian).unwrap());
        assert_eq!(look(1), Known::Guarded);
        assert!(is_needed(&folder, &[]));
        drop(guardian);
        assert_eq!(look(1), Known::NeverWritten);
    }
}
