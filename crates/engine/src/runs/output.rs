//! Reads the output of a run in windows, so that memory does not grow with the size of the file or the length of its lines.
//!
//! It is read from the file, or on another machine from the store, which keeps the first and the last part.

mod kept;

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use self::kept::Kept;
use super::RunFolder;
use lockkeeper_platform::fs as local;

/// How many bytes are read at once when lines are counted from the end.
const STEP: u64 = 64 * 1024;
/// How many bytes from the end are searched for lines. An output with longer lines is shown from there.
const MAX_SEARCH: u64 = 8 * 1024 * 1024;

/// How many bytes from the end are searched for the last line that is not blank.
const LAST_LINE: usize = 4096;

/// How many bytes one search for a text reads.
pub const MAX_FIND: u64 = 64 * 1024 * 1024;

/// The longest file that names what was cut out.
const LONGEST_CUT: u64 = 4096;

/// A part of an output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// The offset of its first byte. It is larger than the requested one if bytes were cut out there.
    pub from: u64,
    /// Its bytes; empty at the end of the file.
    pub bytes: Vec<u8>,
}

impl Window {
    /// The offset after its last byte: where the next window begins.
    pub fn end(&self) -> u64 {
        self.from + self.bytes.len() as u64
    }
}

/// What a search found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// A match begins at this offset.
    At(u64),
    /// Nothing yet: the next search starts at this offset.
    Further(u64),
}

/// The bytes that were cut out of a very large output: the file has a hole there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cut {
    /// The first byte that is missing.
    pub cut_from: u64,
    /// The first byte after the hole.
    pub cut_to: u64,
}

impl RunFolder {
    /// The last line of the output that is not blank; none if there is none, or if it cannot be read.
    pub fn last_line(&self) -> Option<String> {
        Output::open(self, None).ok()??.last_line().ok()?
    }
}

/// The output of one attempt.
#[derive(Debug)]
pub struct Output {
    source: Source,
}

#[derive(Debug)]
enum Source {
    /// The file that the command writes to, and the file that says what was cut out of it.
    File { file: File, cut_path: PathBuf },
    /// The parts that the store keeps.
    Kept(Kept),
}

impl Output {
    /// Opens the output of the current attempt, or of an earlier one; none if there is no such file.
    pub fn open(folder: &RunFolder, attempt: Option<u32>) -> io::Result<Option<Self>> {
        let (path, cut_path) = match attempt {
            None => (folder.output(), folder.cut()),
            Some(attempt) => (folder.output_of(attempt), folder.cut_of(attempt)),
        };
        let file = open(&path)?;
        Ok(file.map(|file| Self { source: Source::File { file, cut_path } }))
    }

    /// Opens the output of this attempt, whether it has ended or not; none if it has written nothing here.
    pub fn of_attempt(folder: &RunFolder, attempt: u32) -> io::Result<Option<Self>> {
        if let Some(ended) = Self::open(folder, Some(attempt))? {
            return Ok(Some(ended));
        }
        if folder.current_attempt() != attempt {
            return Ok(None);
        }
        let current = Self::open(folder, None)?;
        // The attempt may have ended in between: then `current` is the output of a later one.
        match Self::open(folder, Some(attempt))? {
            Some(ended) => Ok(Some(ended)),
            None => Ok(current),
        }
    }

    /// The machine that has the whole output, if this is what the store keeps of it.
    pub fn host(&self) -> Option<&str> {
        match &self.source {
            Source::File { .. } => None,
            Source::Kept(kept) => Some(kept.host()),
        }
    }

    /// Its length so far, with the bytes that were cut out.
    pub fn len(&self) -> io::Result<u64> {
        match &self.source {
            Source::File { file, .. } => Ok(file.metadata()?.len()),
            Source::Kept(kept) => Ok(kept.size()),
        }
    }

    /// Whether nothing is written yet.
    pub fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Reads at most `most` bytes from this offset, and never across bytes that were cut out.
    pub fn read(&self, from: u64, most: usize) -> io::Result<Window> {
        let mut bytes = vec![0; most];
        let mut from = from;
        loop {
            let cut = self.cut()?;
            from = cut.as_ref().filter(|cut| cut.contains(&from)).map_or(from, |cut| cut.end);
            let room = cut.filter(|cut| cut.start > from).map_or(most as u64, |cut| cut.start - from);
            let room = usize::try_from(room).unwrap_or(most).min(most);
            let read = self.read_at(&mut bytes[..room], from)?;
            // The writer may have cut out these bytes during the read: then they are zeros.
            let now = self.cut()?.unwrap_or(0..0);
            if now.start < from + read as u64 && from < now.end {
                continue;
            }
            bytes.truncate(read);
            return Ok(Window { from, bytes });
        }
    }

    /// The offset of the last `count` lines. A line without a line end counts, too.
    pub fn last_lines(&self, count: u64) -> io::Result<u64> {
        let end = self.len()?;
        let floor = end.saturating_sub(MAX_SEARCH);
        let floor = self.cut()?.map_or(floor, |cut| if cut.end <= end { floor.max(cut.end) } else { floor });
        if count == 0 {
            return Ok(end);
        }
        let mut left = count;
        let mut at = end;
        let mut buffer = vec![0; STEP as usize];
        while at > floor {
            let begin = at.saturating_sub(STEP).max(floor);
            let window = &mut buffer[..(at - begin) as usize];
            let read = self.read_at(window, begin)?;
            for place in (0..read).rev().filter(|place| window[*place] == b'\n') {
                let next = begin + place as u64 + 1;
                // The last line end begins no line.
                if next == end {
                    continue;
                }
                left -= 1;
                if left == 0 {
                    return Ok(next);
                }
            }
            at = begin;
        }
        Ok(floor)
    }

