//! Reads one line of input with a timeout.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::poll;

/// More than any answer needs. The rest of a longer line is not read.
const MAX_BYTES: usize = 1024;

/// Reads one line, and nothing behind it. None if the time is up, or at the end of input.
pub fn read_line(from: BorrowedFd<'_>, within: Duration) -> io::Result<Option<String>> {
    let begun = Instant::now();
    let mut line = Vec::new();
    while line.len() < MAX_BYTES {
        let left = within.saturating_sub(begun.elapsed());
        if !poll::wait(&[from], Some(left))?.any() {
            return Ok(None);
        }
        // One byte at a time: the bytes after the line are for the next reader.
        let mut byte = [0];
        match rustix::io::read(from, &mut byte) {
            Ok(0) if line.is_empty() => return Ok(None),
            Ok(0) => break,
            Ok(_) if byte == *b"\n" => break,
            Ok(_) => line.push(byte[0]),
            // Another process may have read the byte.
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Some(String::from_utf8_lossy(&line).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    const SOON: Duration = Duration::from_millis(20);
    const LATER: Duration = Duration::from_secs(60);

    /// Requirement 46.
    #[test]
    fn no_line_within_the_time_is_no_answer() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        assert_eq!(read_line(reader.as_fd(), SOON).unwrap(), None);
        rustix::io::write(&writer, b"y").unwrap();
        assert_eq!(read_line(reader.as_fd(), SOON).unwrap(), None, "half a line is none yet");
    }

    #[test]
    fn the_first_line_is_read_and_the_rest_left() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        rustix::io::write(&writer, b"y\nnext\nlast").unwrap();
        drop(writer);
        let lines: Vec<Option<String>> = (0..4).map(|_| read_line(reader.as_fd(), LATER).unwrap()).collect();
        let text = |line: &str| Some(line.to_owned());
        assert_eq!(lines, [text("y"), text("next"), text("last"), None]);
    }

    #[test]
    fn a_line_without_end_is_cut() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        rustix::io::write(&writer, &[b'y'; 2 * MAX_BYTES]).unwrap();
        assert_eq!(read_line(reader.as_fd(), LATER).unwrap().unwrap().len(), MAX_BYTES);
    }
}
