//! Single values: texts, numbers, durations, patterns and commands, in the spellings that people use.

use std::time::Duration;

use lockkeeper_core::pattern::Pattern;
use lockkeeper_core::time::parse_span;
use lockkeeper_formats::yaml::{Node, Value};

use super::Diagnostics;
use super::fields::{Entry, Fields, items};
use crate::place::Placed;
use crate::problem::Problem;

/// How to write a duration.
const SPANS: &str = "write 300, 300s, 5m, 24h or 250ms";

impl Diagnostics {
    pub(super) fn text(&mut self, entry: &Entry<'_>) -> Option<Placed<String>> {
        self.text_of(entry.node, &entry.path)
    }

    pub(super) fn text_of(&mut self, node: &Node, path: &str) -> Option<Placed<String>> {
        match node.text() {
            Some(text) => Some(Placed::new(text.to_owned(), node.place)),
            None if node.is_null() => None,
            None => {
                self.wrong_type(node, path, "a text");
                None
            }
        }
    }

    pub(super) fn texts(&mut self, entry: &Entry<'_>) -> Vec<Placed<String>> {
        items(entry).into_iter().filter_map(|(path, node)| self.text_of(node, &path)).collect()
    }

    pub(super) fn truth(&mut self, entry: &Entry<'_>) -> Option<Placed<bool>> {
        if entry.node.is_null() {
            return None;
        }
        let truth = entry.node.truth();
        if truth.is_none() {
            self.wrong_type(entry.node, &entry.path, "true or false");
        }
        truth.map(|truth| Placed::new(truth, entry.node.place))
    }

    pub(super) fn count(&mut self, entry: &Entry<'_>) -> Option<Placed<u64>> {
        if entry.node.is_null() {
            return None;
        }
        let count = entry.node.count();
        if count.is_none() {
            self.wrong_type(entry.node, &entry.path, "a whole number");
        }
        count.map(|count| Placed::new(count, entry.node.place))
    }

    pub(super) fn span(&mut self, entry: &Entry<'_>) -> Option<Duration> {
        let text = self.text(entry)?;
        let span = read_span(&text.value);
        if span.is_none() {
            let message = format!("{} has to be a duration, and is `{}`", entry.path, text.value);
            let problem = Problem::error("BAD_DURATION", text.place, message);
            self.problem(problem.with_hint(SPANS));
        }
        span
    }

    /// Reads an estimate. It decides nothing, so one that is written as prose is a warning, and counts as none.
    pub(super) fn estimate(&mut self, fields: &mut Fields<'_>) -> Option<Duration> {
        let entry = fields.take(&["estimated_time", "estimated_duration", "estimate", "duration"])?;
        let text = self.text(&entry)?;
        let span = read_span(&text.value);
        if span.is_none() {
            let message = format!("{} is `{}`, and no duration: it is left out", entry.path, text.value);
            let problem = Problem::warning("ESTIMATE_AS_TEXT", text.place, message);
            self.problem(problem.with_hint(SPANS));
        }
        span
    }

    /// Reads a list of patterns. Records a problem for an invalid one, and leaves it out.
    pub(super) fn patterns(&mut self, entry: &Entry<'_>) -> Vec<Placed<Pattern>> {
        let mut patterns = Vec::new();
        for (path, node) in items(entry) {
            let Some(text) = node.text() else {
                if matches!(node.value, Value::List(_) | Value::Map(_)) {
                    let message = format!("{path} has to be a pattern, and is {}", node.kind());
                    let problem = Problem::error("SHAPE", node.place, message);
                    self.problem(problem.with_hint("quote a pattern that begins with `[` or `{`"));
                }
                continue;
            };
            match text.parse() {
                Ok(pattern) => patterns.push(Placed::new(pattern, node.place)),
                Err(error) => {
                    let error: lockkeeper_core::pattern::PatternError = error;
                    let problem = Problem::error("BAD_PATTERN", node.place, error.to_string());
                    self.problem(problem.with_hint(error.hint()));
                }
            }
        }
        patterns
    }

    /// Reads a command: a text for the shell, or a list of arguments.
    pub(super) fn command(&mut self, fields: &mut Fields<'_>) -> Option<Vec<String>> {
        let entry = fields.take(&["command", "run", "cmd"])?;
        let words = match &entry.node.value {
            Value::List(_) => self.texts(&entry).into_iter().map(|word| word.value).collect(),
            Value::Scalar { .. } | Value::Map(_) => {
                vec!["sh".to_owned(), "-c".to_owned(), self.text(&entry)?.value]
            }
        };
        if words.is_empty() {
            self.wrong_type(entry.node, &entry.path, "a command");
            return None;
        }
        Some(words)
    }
}

/// Parses `30s`, `5m`, `5 min`, `10 minutes`, `1h30m`, `90` (seconds).
pub(super) fn read_span(text: &str) -> Option<Duration> {
    let compact: String =
        text.chars().filter(|c| !c.is_whitespace()).collect::<String>().to_ascii_lowercase();
    let mut rest = compact.as_str();
    let mut sum = Duration::ZERO;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let unit_at = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let after = rest[unit_at..].find(|c: char| c.is_ascii_digit()).map_or(rest.len(), |at| unit_at + at);
        let unit = match &rest[unit_at..after] {
            "sec" | "secs" | "second" | "seconds" | "秒" | "秒钟" | "秒間" => "s",
            "mins" | "minute" | "minutes" | "分" | "分钟" | "分間" => "m",
            "hr" | "hrs" | "hour" | "hours" | "小时" | "時間" => "h",
            "day" | "days" | "天" | "日" => "d",
            other => other,
        };
        sum = sum.checked_add(parse_span(&format!("{}{unit}", &rest[..unit_at])).ok()?)?;
        rest = &rest[after..];
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed_as_people_write_them() {
        let cases = [
            ("90", 90_000),
            ("30s", 30_000),
            ("5m", 300_000),
            ("5 min", 300_000),
            ("10 minutes", 600_000),
            ("1h30m", 5_400_000),
            ("1 hour 30 minutes", 5_400_000),
            ("1.5h", 5_400_000),
            ("250ms", 250),
            ("20分钟", 1_200_000),
            ("1小时30分", 5_400_000),
            ("2時間", 7_200_000),
        ];
        for (text, milliseconds) in cases {
            assert_eq!(read_span(text), Some(Duration::from_millis(milliseconds)), "{text}");
        }
        for text in ["", "soon", "5 parsecs", "-3s", "m5", "99999999999999d", "1..5h"] {
            assert_eq!(read_span(text), None, "{text}");
        }
    }
}
