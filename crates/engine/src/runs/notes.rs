//! What a hand notes of runs that it claimed several at a time: which have begun, and how they ended.
//!
//! The store hears of several ends at once. If the worker is killed before, this tells what became of each of its runs.
//! A note is one small write that waits for nothing: it outlives the process, and not the machine. So each names the boot
//! that it is of, and nobody believes those of another.
//!
//! What is not a whole note for the kernel lock of a run says nothing about it: then it may have begun. That it has not
//! is believed only if that was noted before the claim, and the note is still there.

use std::fmt;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use lockkeeper_core::id::{HolderId, WorkerId};
use lockkeeper_core::run::{Ending, Run, Stamp};
use lockkeeper_core::time::Moment;

use super::Runs;
use lockkeeper_platform::fs as local;

/// Where hands keep what is theirs, in a folder for each worker.
const HANDS: &str = "spare";
/// There are fewer hands than this. They have numbers from 1; 0 is whoever keeps nothing.
const MOST: u64 = 2048;
/// How many bytes a note has, with the end of its line.
const WIDTH: usize = 128;
/// How many runs a hand can have notes of. Those whose end is in the store make room for others.
pub(crate) const ROOM: usize = 16;

/// What is known of a run that was claimed together with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Noted {
    /// Its command has not begun.
    Waits,
    /// Its command may have begun.
    Begun,
    /// Its command has ended, and nothing of it was left.
    Ended {
        /// How.
        ending: Ending,
        /// When it began.
        began_at: Stamp,
        /// When it ended.
        ended_at: Stamp,
    },
}

/// The notes of one hand.
#[derive(Debug)]
pub(crate) struct Notes {
    file: File,
    boot: String,
    places: [Option<HolderId>; ROOM],
}

impl Notes {
    /// Makes the file.
    pub(crate) fn make(path: &Path, boot: &str) -> io::Result<Self> {
        if let Some(folder) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        let mut options = File::options();
        options.write(true).create(true).truncate(true).mode(0o600).custom_flags(local::NO_FOLLOW);
        Ok(Self { file: options.open(path)?, boot: boot.to_owned(), places: [None; ROOM] })
    }

    /// Notes of these, which are about to be claimed, that none has begun. Fails when there is no room.
    pub(crate) fn prepare(&mut self, holders: &[HolderId]) -> io::Result<()> {
        for holder in holders {
            let place = self.places.iter().position(Option::is_none).ok_or(io::ErrorKind::StorageFull)?;
            self.places[place] = Some(*holder);
            self.write(place, *holder, Noted::Waits)?;
        }
        Ok(())
    }

    /// Notes what became of one. Says whether it is one of those that are noted.
    pub(crate) fn note(&self, holder: HolderId, noted: Noted) -> io::Result<bool> {
        match self.places.iter().position(|place| *place == Some(holder)) {
            Some(place) => self.write(place, holder, noted).map(|()| true),
            None => Ok(false),
        }
    }

    /// Makes room where those were that the store knows all of.
    pub(crate) fn forget(&mut self, keep: impl Fn(HolderId) -> bool) {
        for place in &mut self.places {
            *place = place.filter(|holder| keep(*holder));
        }
    }

    fn write(&self, place: usize, holder: HolderId, noted: Noted) -> io::Result<()> {
        let line = line(&self.boot, holder, noted);
        self.file.write_all_at(line.as_bytes(), (place * WIDTH) as u64)
    }
}

impl Runs {
    /// Where a hand of a worker keeps what is its own.
    pub(crate) fn folder_of_hands(&self, worker: &WorkerId) -> PathBuf {
        self.all_hands().join(worker.as_str())
    }

    /// The folders of all workers.
    pub(crate) fn all_hands(&self) -> PathBuf {
        self.folder.join(HANDS)
    }

    /// Where a hand keeps its notes.
    pub(crate) fn notes_of(&self, worker: &WorkerId, hand: u64) -> PathBuf {
        self.folder_of_hands(worker).join(format!("{hand}.notes"))
    }

    /// What was noted of a run by the worker that has it; none when that is not known.
    pub(crate) fn noted(&self, run: &Run) -> Option<Noted> {
        let (worker, process) = run.worker.as_ref().zip(run.process)?;
        let hand = hand_of(process.holder)?;
        // A command that took so long that its process was noted had begun.
        let text =
            fs::read_to_string(self.notes_of(worker, hand)).ok().filter(|_| process.command.is_none())?;
        let mut found = text.lines().filter_map(|text| read(self.store.boot(), process.holder, text));
        // Numbers are never used twice, and there is one note of each.
        found.next().filter(|_| found.next().is_none())
    }
}

/// Which hand of its worker a run is with: the last digits of its kernel lock tell.
pub(crate) fn hand_of(holder: HolderId) -> Option<u64> {
    Some(holder.0 % MOST).filter(|hand| *hand > 0)
}

/// A number for the kernel lock of a run of this hand.
pub(crate) fn for_hand(random: HolderId, hand: u32) -> HolderId {
    let hand = Some(u64::from(hand)).filter(|hand| *hand < MOST).unwrap_or(0);
    HolderId(random.0 - random.0 % MOST + hand)
}

fn line(boot: &str, holder: HolderId, noted: Noted) -> String {
    let text = format!("{:016x} {noted}", holder.0);
    let check = check(boot, &text);
    format!("{text:<width$}{check:016x}\n", width = WIDTH - 17)
}

