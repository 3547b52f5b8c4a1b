//! Number of recent downgrades. Reads a log backwards and stops at the first older line.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use lockkeeper_platform::wall_clock::WallTime;
use serde_json::Value;

/// How much is read at a time.
const STEP: u64 = 64 * 1024;
/// Longer lines belong to other programs and are skipped.
const MAX_LINE: usize = 64 * 1024;

/// Counts the downgrades in a log since a time. The lines of a log are in the order of their times.
pub(super) fn downgrades_since(log: &Path, since: WallTime) -> io::Result<usize> {
    let file = match File::open(log) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        opened => opened?,
    };
    let (mut at, mut found) = (file.metadata()?.len(), 0);
    // The end of a line whose beginning is in the next step.
    let mut rest: Vec<u8> = Vec::new();
    while at > 0 {
        let begin = at.saturating_sub(STEP);
        let mut text = vec![0; (at - begin) as usize];
        file.read_exact_at(&mut text, begin)?;
        text.append(&mut rest);
        // A step may begin in the middle of a line. Only the step at offset 0 begins with a whole line.
        let whole = match text.iter().position(|byte| *byte == b'\n') {
            _ if begin == 0 => 0,
            Some(end) => end + 1,
            None => text.len(),
        };
        for line in text[whole..].rsplit(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let Ok(line) = serde_json::from_slice::<Value>(line) else { continue };
            let text = |key: &str| line.get(key).and_then(Value::as_str);
            let Some(time) = text("timestamp").and_then(|text| text.parse::<WallTime>().ok()) else {
                continue;
            };
            if time < since {
                return Ok(found);
            }
            found += usize::from(text("status") == Some("DOWNGRADED"));
        }
        text.truncate(whole);
        if text.len() <= MAX_LINE + STEP as usize {
            rest = text;
        }
        at = begin;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(second: u32, status: &str, padding: usize) -> String {
        let (minute, second) = (second / 60 % 60, second % 60);
        let padding = "x".repeat(padding);
        format!(
            "{{\"timestamp\":\"2026-01-31T12:{minute:02}:{second:02}Z\",\"status\":\"{status}\",\"padding\":\"{padding}\"}}\n"
        )
    }

    #[test]
    fn the_latest_are_counted_however_long_the_log_is() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let status = |second: u32| if second.is_multiple_of(3) { "DOWNGRADED" } else { "STARTED" };
        // The lengths of lines are such that steps end anywhere within them.
        let text: String =
            (0..3_000).map(|second| line(second, status(second), second as usize % 97)).collect();
        assert!(text.len() as u64 > 4 * STEP, "{}", text.len());
        std::fs::write(&log, text).unwrap();
        let since = |time: &str| downgrades_since(&log, time.parse().unwrap()).unwrap();
        assert_eq!(since("2026-01-31T12:00:00Z"), 1_000);
        assert_eq!(since("2026-01-31T12:40:00Z"), 200);
        assert_eq!(since("2026-01-31T12:49:58Z"), 0);
        assert_eq!(since("2026-01-31T13:00:00Z"), 0);
    }

    #[test]
    fn lines_of_others_and_no_log_at_all_count_for_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let since: WallTime = "2026-01-31T12:00:00Z".parse().unwrap();
        assert_eq!(downgrades_since(&log, since).unwrap(), 0);
        let long = "y".repeat(3 * STEP as usize);
        let text =
            format!("{}{long}\nnot json\n{{}}\n{}", line(1, "DOWNGRADED", 0), line(2, "DOWNGRADED", 0));
        std::fs::write(&log, text).unwrap();
        assert_eq!(downgrades_since(&log, since).unwrap(), 2);
    }
}
