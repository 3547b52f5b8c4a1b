//! What a guardian writes: a mark in `begun` before a command starts, and a record in `ended` when it has ended.

use std::fmt::Write as _;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use lockkeeper_core::id::HolderId;
use lockkeeper_core::time::Moment;

use crate::exec::Ending;

/// The length of one record in `ended`. The first place is for the boot.
const WIDTH: usize = 64;
const BOOT: &str = "boot ";

/// What is written about one command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The text of the mark, and where it is written in `begun`.
    pub begun: (String, u64),
    /// Which record it is in `ended`, from 0.
    pub place: u64,
    /// The kernel lock of the command, by which its record is found.
    pub holder: HolderId,
    /// `NAME=value` in the environment of the command.
    pub mark: String,
}

impl Note {
    /// Writes the mark.
    pub(super) fn write(&self, file: &File) -> io::Result<()> {
        file.write_all_at(self.begun.0.as_bytes(), self.begun.1)
    }

    /// Takes the mark back: the command did not start.
    pub(super) fn erase(&self, file: &File) -> io::Result<()> {
        let blank: String = self.begun.0.chars().map(|one| if one == '\n' { one } else { ' ' }).collect();
        file.write_all_at(blank.as_bytes(), self.begun.1)
    }

    /// Whether the mark is there.
    pub(super) fn is_in(&self, file: &File) -> io::Result<bool> {
        let (text, place) = &self.begun;
        let mut found = vec![0; text.len()];
        match file.read_exact_at(&mut found, *place) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            outcome => outcome.map(|()| found == text.as_bytes()),
        }
    }
}

/// A record in `ended`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndRecord {
    /// The kernel lock of the command.
    pub holder: HolderId,
    /// How and when it ended, if it has.
    pub ended: Option<(Ending, Moment)>,
}

impl EndRecord {
    /// The record as a line of a file.
    fn line(self) -> String {
        let mut text = format!("{:016x} ", self.holder.0);
        let _ = match self.ended {
            None => write!(text, "running"),
            Some((Ending::Exited(code), at)) => write!(text, "exited {code} {}", at.as_micros()),
            Some((Ending::Signaled(signal), at)) => write!(text, "signaled {signal} {}", at.as_micros()),
        };
        format!("{text:<width$}\n", width = WIDTH - 1)
    }

    /// Reads a line. None if it is no record.
    pub fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let holder = HolderId(u64::from_str_radix(words.next()?, 16).ok()?);
        let how = words.next()?;
        let ended = match how {
            "running" => None,
            "exited" => Some(Ending::Exited(words.next()?.parse().ok()?)),
            "signaled" => Some(Ending::Signaled(words.next()?.parse().ok()?)),
            _ => return None,
        };
        let ended = match ended {
            None => None,
            Some(ending) => Some((ending, Moment::from_micros(words.next()?.parse().ok()?))),
        };
        words.next().is_none().then_some(Self { holder, ended })
    }

    /// Writes the record at its place.
    pub(super) fn write(self, file: &File, place: u64) -> io::Result<()> {
        file.write_all_at(self.line().as_bytes(), (place + 1) * WIDTH as u64)
    }

    /// Writes the first line of `ended`: the boot to whose clock the moments belong.
    pub fn write_boot(file: &File, boot: &str) -> io::Result<()> {
        let width = WIDTH - 1 - BOOT.len();
        file.write_all_at(format!("{BOOT}{boot:<width$.width$}\n").as_bytes(), 0)
    }

    /// Whether the moments in this text of `ended` belong to this boot. Earlier versions did not write it.
    pub fn is_of_boot(text: &str, boot: &str) -> bool {
        let written = text.lines().next().and_then(|line| line.strip_prefix(BOOT));
        written.is_none_or(|written| boot.starts_with(written.trim_end()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let holder = HolderId(u64::MAX >> 1);
        let endings = [Ending::Exited(0), Ending::Exited(255), Ending::Signaled(9)];
        let ended = endings.into_iter().map(|ending| Some((ending, Moment::from_micros(i64::MAX))));
        for ended in ended.chain([None]) {
            let record = EndRecord { holder, ended };
            assert_eq!(record.line().len(), WIDTH);
            assert_eq!(EndRecord::parse(&record.line()), Some(record));
        }
    }

    #[test]
    fn the_first_line_names_the_boot_and_is_no_record() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let boot = "0bd05358-95b7-4a33-8d8f-4a4b8a5ad0f6";
        EndRecord::write_boot(file.as_file(), boot).unwrap();
        EndRecord { holder: HolderId(7), ended: None }.write(file.as_file(), 0).unwrap();
        let text = std::fs::read_to_string(file.path()).unwrap();
        let records: Vec<_> = text.lines().map(EndRecord::parse).collect();
        assert_eq!(records, [None, Some(EndRecord { holder: HolderId(7), ended: None })]);
        assert!(EndRecord::is_of_boot(&text, boot) && !EndRecord::is_of_boot(&text, "another"));
        assert!(EndRecord::is_of_boot("0000000000000001 running\n", boot), "an earlier version");
    }

    #[test]
    fn a_line_that_is_no_record_is_not_read_as_one() {
        for line in
            ["", "zz running", "1 exited", "1 exited 256 4", "1 exited 3", "1 exited 3 4 5", "1 gone 3 4"]
        {
            assert_eq!(EndRecord::parse(line), None, "{line}");
        }
    }
}
