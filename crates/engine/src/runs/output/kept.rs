//! The output of a run that another machine executes or executed: what the store keeps of it.

use std::ops::Range;
use std::thread;
use std::time::Duration;

use lockkeeper_core::run::{Run, Stamp};
use lockkeeper_store::runs::KeptOutput;

use super::{Output, Source};
use crate::runs::{RunError, Runs};

/// How long the last part of an output may take to arrive after its end was written. Longer if the machine is gone.
const LAST_PART: Duration = Duration::from_secs(3);
/// How often to look for it.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The parts of an output from some offset on.
#[derive(Debug)]
pub(super) struct Kept {
    found: KeptOutput,
    /// What lies before was not asked for.
    from: u64,
}

impl Kept {
    pub(super) fn host(&self) -> &str {
        &self.found.host
    }

    pub(super) const fn size(&self) -> u64 {
        self.found.size
    }

    /// The bytes that are missing. The worker keeps the parts so that this is one range.
    pub(super) fn cut(&self) -> Option<Range<u64>> {
        let mut end = self.from;
        for piece in &self.found.pieces {
            if piece.from > end {
                return Some(end..piece.from);
            }
            end = piece.end();
        }
        None
    }

    /// Reads up to the next byte that is missing.
    pub(super) fn read_at(&self, bytes: &mut [u8], from: u64) -> usize {
        let mut read = 0;
        for piece in &self.found.pieces {
            let at = from + read as u64;
            if (piece.from..piece.end()).contains(&at) {
                let rest = &piece.bytes[(at - piece.from) as usize..];
                let length = rest.len().min(bytes.len() - read);
                bytes[read..read + length].copy_from_slice(&rest[..length]);
                read += length;
            }
        }
        read
    }
}

impl Runs {
    /// Opens the output of an attempt, the latest by default; none if it has written nothing yet. If another machine executes it,
    /// this is what the store keeps of it, and only from the offset `from` on.
    pub fn output(&self, run: &Run, attempt: Option<u32>, from: u64) -> Result<Option<Output>, RunError> {
        let latest = run.attempt().max(1);
        let attempt = attempt.unwrap_or(latest);
        if attempt > latest {
            return Ok(None);
        }
        let here = Output::of_attempt(&self.folder_of(&run.id), attempt).map_err(RunError::Unreadable)?;
        if here.is_some() || !self.is_shared() {
            return Ok(here);
        }
        // The last part arrives a moment after the end.
        let ended_at = if attempt < latest { run.started_at() } else { run.completed_at() };
        loop {
            let found = self.store.snapshot()?.output(&run.id, attempt, from)?;
            let is_complete = found.as_ref().is_some_and(|found| found.is_complete);
            let may_arrive = |at: Stamp| self.now().moment.since(at.moment) < LAST_PART;
            if is_complete || !ended_at.is_some_and(may_arrive) {
                return Ok(found.map(|found| Output { source: Source::Kept(Kept { found, from }) }));
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    /// The last line of the output of a run that is not blank; none if there is none, or if it cannot be read.
    pub fn last_line(&self, run: &Run) -> Option<String> {
        self.output(run, None, 0).ok()??.last_line().ok()?
    }
}

#[cfg(test)]
mod tests {
    use lockkeeper_store::runs::Piece;

    use super::*;
    use crate::runs::output::Found;

    fn output(from: u64, pieces: &[(u64, &str)]) -> Output {
        let pieces: Vec<Piece> = pieces
            .iter()
            .map(|(from, text)| Piece { from: *from, bytes: text.as_bytes().to_vec() })
            .collect();
        let size = pieces.last().map_or(0, Piece::end);
        let found = KeptOutput { host: "mill".to_owned(), size, is_complete: true, pieces };
        Output { source: Source::Kept(Kept { found, from }) }
    }

    #[test]
    fn both_parts_are_read_and_what_is_missing_is_known() {
        let output = output(0, &[(0, "one\n"), (4, "two\n"), (100, "three\n"), (106, "four\n")]);
        let read = |from, most| {
            let window = output.read(from, most).unwrap();
            (window.from, String::from_utf8(window.bytes).unwrap())
        };
        assert_eq!(output.len().unwrap(), 111);
        assert_eq!(output.cut().unwrap(), Some(8..100));
        assert_eq!(read(0, 99), (0, "one\ntwo\n".to_owned()));
        assert_eq!(read(8, 99), (100, "three\nfour\n".to_owned()));
        assert_eq!(read(102, 5), (102, "ree\nf".to_owned()));
        assert_eq!(read(111, 5), (111, String::new()));
        assert_eq!(output.last_lines(1).unwrap(), 106);
        assert_eq!(output.last_line().unwrap().as_deref(), Some("four"));
        assert_eq!(output.find(b"two", 0, true).unwrap(), Some(Found::At(4)));
        assert_eq!(output.find(b"TWO", 111, false).unwrap(), Some(Found::At(4)));
    }

    #[test]
    fn a_follower_that_was_too_slow_knows_what_it_missed() {
        let output = output(50, &[(100, "end")]);
        assert_eq!(output.cut().unwrap(), Some(50..100));
        assert_eq!(output.read(50, 9).unwrap().from, 100);
        let at_the_end = self::output(50, &[]);
        assert_eq!(at_the_end.cut().unwrap(), None);
        assert!(at_the_end.read(50, 9).unwrap().bytes.is_empty());
    }
}