fn read(boot: &str, holder: HolderId, line: &str) -> Option<Noted> {
    let (text, sum) = line.split_at_checked(WIDTH - 17)?;
    let mut words = text.split_ascii_whitespace();
    let of_this = words.next()? == format!("{:016x}", holder.0);
    if !of_this || sum != format!("{:016x}", check(boot, text.trim_end())) {
        return None;
    }
    let ending: fn(u8) -> Ending = match words.next()? {
        "waits" => return Some(Noted::Waits),
        "begun" => return Some(Noted::Begun),
        "exited" => Ending::Exited,
        "signaled" => Ending::Signaled,
        _ => return None,
    };
    let code = words.next()?.parse().ok()?;
    let mut number = || words.next()?.parse::<i64>().ok();
    let mut stamp = || Some(Stamp { moment: Moment::from_micros(number()?), unix_micros: number()? });
    Some(Noted::Ended { ending: ending(code), began_at: stamp()?, ended_at: stamp()? })
}

impl fmt::Display for Noted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ending, began_at, ended_at) = match self {
            Self::Waits => return f.write_str("waits"),
            Self::Begun => return f.write_str("begun"),
            Self::Ended { ending, began_at, ended_at } => (ending, began_at, ended_at),
        };
        match ending {
            Ending::Exited(code) => write!(f, "exited {code}")?,
            Ending::Signaled(signal) => write!(f, "signaled {signal}")?,
        }
        for at in [began_at, ended_at] {
            write!(f, " {} {}", at.moment.as_micros(), at.unix_micros)?;
        }
        Ok(())
    }
}

/// FNV-1a: tells a note from half of one, and from one of another boot. It need not withstand anybody.
fn check(boot: &str, text: &str) -> u64 {
    let bytes = boot.bytes().chain([0]).chain(text.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stamp(micros: i64) -> Stamp {
        Stamp { moment: Moment::from_micros(micros), unix_micros: 1_700_000_000_000_000 + micros }
    }

    fn noted() -> impl Strategy<Value = Noted> {
        let ending =
            prop_oneof![any::<u8>().prop_map(Ending::Exited), any::<u8>().prop_map(Ending::Signaled)];
        prop_oneof![
            Just(Noted::Waits),
            Just(Noted::Begun),
            (ending, 0..i64::MAX / 4, 0..i64::MAX / 4).prop_map(|(ending, began, ended)| Noted::Ended {
                ending,
                began_at: Stamp { moment: Moment::from_micros(began), unix_micros: ended },
                ended_at: Stamp { moment: Moment::from_micros(ended), unix_micros: began },
            }),
        ]
    }

    proptest! {
        /// A note is read as it was written, and has always the same length.
        #[test]
        fn a_note_says_what_was_noted(noted in noted(), holder in 0..u64::MAX / 4) {
            let line = line("boot", HolderId(holder), noted);
            prop_assert_eq!(line.len(), WIDTH, "{}", line);
            prop_assert_eq!(read("boot", HolderId(holder), line.trim_end_matches('\n')), Some(noted));
        }

        /// Requirement 92. Whatever is not the whole note of this run and boot says nothing: nobody begins because of it.
        #[test]
        fn half_a_note_or_anothers_says_nothing(
            noted in noted(), before in noted(), cut in 0..WIDTH, holder in 0..u64::MAX / 4,
        ) {
            let holder = HolderId(holder);
            let (old, new) = (line("boot", holder, before), line("boot", holder, noted));
            let torn = format!("{}{}", &new[..cut], &old[cut..]);
            let found = torn.lines().find_map(|line| read("boot", holder, line));
            prop_assert!(found.is_none_or(|found| found == noted || found == before), "{}", torn);
            prop_assert!(new[..cut].lines().all(|line| read("boot", holder, line).is_none() || cut == WIDTH - 1));
            let line = new.trim_end_matches('\n');
            prop_assert_eq!(read("another", holder, line), None);
            prop_assert_eq!(read("boot", HolderId(holder.0 + 1), line), None);
        }
    }

    #[test]
    fn room_is_made_by_what_the_store_knows() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("worker/1.notes");
        let mut notes = Notes::make(&path, "boot").unwrap();
        let holders: Vec<HolderId> = (1..=ROOM as u64).map(HolderId).collect();
        notes.prepare(&holders).unwrap();
        assert!(notes.prepare(&[HolderId(99)]).is_err());
        assert!(!notes.note(HolderId(99), Noted::Begun).unwrap());
        let ended = Noted::Ended { ending: Ending::Exited(3), began_at: stamp(5), ended_at: stamp(9) };
        assert!(notes.note(HolderId(2), ended).unwrap() && notes.note(HolderId(3), Noted::Begun).unwrap());
        notes.forget(|holder| holder == HolderId(2));
        notes.prepare(&[HolderId(99)]).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let of = |holder: u64| text.lines().find_map(|line| read("boot", HolderId(holder), line));
        assert_eq!(
            [of(1), of(2), of(3), of(99)],
            [None, Some(ended), Some(Noted::Begun), Some(Noted::Waits)]
        );
    }

    #[test]
    fn the_number_of_a_lock_tells_the_hand() {
        assert_eq!(hand_of(for_hand(HolderId(12_345_678), 7)), Some(7));
        assert_eq!(hand_of(for_hand(HolderId(12_345_678), 0)), None);
        assert_eq!(hand_of(for_hand(HolderId(12_345_678), 5_000)), None);
    }
}
