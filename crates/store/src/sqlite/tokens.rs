//! Number sequence: numbers that are never given twice, in a small file of their own.
//!
//! The database is written without fsync, and it may be moved away or lose its log. The numbers must go on all the same. So
//! the file has the last number, which is written before the transaction that drew it commits. It also has a limit, which is
//! synced to the disk before any number below it is given. In the same boot the last number counts. After another boot the
//! limit counts, since the last writes may be lost.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::StoreError;
use lockkeeper_platform::fs::{open_private, open_to_read};

/// How many numbers one fsync is good for.
const BLOCK: u64 = 4096;
/// Every write is this long, so that each replaces the one before.
const LENGTH: usize = 128;
const HEADING: &str = "lockkeeper-tokens 1";

/// The file `tokens`. The caller holds the write lock while it draws.
#[derive(Debug)]
pub(super) struct Tokens {
    file: File,
    path: PathBuf,
    boot: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct State {
    boot: String,
    last: u64,
    limit: u64,
}

impl Tokens {
    /// Opens the file, or creates it.
    pub(super) fn open(folder: &Path, boot: &str) -> Result<Self, StoreError> {
        let path = folder.join("tokens");
        let file = open_private(&path).map_err(|source| StoreError::io("open", &path, source))?;
        Ok(Self { file: file.into(), path, boot: boot.to_owned() })
    }

    /// Opens an existing file that may not be written.
    pub(super) fn open_to_read(folder: &Path, boot: &str) -> Result<Self, StoreError> {
        let path = folder.join("tokens");
        let file = open_to_read(&path).map_err(|source| StoreError::io("open", &path, source))?;
        Ok(Self { file: file.into(), path, boot: boot.to_owned() })
    }

    /// The boot in which numbers were last given; none when there is nothing yet.
    pub(super) fn boot(&self) -> Result<Option<String>, StoreError> {
        Ok(self.read()?.map(|state| state.boot))
    }

    /// A number that is not below any that was given; zero if none was.
    pub(super) fn limit(&self) -> Result<u64, StoreError> {
        Ok(self.read()?.map_or(0, |state| state.limit))
    }

    /// The last number given in this boot, if one was.
    pub(super) fn last(&self) -> Result<Option<u64>, StoreError> {
        Ok(self.read()?.filter(|state| state.boot == self.boot).map(|state| state.last))
    }

    /// Starts to draw numbers. `noted` is the limit in the database.
    pub(super) fn draw(&self, noted: u64) -> Result<Drawing<'_>, StoreError> {
        let (last, limit) = match self.read()? {
            // The file is new, or an old copy: the limit of the database counts.
            None => (noted, 0),
            Some(state) if state.limit < noted => (noted, 0),
            Some(state) if state.boot == self.boot => (state.last, state.limit),
            Some(state) => (state.limit, state.limit),
        };
        Ok(Drawing { tokens: self, last, limit, noted, kept: true })
    }

    fn read(&self) -> Result<Option<State>, StoreError> {
        let mut bytes = [0; LENGTH];
        let mut length = 0;
        while length < LENGTH {
            match self.file.read_at(&mut bytes[length..], length as u64) {
                Ok(0) => break,
                Ok(more) => length += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(self.failed("read", source)),
            }
        }
        if length == 0 {
            return Ok(None);
        }
        let text = std::str::from_utf8(&bytes[..length]).ok();
        text.and_then(State::parse).map(Some).ok_or_else(|| StoreError::Damaged {
            address: self.path.display().to_string(),
            what: "it does not say which numbers were given".to_owned(),
        })
    }

    fn write(&self, last: u64, limit: u64) -> Result<(), StoreError> {
        let mut line = [b' '; LENGTH];
        line[LENGTH - 1] = b'\n';
        let boot = &self.boot;
        let written =
            write!(&mut line[..LENGTH - 1], "{HEADING} boot={boot} last={last:020} limit={limit:020}");
        let written = written.and_then(|()| self.file.write_all_at(&line, 0));
        written.map_err(|source| self.failed("write to", source))
    }

    fn failed(&self, action: &'static str, source: io::Error) -> StoreError {
        StoreError::io(action, &self.path, source)
    }
}

/// Numbers that were drawn and not yet written to the file.
pub(super) struct Drawing<'t> {
    tokens: &'t Tokens,
    last: u64,
    limit: u64,
    /// The limit in the database.
    noted: u64,
    kept: bool,
}

