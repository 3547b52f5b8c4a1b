//! Conflict log file: appends whole lines, and reads with bounded memory.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::error::ConflictsError;
use super::line::Line;
use super::summary::Summary;

/// Longer lines are counted as bad and skipped.
pub const MAX_LINE: usize = 64 * 1024;

/// A conflict log. The file need not exist.
#[derive(Clone, Debug)]
pub struct ConflictLog {
    path: PathBuf,
}

impl ConflictLog {
    /// The log at a path.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// The log beside a STAGES.yml: `logs/conflicts.log`.
    pub fn beside(stages: &Path) -> Self {
        Self::at(stages.with_file_name("logs").join("conflicts.log"))
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends lines with one write. Creates the log and its folder if they do not exist.
    ///
    /// # Errors
    ///
    /// A file operation failed. A line that was written in part does not damage later lines.
    pub fn append(&self, lines: &[Line]) -> Result<(), ConflictsError> {
        if lines.is_empty() {
            return Ok(());
        }
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder).map_err(ConflictsError::io("make the folder", folder))?;
        }
        let opened = OpenOptions::new().read(true).append(true).create(true).open(&self.path);
        let mut file = opened.map_err(ConflictsError::io("open", &self.path))?;
        let failed = ConflictsError::io("write to", &self.path);
        let mut text = Vec::new();
        if is_torn(&mut file).map_err(&failed)? {
            text.push(b'\n');
        }
        for line in lines {
            serde_json::to_writer(&mut text, line).map_err(|error| failed(error.into()))?;
            text.push(b'\n');
        }
        file.write_all(&text).map_err(&failed)
    }

    /// The summary of the log; none if it does not exist.
    ///
    /// # Errors
    ///
    /// The file cannot be read. Lines that cannot be parsed are counted and are no error.
    pub fn summary(&self) -> Result<Option<Summary>, ConflictsError> {
        match File::open(&self.path) {
            Ok(file) => {
                let summed = sum(&mut BufReader::new(file));
                summed.map(Some).map_err(ConflictsError::io("read", &self.path))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(ConflictsError::io("open", &self.path)(error)),
        }
    }
}

/// Whether the last line has no end: its writer was killed, or the disk was full.
fn is_torn(file: &mut File) -> io::Result<bool> {
    let mut last = [0];
    if file.seek(SeekFrom::End(0))? == 0 {
        return Ok(false);
    }
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}

fn sum(reader: &mut impl BufRead) -> io::Result<Summary> {
    let mut summary = Summary::default();
    let mut piece = Vec::new();
    // The lines so far of an object that is spread over several lines.
    let mut object: Option<Vec<u8>> = None;
    loop {
        piece.clear();
        let read = reader.by_ref().take(MAX_LINE as u64).read_until(b'\n', &mut piece)?;
        if read == 0 {
            summary.bad_lines += lines_in(object.as_deref());
            return Ok(summary);
        }
        let whole = piece.ends_with(b"\n");
        if !whole && read == MAX_LINE {
            skip_line(reader)?;
            summary.bad_lines += 1 + lines_in(object.take().as_deref());
            continue;
        }
        // A whole line ends what was torn before it.
        if let Ok(line) = serde_json::from_slice(&piece) {
            summary.add(line);
            summary.bad_lines += lines_in(object.take().as_deref());
            continue;
        }
        if object.is_none() && !piece.trim_ascii().starts_with(b"{") {
            summary.bad_lines += usize::from(!piece.trim_ascii().is_empty());
            continue;
        }
        let begun = object.get_or_insert_default();
        begun.extend_from_slice(&piece);
        let parsed = serde_json::from_slice(begun);
        let is_unfinished = parsed.as_ref().is_err_and(|error: &serde_json::Error| error.is_eof());
        match parsed {
            Ok(line) => summary.add(line),
            Err(_) if is_unfinished && begun.len() <= MAX_LINE => continue,
            Err(_) => summary.bad_lines += lines_in(Some(begun)),
        }
        object = None;
    }
}

/// How many lines with something in them there are.
fn lines_in(text: Option<&[u8]>) -> usize {
    let lines = text.unwrap_or_default().split(|byte| *byte == b'\n');
    lines.filter(|line| !line.trim_ascii().is_empty()).count()
}

/// Skips the rest of a line without keeping it in memory.
fn skip_line(reader: &mut impl BufRead) -> io::Result<()> {
    loop {
        let buffer = reader.fill_buf()?;
        if buffer.is_empty() {
            return Ok(());
        }
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let used = end.map_or(buffer.len(), |place| place + 1);
        reader.consume(used);
        if end.is_some() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(group2: &str) -> Line {
        let text = format!(r#"{{"group1":"a","group2":"{group2}","conflict_type":"EXACT"}}"#);
        serde_json::from_str(&text).unwrap()
    }

    /// Requirement 135.
    #[test]
    fn lines_are_appended_whole_after_a_torn_one() {
        let folder = tempfile::tempdir().unwrap();
        let log = ConflictLog::beside(&folder.path().join("STAGES.yml"));
        assert!(log.summary().unwrap().is_none());
        log.append(&[]).unwrap();
        assert!(!log.path().exists(), "nothing to say leaves nothing behind");
        log.append(&[line("b")]).unwrap();
        let mut file = OpenOptions::new().append(true).open(log.path()).unwrap();
        file.write_all(b"{\"group1\":\"torn").unwrap();
        log.append(&[line("b"), line("c")]).unwrap();
        let summary = log.summary().unwrap().unwrap();
        assert_eq!((summary.lines, summary.bad_lines, summary.pairs().len()), (3, 1, 2));
    }

    #[test]
    fn what_is_no_line_is_counted_and_never_fatal() {
        let long = format!("{{\"group1\":\"{}\"}}\n", "x".repeat(3 * MAX_LINE));
        let good = serde_json::to_string(&line("b")).unwrap();
        let text = [
            b"\xff\xfe\n".as_slice(),
            b"[]\n\n{}\n",
            long.as_bytes(),
            good.as_bytes(),
            b"\n\r\n",
            good.as_bytes(),
        ]
        .concat();
        let summary = sum(&mut text.as_slice()).unwrap();
        assert_eq!((summary.lines, summary.bad_lines), (2, 4));
    }

    /// Requirement 135. The shell scripts print each object over several lines.
    #[test]
    fn objects_over_several_lines_are_read() {
        let pretty = serde_json::to_string_pretty(&line("b")).unwrap();
        let good = serde_json::to_string(&line("c")).unwrap();
        let text = format!("{pretty}\n{pretty}\n{{\n  \"group1\": \"torn\n{good}\n{pretty}\nnoise\n{{\n");
        let summary = sum(&mut text.as_bytes()).unwrap();
        assert_eq!((summary.lines, summary.bad_lines), (4, 4));
    }
}