    /// The last line that is not blank, without escape sequences. Of a very long line only the end.
    pub fn last_line(&self) -> io::Result<Option<String>> {
        let end = self.len()?;
        let mut last = self.read(end.saturating_sub(LAST_LINE as u64), LAST_LINE)?;
        // A read ends where bytes were cut out.
        while last.end() < end {
            let next = self.read(last.end(), LAST_LINE)?;
            if next.bytes.is_empty() {
                break;
            }
            last = next;
        }
        let text = without_escapes(&String::from_utf8_lossy(&last.bytes));
        let line = text.split(['\n', '\r']).rev().map(str::trim).find(|line| !line.is_empty());
        Ok(line.map(ToOwned::to_owned))
    }

    /// Finds a text after an offset, or before it; the case of ASCII letters does not matter. Returns the offset of the match, or
    /// where the search stopped after [`MAX_FIND`] bytes, or none if there is no further match.
    pub fn find(&self, text: &[u8], from: u64, forward: bool) -> io::Result<Option<Found>> {
        let (len, wanted) = (self.len()?, text.to_ascii_lowercase());
        if wanted.is_empty() {
            return Ok(None);
        }
        let (mut at, mut searched) = (from.min(len), 0);
        loop {
            let (start, end) = if forward { (at, at + STEP) } else { self.before(at)? };
            // Windows overlap, so that a match between two of them is found.
            let most = usize::try_from(end - start).unwrap_or(usize::MAX) + wanted.len() - 1;
            let mut window = self.read(start, most)?;
            window.bytes.make_ascii_lowercase();
            let matches = window.bytes.windows(wanted.len()).enumerate();
            let mut places =
                matches.filter(|(_, part)| *part == wanted).map(|(place, _)| window.from + place as u64);
            let found = if forward { places.next() } else { places.rfind(|place| *place < at) };
            if let Some(place) = found {
                return Ok(Some(Found::At(place)));
            }
            let is_over = if forward { window.bytes.is_empty() || window.end() >= len } else { start == 0 };
            if is_over {
                return Ok(None);
            }
            // A shorter window ends where bytes were cut out: no match reaches across.
            at = match forward {
                true if window.bytes.len() < most => window.end(),
                true => window.end() + 1 - wanted.len() as u64,
                false => start,
            };
            searched += STEP;
            if searched >= MAX_FIND {
                return Ok(Some(Found::Further(at)));
            }
        }
    }

    /// The bytes to search before an offset. They are all before what was cut out, or all after it.
    fn before(&self, at: u64) -> io::Result<(u64, u64)> {
        Ok(match self.cut()? {
            Some(cut) if cut.end < at => (at.saturating_sub(STEP).max(cut.end), at),
            Some(cut) if cut.start < at => (cut.start.saturating_sub(STEP), cut.start),
            Some(_) | None => (at.saturating_sub(STEP), at),
        })
    }

    /// The bytes that are missing.
    pub fn cut(&self) -> io::Result<Option<Range<u64>>> {
        match &self.source {
            Source::File { cut_path, .. } => read_cut(cut_path),
            Source::Kept(kept) => Ok(kept.cut()),
        }
    }

    fn read_at(&self, bytes: &mut [u8], from: u64) -> io::Result<usize> {
        let file = match &self.source {
            Source::File { file, .. } => file,
            Source::Kept(kept) => return Ok(kept.read_at(bytes, from)),
        };
        let mut read = 0;
        while read < bytes.len() {
            match file.read_at(&mut bytes[read..], from + read as u64) {
                Ok(0) => break,
                Ok(more) => read += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(read)
    }
}

/// Removes escape sequences of terminals: colours, and what moves the cursor.
pub fn without_escapes(text: &str) -> String {
    let mut parts = text.split('\x1b');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = match part.strip_prefix('[') {
            // It ends with its first letter.
            Some(sequence) => sequence.trim_start_matches(|c: char| !c.is_ascii_alphabetic()),
            None => part,
        };
        let mut rest = rest.chars();
        let _ = rest.next();
        plain.push_str(rest.as_str());
    }
    plain
}

fn read_cut(path: &Path) -> io::Result<Option<Range<u64>>> {
    let Some(file) = open(path)? else { return Ok(None) };
    let mut text = Vec::new();
    file.take(LONGEST_CUT).read_to_end(&mut text)?;
    // A file that is not written completely is ignored.
    Ok(serde_json::from_slice::<Cut>(&text).ok().map(|cut| cut.cut_from..cut.cut_to))
}

/// Opens a file of a run folder. The command of the run could have put anything there: links are not followed, and pipes
/// are not waited for.
fn open(path: &Path) -> io::Result<Option<File>> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return Ok(None) };
    match local::open_in(folder, name.as_ref()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        opened => opened.map(Some),
    }
}

#[cfg(test)]
mod tests;