impl Drawing<'_> {
    /// The next number.
    pub(super) fn next(&mut self) -> u64 {
        self.last += 1;
        self.kept = false;
        self.last
    }

    /// Makes sure that these numbers are never drawn again. Called before they are committed.
    ///
    /// Returns the limit if the database does not have it.
    pub(super) fn keep(&mut self) -> Result<Option<u64>, StoreError> {
        if self.kept {
            return Ok(None);
        }
        let moved = self.last >= self.limit;
        if moved {
            self.limit = self.last + BLOCK;
        }
        self.tokens.write(self.last, self.limit)?;
        if moved {
            self.tokens.file.sync_data().map_err(|source| self.tokens.failed("sync", source))?;
        }
        self.kept = true;
        Ok((self.limit != self.noted).then_some(self.limit))
    }
}

impl State {
    fn parse(text: &str) -> Option<Self> {
        let fields = text.strip_suffix('\n')?.trim_end().strip_prefix(HEADING)?;
        let (boot, numbers) = fields.strip_prefix(" boot=")?.split_once(" last=")?;
        let (last, limit) = numbers.split_once(" limit=")?;
        let state = Self { boot: boot.to_owned(), last: last.parse().ok()?, limit: limit.parse().ok()? };
        (text.len() == LENGTH && state.last <= state.limit).then_some(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draw(tokens: &Tokens, count: usize) -> Vec<u64> {
        let mut drawing = tokens.draw(0).unwrap();
        let drawn = (0..count).map(|_| drawing.next()).collect();
        drawing.keep().unwrap();
        drawn
    }

    /// Invariant 2.
    #[test]
    fn numbers_go_on_in_the_same_boot() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(draw(&Tokens::open(folder.path(), "boot-a").unwrap(), 3), [1, 2, 3]);
        assert_eq!(draw(&Tokens::open(folder.path(), "boot-a").unwrap(), 1), [4]);
    }

    /// Invariant 2. What was written last may be lost with the power; the limit is not.
    #[test]
    fn another_boot_goes_on_above_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        draw(&Tokens::open(folder.path(), "boot-a").unwrap(), 3);
        let after = draw(&Tokens::open(folder.path(), "boot-b").unwrap(), 1);
        assert!(after[0] > BLOCK, "{after:?}");
        assert_eq!(draw(&Tokens::open(folder.path(), "boot-b").unwrap(), 1), [after[0] + 1]);
    }

    #[test]
    fn the_limit_stays_ahead_of_what_is_given() {
        let folder = tempfile::tempdir().unwrap();
        let tokens = Tokens::open(folder.path(), "boot-a").unwrap();
        for _ in 0..3 {
            draw(&tokens, BLOCK as usize - 1);
            let state = tokens.read().unwrap().unwrap();
            assert!(state.limit >= state.last, "{state:?}");
        }
    }

    /// Invariant 2.
    #[test]
    fn a_lost_or_old_file_goes_on_above_what_the_database_knows() {
        let folder = tempfile::tempdir().unwrap();
        let tokens = Tokens::open(folder.path(), "boot-a").unwrap();
        let mut drawing = tokens.draw(0).unwrap();
        drawing.next();
        let noted = drawing.keep().unwrap().expect("a new database is told of the limit");
        assert_eq!(tokens.draw(noted).unwrap().next(), 2);
        assert_eq!(tokens.draw(noted + 1).unwrap().next(), noted + 2);
        std::fs::remove_file(folder.path().join("tokens")).unwrap();
        assert_eq!(Tokens::open(folder.path(), "boot-a").unwrap().draw(noted).unwrap().next(), noted + 1);
    }

    /// Invariant 2. A database that was made anew learns the limit with the next number.
    #[test]
    fn a_new_database_is_told_of_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let tokens = Tokens::open(folder.path(), "boot-a").unwrap();
        draw(&tokens, 1);
        let mut drawing = tokens.draw(0).unwrap();
        assert_eq!(drawing.next(), 2);
        assert_eq!(drawing.keep().unwrap(), Some(BLOCK + 1));
        let mut drawing = tokens.draw(BLOCK + 1).unwrap();
        drawing.next();
        assert_eq!(drawing.keep().unwrap(), None);
    }

    /// Invariant 12.
    #[test]
    fn a_file_that_cannot_be_read_is_not_started_anew() {
        let folder = tempfile::tempdir().unwrap();
        for damage in
            ["x", "lockkeeper-tokens 2 boot=a last=1 limit=2\n", "lockkeeper-tokens 1 boot=a last=9"]
        {
            std::fs::write(folder.path().join("tokens"), damage).unwrap();
            let tokens = Tokens::open(folder.path(), "boot-a").unwrap();
            assert!(matches!(tokens.draw(0).err(), Some(StoreError::Damaged { .. })), "{damage}");
            assert_eq!(std::fs::read_to_string(folder.path().join("tokens")).unwrap(), damage);
        }
    }
}
