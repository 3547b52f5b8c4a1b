//! Line splitter: cuts chunks into lines, with bounded memory for any content.

use std::io::BufRead;

use super::line::StatusLine;

/// A line longer than this is garbage. Our own lines are far shorter.
const MAX_READ: usize = 1024 * 1024;

/// Splits chunks into lines.
#[derive(Debug, Default)]
pub(super) struct Splitter {
    /// The incomplete line at the end.
    piece: Vec<u8>,
    skipping: Skipping,
}

/// Whether the rest of the current line is skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Skipping {
    #[default]
    No,
    /// Yes, because it is too long.
    Garbage,
    /// Yes, because reading started in the middle of it.
    Rest,
}

/// The content of one line.
#[derive(Debug)]
pub(super) enum Found {
    Line(Box<StatusLine>),
    Garbage,
}

impl Splitter {
    /// Starts in the middle of a line. The rest of it is skipped and not counted.
    pub(super) fn inside_line() -> Self {
        Self { piece: Vec::new(), skipping: Skipping::Rest }
    }

    /// Takes the next chunk of the file.
    pub(super) fn feed(&mut self, mut bytes: &[u8], mut found: impl FnMut(Found)) {
        while !bytes.is_empty() {
            // Reading from memory cannot fail.
            let _ = bytes.read_until(b'\n', &mut self.piece);
            let ended = self.piece.last() == Some(&b'\n');
            match self.skipping {
                Skipping::No if ended => {
                    if let Some(line) = read(&self.piece) {
                        found(line);
                    }
                }
                Skipping::No if self.piece.len() > MAX_READ => self.skipping = Skipping::Garbage,
                Skipping::No => return,
                Skipping::Garbage if ended => found(Found::Garbage),
                Skipping::Garbage | Skipping::Rest => {}
            }
            self.piece.clear();
            if ended {
                self.skipping = Skipping::No;
            }
        }
    }

    /// Takes the last line, which has no newline. It is garbage if it is incomplete and cannot grow any more.
    pub(super) fn finish(&mut self, may_grow: bool, mut found: impl FnMut(Found)) {
        let last = match self.skipping {
            Skipping::No => read(&self.piece),
            Skipping::Garbage => Some(Found::Garbage),
            Skipping::Rest => None,
        };
        match last {
            Some(line @ Found::Line(_)) => found(line),
            Some(Found::Garbage) if !may_grow => found(Found::Garbage),
            Some(Found::Garbage) | None => {}
        }
        self.restart();
    }

    /// Discards the incomplete line after the file was truncated.
    pub(super) fn restart(&mut self) {
        *self = Self::default();
    }
}

/// Parses one line; `None` for an empty one.
fn read(bytes: &[u8]) -> Option<Found> {
    let bytes = bytes.trim_ascii();
    if bytes.is_empty() {
        return None;
    }
    let line = std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok());
    Some(line.map_or(Found::Garbage, |line| Found::Line(Box::new(line))))
}
