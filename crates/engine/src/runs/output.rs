//! Reads the output of a run in windows, so that memory does not grow with the size of the file or the length of its lines.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

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
    file: File,
    inode: u64,
    cut_path: PathBuf,
}

impl Output {
    /// Opens the output of the current attempt, or of an earlier one; none if there is no such file.
    pub fn open(folder: &RunFolder, attempt: Option<u32>) -> io::Result<Option<Self>> {
        let (path, cut_path) = match attempt {
            None => (folder.output(), folder.cut()),
            Some(attempt) => (folder.output_of(attempt), folder.cut_of(attempt)),
        };
        let Some(file) = open(&path)? else { return Ok(None) };
        let inode = file.metadata()?.ino();
        Ok(Some(Self { file, inode, cut_path }))
    }

    /// Opens the output of this attempt, whether it has ended or not; none if it has written nothing yet.
    pub fn of_attempt(folder: &RunFolder, attempt: u32) -> io::Result<Option<Self>> {
        if let Some(ended) = Self::open(folder, Some(attempt))? {
            return Ok(Some(ended));
        }
        let current = Self::open(folder, None)?;
        // The attempt may have ended in between: then `current` is the output of a later one.
        match Self::open(folder, Some(attempt))? {
            Some(ended) => Ok(Some(ended)),
            None => Ok(current),
        }
    }

    /// How many attempts have ended and have their output in a file of its own.
    pub fn attempts_over(folder: &RunFolder) -> u32 {
        (1..).take_while(|attempt| folder.output_of(*attempt).exists()).last().unwrap_or(0)
    }

    /// Its length so far, with the bytes that were cut out.
    pub fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// Whether nothing is written yet.
    pub fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Whether it is complete: the next attempt writes to another file.
    pub fn is_over(&self, folder: &RunFolder) -> bool {
        let current = std::fs::metadata(folder.output());
        current.is_ok_and(|metadata| metadata.ino() != self.inode)
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
        read_cut(&self.cut_path)
    }

