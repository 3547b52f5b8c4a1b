//! The result of a process that has ended, with assertions that can be chained.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};

use serde_json::Value;

/// How a process ended and what it wrote. Every failed assertion shows the command and both outputs.
#[derive(Debug)]
pub struct Finished {
    shown: String,
    output: Output,
}

impl Finished {
    /// Runs a command to its end.
    #[must_use]
    pub fn of(command: &mut Command) -> Self {
        let shown = format!("{command:?}");
        match command.output() {
            Ok(output) => Self { shown, output },
            Err(error) => panic!("cannot run {shown}: {error}"),
        }
    }

    pub(crate) fn new(shown: String, output: Output) -> Self {
        Self { shown, output }
    }

    /// Asserts the exit code. A process that a signal ended has none.
    #[track_caller]
    pub fn code(self, code: i32) -> Self {
        assert_eq!(self.exit_code(), Some(code), "{}", self.story());
        self
    }

    /// Asserts the exit code as a shell reports it: 128 and the signal when a signal ended the process.
    #[track_caller]
    pub fn shell_code(self, code: i32) -> Self {
        let status = self.output.status;
        let reported = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
        assert_eq!(reported, Some(code), "{}", self.story());
        self
    }

    /// The exit code, or none when a signal ended the process.
    #[must_use]
    pub fn exit_code(&self) -> Option<i32> {
        self.output.status.code()
    }

    /// Whether the exit code is 0.
    #[must_use]
    pub fn succeeded(&self) -> bool {
        self.output.status.success()
    }

    /// What it wrote to stdout, as text.
    #[must_use]
    #[track_caller]
    pub fn stdout(&self) -> String {
        self.text(&self.output.stdout)
    }

    /// What it wrote to stderr, as text.
    #[must_use]
    #[track_caller]
    pub fn stderr(&self) -> String {
        self.text(&self.output.stderr)
    }

    /// What it wrote to stdout, as bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.output.stdout
    }

    /// Asserts that stdout contains a text.
    #[track_caller]
    pub fn prints(self, text: &str) -> Self {
        assert!(self.stdout().contains(text), "no {text:?} on stdout of {}", self.story());
        self
    }

    /// Asserts that stderr contains a text.
    #[track_caller]
    pub fn says(self, text: &str) -> Self {
        assert!(self.stderr().contains(text), "no {text:?} on stderr of {}", self.story());
        self
    }

    /// Asserts that it wrote nothing at all.
    #[track_caller]
    pub fn silent(self) -> Self {
        assert!(self.output.stdout.is_empty() && self.output.stderr.is_empty(), "{}", self.story());
        self
    }

    /// The JSON document on stdout. Asserts that stdout has exactly one line.
    #[must_use]
    #[track_caller]
    pub fn json(&self) -> Value {
        let lines = self.json_lines();
        assert_eq!(lines.len(), 1, "{}", self.story());
        lines.into_iter().next().unwrap_or_default()
    }

    /// The JSON documents on stdout, one in each line.
    #[must_use]
    #[track_caller]
    pub fn json_lines(&self) -> Vec<Value> {
        let parse = |line: &str| {
            serde_json::from_str(line)
                .unwrap_or_else(|error| panic!("{error} in {line:?} of {}", self.story()))
        };
        self.stdout().lines().map(parse).collect()
    }

    #[track_caller]
    fn text(&self, bytes: &[u8]) -> String {
        String::from_utf8(bytes.to_vec()).unwrap_or_else(|error| panic!("{error}: {}", self.story()))
    }

    /// Everything that is known, for messages.
    fn story(&self) -> String {
        let Output { status, stdout, stderr } = &self.output;
        let (out, err) = (String::from_utf8_lossy(stdout), String::from_utf8_lossy(stderr));
        format!("{}\n{status}\n--- stdout\n{out}\n--- stderr\n{err}", self.shown)
    }
}
