//! How soon the write-ahead log is copied into the database.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rusqlite::Connection;

/// How long the log may grow, in pages, before it is copied into the database: a command that finds nobody else
/// there reads all of it.
const COPY_AT: i32 = 24;
/// The same while several wait, so that nobody is about to find it alone.
const COPY_IN_CROWD_AT: i32 = 256;

/// What the last decisions of this process met.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Whether the last one met anybody in a line.
    anybody: AtomicBool,
    /// Whether several waited when that was last told from none.
    several: AtomicBool,
    /// Whether the log is copied seldom.
    patient: AtomicBool,
}

impl Pace {
    /// Has a connection copy the log at this pace: whoever commits the last of so many pages does it, so that it does
    /// not grow for ever.
    pub(super) fn set(self: &Arc<Self>, connection: &mut Connection) -> rusqlite::Result<()> {
        let pace = Arc::clone(self);
        connection.wal_hook(Some(move |log: &mut rusqlite::hooks::Wal, pages| {
            if pages >= pace.copies_at() {
                // What was committed is, whatever becomes of the copy: the next commit tries again.
                let _ = log.checkpoint();
            }
            Ok(())
        }))
    }

    /// Notes how many a decision met in a line, before it is committed. The log is copied seldom while several wait,
    /// where each copy is in everybody's way, and not when somebody is about to be woken; soon again when nobody waits.
    pub(super) fn note(&self, met: usize, hands_on: bool) {
        self.anybody.store(met > 0, Ordering::Relaxed);
        match met {
            0 => self.several.store(false, Ordering::Relaxed),
            // Two who take turns meet nobody every other time.
            1 => {}
            _ => self.several.store(true, Ordering::Relaxed),
        }
        self.patient.store(self.several() || hands_on, Ordering::Relaxed);
    }

    /// Whether the last decision met anybody in a line.
    pub(super) fn anybody(&self) -> bool {
        self.anybody.load(Ordering::Relaxed)
    }

    /// Whether several waited when that was last told from none.
    pub(super) fn several(&self) -> bool {
        self.several.load(Ordering::Relaxed)
    }

    fn copies_at(&self) -> i32 {
        if self.patient.load(Ordering::Relaxed) { COPY_IN_CROWD_AT } else { COPY_AT }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_copied_seldom_while_several_wait_or_one_is_rung() {
        let pace = Pace::default();
        let copied_at = |met, hands_on| {
            pace.note(met, hands_on);
            pace.copies_at()
        };
        assert_eq!(copied_at(0, false), COPY_AT);
        assert_eq!(copied_at(1, false), COPY_AT);
        assert_eq!(copied_at(2, false), COPY_IN_CROWD_AT);
        assert_eq!(copied_at(1, false), COPY_IN_CROWD_AT, "one who waits is no reason to change");
        assert_eq!(copied_at(0, false), COPY_AT);
        assert_eq!(copied_at(1, true), COPY_IN_CROWD_AT, "nobody who is handed something waits for a copy");
        assert_eq!(copied_at(0, false), COPY_AT);
    }
}