    fn read_at(&self, bytes: &mut [u8], from: u64) -> io::Result<usize> {
        let mut read = 0;
        while read < bytes.len() {
            match self.file.read_at(&mut bytes[read..], from + read as u64) {
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
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    /// An output with this text and this cut.
    fn output(text: &[u8], cut: Option<Cut>) -> (tempfile::TempDir, Output) {
        let state = tempfile::tempdir().unwrap();
        let folder = RunFolder::new(state.path(), &"RUN-1".parse().unwrap());
        folder.make().unwrap();
        std::fs::write(folder.output(), text).unwrap();
        if let Some(cut) = cut {
            std::fs::write(folder.cut(), serde_json::to_string(&cut).unwrap()).unwrap();
        }
        let output = Output::open(&folder, None).unwrap().unwrap();
        (state, output)
    }

    fn tail(output: &Output, lines: u64) -> String {
        let from = output.last_lines(lines).unwrap();
        String::from_utf8(output.read(from, 1000).unwrap().bytes).unwrap()
    }

    #[test]
    fn the_last_lines_are_found_with_and_without_an_end() {
        let (_state, ended) = output(b"a\nb\nc\n", None);
        let (_other, open) = output(b"a\nb\nc", None);
        for (lines, expected) in [(0, ""), (1, "c"), (2, "b\nc"), (3, "a\nb\nc"), (9, "a\nb\nc")] {
            assert_eq!(tail(&open, lines), expected);
            assert_eq!(tail(&ended, lines).trim_end(), expected);
        }
        let (_state, blank) = output(b"\n\n\n", None);
        assert_eq!(tail(&blank, 2), "\n\n");
        let (_state, nothing) = output(b"", None);
        assert_eq!(tail(&nothing, 2), "");
    }

    #[test]
    fn the_last_line_is_readable() {
        let last = |text: &[u8], cut| output(text, cut).1.last_line().unwrap();
        assert_eq!(last(b"", None), None);
        assert_eq!(last(b"\n \n", None), None);
        assert_eq!(last(b"a\nno such table: users\n\n", None).as_deref(), Some("no such table: users"));
        assert_eq!(last(b"10%\r50%\r", None).as_deref(), Some("50%"));
        assert_eq!(last(b"\x1b[1;31merror\x1b[0m: x\n\x1b[0m", None).as_deref(), Some("error: x"));
        let cut = Some(Cut { cut_from: 2, cut_to: 5 });
        assert_eq!(last(b"a\n\0\0\0end\n", cut).as_deref(), Some("end"));
        let long = [vec![b'x'; LAST_LINE * 2], b"yz".to_vec()].concat();
        assert!(last(&long, None).is_some_and(|line| line.len() == LAST_LINE && line.ends_with("yz")));
    }

    #[test]
    fn a_text_is_found_in_both_directions_and_across_windows() {
        let edge = STEP as usize - 2;
        let text = [b"Error one ".to_vec(), vec![b'x'; edge - 10], b"eRRoR two".to_vec(), vec![b'y'; 90_000]]
            .concat();
        let (_state, output) = output(&text, None);
        let find = |from, forward| output.find(b"error", from, forward).unwrap();
        assert_eq!(find(0, true), Some(Found::At(0)));
        assert_eq!(find(1, true), Some(Found::At(edge as u64)));
        assert_eq!(find(edge as u64 + 1, true), None);
        assert_eq!(find(u64::MAX, false), Some(Found::At(edge as u64)));
        assert_eq!(find(edge as u64, false), Some(Found::At(0)));
        assert_eq!(find(0, false), None);
        assert_eq!(output.find(b"", 0, true).unwrap(), None);
        let cut = Some(Cut { cut_from: 6, cut_to: 9 });
        let (_state, with_cut) = self::output(b"one er\0\0\0ror one", cut);
        let find = |text: &[u8], from, forward| with_cut.find(text, from, forward).unwrap();
        assert_eq!(
            [find(b"one", 1, true), find(b"one", 13, false)],
            [Some(Found::At(13)), Some(Found::At(0))]
        );
        assert_eq!([find(b"error", 0, true), find(b"\0", 0, true), find(b"error", 16, false)], [None; 3]);
        assert_eq!(
            [find(b"er", 9, false), find(b"ror", 16, false)],
            [Some(Found::At(4)), Some(Found::At(9))]
        );
        let brute: Vec<u64> = (0..text.len())
            .filter(|at| text[*at..].len() >= 3 && text[*at..*at + 3].eq_ignore_ascii_case(b"r o"))
            .map(|at| at as u64)
            .collect();
        assert_eq!(output.find(b"R O", 0, true).unwrap(), brute.first().map(|at| Found::At(*at)));
    }

    #[test]
    fn lines_are_found_across_steps() {
        let long = "x".repeat(STEP as usize + 10);
        let (_state, output) = output(format!("first\n{long}\n{long}\nlast\n").as_bytes(), None);
        assert_eq!(output.last_lines(2).unwrap(), 6 + long.len() as u64 + 1);
        assert_eq!(output.last_lines(3).unwrap(), 6);
        assert_eq!(output.last_lines(4).unwrap(), 0);
    }

    #[test]
    fn attempts_are_found_wherever_their_output_is_by_now() {
        let (state, first) = output(b"first", None);
        let folder = RunFolder::new(state.path(), &"RUN-1".parse().unwrap());
        let text = |attempt| {
            let output = Output::of_attempt(&folder, attempt).unwrap();
            output.map(|output| String::from_utf8(output.read(0, 99).unwrap().bytes).unwrap())
        };
        assert_eq!((text(1).as_deref(), first.is_over(&folder)), (Some("first"), false));
        std::fs::rename(folder.output(), folder.output_of(1)).unwrap();
        assert_eq!((text(1).as_deref(), text(2), first.is_over(&folder)), (Some("first"), None, false));
        std::fs::write(folder.output_of(2), "second").unwrap();
        std::fs::write(folder.output(), "third").unwrap();
        assert_eq!((text(1).as_deref(), text(2).as_deref()), (Some("first"), Some("second")));
        assert_eq!((text(3).as_deref(), Output::attempts_over(&folder)), (Some("third"), 2));
        assert!(first.is_over(&folder));
    }

    #[test]
    fn what_was_cut_out_is_passed_over() {
        let (_state, output) = output(b"begin\0\0\0\0end\n", Some(Cut { cut_from: 5, cut_to: 9 }));
        assert_eq!(output.read(0, 100).unwrap(), Window { from: 0, bytes: b"begin".to_vec() });
        assert_eq!(output.read(5, 100).unwrap(), Window { from: 9, bytes: b"end\n".to_vec() });
        assert_eq!(output.read(7, 2).unwrap(), Window { from: 9, bytes: b"en".to_vec() });
        assert_eq!(output.read(13, 2).unwrap(), Window { from: 13, bytes: Vec::new() });
        assert_eq!(output.last_lines(5).unwrap(), 9);
    }

    /// The file is sparse: its length is a gigabyte, and it has a few pages on the disk.
    #[test]
    fn a_gigabyte_in_one_line_is_answered_at_once() {
        let (state, output) = output(b"", None);
        let folder = RunFolder::new(state.path(), &"RUN-1".parse().unwrap());
        let file = File::options().write(true).open(folder.output()).unwrap();
        file.set_len(1 << 30).unwrap();
        file.write_at(b"\nlast\n", (1 << 30) - 6).unwrap();
        let begun = Instant::now();
        assert_eq!(tail(&output, 1), "last\n");
        assert_eq!(output.last_lines(20).unwrap(), (1 << 30) - MAX_SEARCH);
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    }
}
