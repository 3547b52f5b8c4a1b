//! Cutting what is read into lines, with bounded memory whatever is in the file.

use std::io::BufRead;

use super::line::StatusLine;

/// A line longer than this is garbage: ours are far shorter, and memory is not endless.
const MAX_READ: usize = 1024 * 1024;

/// Lines out of pieces.
#[derive(Debug, Default)]
pub(super) struct Splitter {
    piece: Vec<u8>,
    /// The line in progress is passed over up to its end.
    passing: Passing,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Passing {
    #[default]
    No,
    /// It is too long.
    Garbage,
    /// It began before we looked.
    Rest,
}

/// What stood in one line.
#[derive(Debug)]
pub(super) enum Found {
    Line(Box<StatusLine>),
    Garbage,
}

impl Splitter {
    /// Begins in the middle of a line, of which the rest is passed over in silence.
    pub(super) fn in_the_middle() -> Self {
        Self { piece: Vec::new(), passing: Passing::Rest }
    }

    /// Takes the next piece of the file.
    pub(super) fn feed(&mut self, mut bytes: &[u8], mut found: impl FnMut(Found)) {
        while !bytes.is_empty() {
            // Reading from memory cannot fail.
            let _ = bytes.read_until(b'\n', &mut self.piece);
            let ended = self.piece.last() == Some(&b'\n');
            match self.passing {
                Passing::No if ended => {
                    if let Some(line) = read(&self.piece) {
                        found(line);
                    }
                }
                Passing::No if self.piece.len() > MAX_READ => self.passing = Passing::Garbage,
                Passing::No => return,
                Passing::Garbage if ended => found(Found::Garbage),
                Passing::Garbage | Passing::Rest => {}
            }
            self.piece.clear();
            if ended {
                self.passing = Passing::No;
            }
        }
    }

    /// Takes the last line, which has no newline: as garbage if it is not whole, unless it may still grow.
    pub(super) fn finish(&mut self, may_grow: bool, mut found: impl FnMut(Found)) {
        let last = match self.passing {
            Passing::No => read(&self.piece),
            Passing::Garbage => Some(Found::Garbage),
            Passing::Rest => None,
        };
        match last {
            Some(line @ Found::Line(_)) => found(line),
            Some(Found::Garbage) if !may_grow => found(Found::Garbage),
            Some(Found::Garbage) | None => {}
        }
        self.restart();
    }

    /// Forgets what it has, since the file was truncated.
    pub(super) fn restart(&mut self) {
        *self = Self::default();
    }
}

/// Reads one line; nothing for an empty one.
fn read(bytes: &[u8]) -> Option<Found> {
    let bytes = bytes.trim_ascii();
    if bytes.is_empty() {
        return None;
    }
    let line = std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok());
    Some(line.map_or(Found::Garbage, |line| Found::Line(Box::new(line))))
}
