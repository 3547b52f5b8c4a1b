//! Parser for the output of `git log --name-status -z`.
//!
//! A commit is `\x01<hash> <seconds>`, then a status and its path for each file, two paths for a rename, all ended by
//! NUL. The first status of a commit follows a newline. Paths may have any byte but NUL, so only their position tells
//! that they are paths.

use std::io::{BufRead, Read};

use super::error::HistoryError;

/// How the commits are printed.
pub(super) const FORMAT: &str = "--format=%x01%H %ct";

/// The longest token. Paths are shorter on every system.
const MAX_TOKEN: u64 = 1 << 16;

/// One item of the log.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Item<'l> {
    /// A commit begins.
    Commit {
        /// Its whole hash.
        hash: &'l str,
        /// When it was committed, in seconds since 1970.
        at: i64,
    },
    /// The commit touched a path.
    Touched(&'l [u8]),
    /// The commit renamed a path.
    Renamed {
        /// The older name.
        from: &'l [u8],
        /// The newer name.
        to: &'l [u8],
    },
}

/// The parser.
pub(super) struct Log<R> {
    input: R,
    token: Vec<u8>,
    second: Vec<u8>,
}

impl<R: BufRead> Log<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input, token: Vec::new(), second: Vec::new() }
    }

    /// The next item; none at the end.
    pub(super) fn next(&mut self) -> Result<Option<Item<'_>>, HistoryError> {
        if !token(&mut self.input, &mut self.token)? {
            return Ok(None);
        }
        if self.token.first() == Some(&1) {
            return commit(&self.token).map(Some);
        }
        let status = self.token.iter().copied().find(|byte| *byte != b'\n');
        let has_two_paths = match status {
            Some(b'R' | b'C') => true,
            Some(b'A' | b'M' | b'D' | b'T' | b'U' | b'X' | b'B') => false,
            Some(_) | None => return Err(unexpected(&self.token, "a status")),
        };
        let copied = status == Some(b'C');
        self.path()?;
        if !has_two_paths {
            return Ok(Some(Item::Touched(&self.token)));
        }
        std::mem::swap(&mut self.token, &mut self.second);
        self.path()?;
        // A copy does not change the old path.
        Ok(Some(if copied {
            Item::Touched(&self.token)
        } else {
            Item::Renamed { from: &self.second, to: &self.token }
        }))
    }

    /// Reads a path into `self.token`.
    fn path(&mut self) -> Result<(), HistoryError> {
        let found = token(&mut self.input, &mut self.token)?;
        if found && !self.token.is_empty() { Ok(()) } else { Err(unexpected(&self.token, "a path")) }
    }
}

/// Reads up to the next NUL. Returns false at the end of the input.
fn token(input: &mut impl BufRead, token: &mut Vec<u8>) -> Result<bool, HistoryError> {
    token.clear();
    input.take(MAX_TOKEN).read_until(0, token).map_err(HistoryError::Read)?;
    match token.pop() {
        Some(0) => Ok(true),
        Some(last) => {
            token.push(last);
            Err(unexpected(token, "the end of an entry"))
        }
        None => Ok(false),
    }
}

fn commit(token: &[u8]) -> Result<Item<'_>, HistoryError> {
    let text = token.get(1..).and_then(|rest| std::str::from_utf8(rest).ok());
    let parts =
        text.and_then(|text| text.split_once(' ')).and_then(|(hash, at)| Some((hash, at.parse().ok()?)));
    let (hash, at) = parts.ok_or_else(|| unexpected(token, "a commit"))?;
    Ok(Item::Commit { hash, at })
}

fn unexpected(found: &[u8], expected: &'static str) -> HistoryError {
    let shown = String::from_utf8_lossy(&found[..found.len().min(60)]);
    HistoryError::Unexpected { found: format!("`{}`", shown.escape_debug()), expected }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &[u8]) -> Result<Vec<String>, String> {
        let mut log = Log::new(text);
        let mut items = Vec::new();
        loop {
            match log.next() {
                Ok(Some(item)) => items.push(format!("{item:?}")),
                Ok(None) => return Ok(items),
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    #[test]
    fn commits_paths_and_renames_are_told_apart() {
        let text =
            b"\x01aa 17\0\nM\0src/a\0R087\0old\0new\0\x01bb 16\0\x01cc -5\0\nA\0\x01dd 3\0C100\0x\0y\0";
        let expected = [
            Item::Commit { hash: "aa", at: 17 },
            Item::Touched(b"src/a"),
            Item::Renamed { from: b"old", to: b"new" },
            Item::Commit { hash: "bb", at: 16 },
            Item::Commit { hash: "cc", at: -5 },
            // A path may look like a commit.
            Item::Touched(b"\x01dd 3"),
            Item::Touched(b"y"),
        ];
        assert_eq!(all(text).unwrap(), expected.map(|item| format!("{item:?}")));
        assert_eq!(all(b"").unwrap(), [""; 0]);
    }

    #[test]
    fn any_byte_may_be_in_a_path() {
        let mut log = Log::new(b"M\0a\n\xff\x01 b\0".as_slice());
        assert_eq!(log.next().unwrap(), Some(Item::Touched(b"a\n\xff\x01 b")));
    }

    #[test]
    fn what_is_no_log_is_refused() {
        for text in
            [b"M".as_slice(), b"M\0", b"M\0\0", b"Q\0x\0", b"\0", b"\x01aa\0", b"\x01aa x\0", b"R1\0x\0"]
        {
            assert!(all(text).is_err(), "{text:?}");
        }
        let long = [b"M\0".as_slice(), &vec![b'x'; 1 << 17], b"\0"].concat();
        assert!(all(&long).is_err());
    }
}
