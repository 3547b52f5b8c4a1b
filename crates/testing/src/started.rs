//! A process in the background. Dropping its guard kills it.

use std::io::Write;
use std::process::{Child, ChildStdin, Command, ExitStatus, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::stream::{Missing, Stream};
use crate::{Finished, until_seen};

/// A running process with pipes on stdin, stdout and stderr. Threads read both outputs, so it never blocks on them.
pub struct Started {
    shown: String,
    process: Child,
    input: Option<ChildStdin>,
    stdout: Stream,
    stderr: Stream,
}

impl Started {
    /// Starts a command.
    #[must_use]
    pub fn of(command: &mut Command) -> Self {
        let shown = format!("{command:?}");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap_or_else(|error| panic!("cannot start {shown}: {error}"));
        let input = process.stdin.take();
        let stdout = Stream::read(process.stdout.take().expect("stdout is a pipe"));
        let stderr = Stream::read(process.stderr.take().expect("stderr is a pipe"));
        Self { shown, process, input, stdout, stderr }
    }

    /// The number of the process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Waits for the next whole line on stdout.
    #[track_caller]
    pub fn line(&mut self) -> String {
        self.try_line().unwrap_or_else(|| panic!("it ended early: {}", self.story()))
    }

    /// Waits for the next whole line on stdout. None at the end of stdout.
    #[track_caller]
    pub fn try_line(&mut self) -> Option<String> {
        let line = self.take_through(&self.stdout, "\n")?;
        Some(line.trim_end().to_owned())
    }

    /// Waits for the next line on stdout, and parses it as a number, such as that of a process.
    #[track_caller]
    pub fn number(&mut self) -> u32 {
        let line = self.line();
        line.parse().unwrap_or_else(|error| panic!("{error} in {line:?}: {}", self.story()))
    }

    /// Waits for the next line on stdout, and parses it as JSON. None at the end of stdout.
    #[track_caller]
    pub fn try_json(&mut self) -> Option<Value> {
        let line = self.try_line()?;
        Some(
            serde_json::from_str(&line)
                .unwrap_or_else(|error| panic!("{error} in {line:?}: {}", self.story())),
        )
    }

    /// Waits for a line on stdout that contains `mark`, and returns what follows the mark. Passes over other lines,
    /// such as those of the test harness around [`crate::this_test`].
    #[track_caller]
    pub fn line_with(&mut self, mark: &str) -> String {
        loop {
            let line = self.line();
            if let Some((_, rest)) = line.split_once(mark) {
                return rest.to_owned();
            }
        }
    }

    /// Waits until stdout contains a text, and returns what came before it.
    #[track_caller]
    pub fn until_stdout(&mut self, text: &str) -> String {
        let before = self.take_through(&self.stdout, text);
        before.unwrap_or_else(|| panic!("no {text:?} on stdout: {}", self.story()))
    }

    /// Waits until stderr contains a text, and returns what came before it.
    #[track_caller]
    pub fn until_stderr(&mut self, text: &str) -> String {
        let before = self.take_through(&self.stderr, text);
        before.unwrap_or_else(|| panic!("no {text:?} on stderr: {}", self.story()))
    }

    /// Writes to its stdin.
    #[track_caller]
    pub fn send(&mut self, text: &str) {
        let input = self.input.as_mut().expect("its stdin is open");
        input.write_all(text.as_bytes()).unwrap_or_else(|error| panic!("{error}: {}", self.story()));
    }

    /// Closes its stdin.
    pub fn close_input(&mut self) {
        self.input = None;
    }

    /// Sends a signal to it.
    #[track_caller]
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    /// Kills it, closes its stdin, and waits for its death. Processes that it started live on.
    #[track_caller]
    pub fn kill(&mut self) -> ExitStatus {
        self.process.kill().unwrap();
        // Not before: a process that waits for the end of its input would go on.
        self.input = None;
        self.process.wait().unwrap()
    }

    /// Whether it has ended.
    #[track_caller]
    pub fn has_ended(&mut self) -> bool {
        self.process.try_wait().unwrap().is_some()
    }

    /// Waits for its end. Its stdin stays open, and processes that it started may keep its outputs open.
    #[track_caller]
    pub fn end(&mut self) -> ExitStatus {
        let ended = until_seen(&self.shown, || self.process.try_wait().unwrap(), Option::is_some);
        ended.expect("it has ended")
    }

    /// Writes a line to its stdin, and then does the same as [`Started::wait`]: see [`crate::World::hold`].
    #[must_use]
    #[track_caller]
    pub fn finish(mut self) -> Finished {
        // A process that has already ended does not read it.
        if let Some(input) = &mut self.input {
            let _ = input.write_all(b"go\n");
        }
        self.wait()
    }

    /// Closes its stdin, and waits for the end of the process and of its outputs. Returns the output that was not
    /// read before.
    #[must_use]
    #[track_caller]
    pub fn wait(mut self) -> Finished {
        self.input = None;
        let (stdout, stderr) = (self.stdout.take_rest(), self.stderr.take_rest());
        let (Some(stdout), Some(stderr)) = (stdout, stderr) else {
            panic!("it does not close its outputs: {}", self.story())
        };
        let status = self.process.wait().unwrap();
        Finished::new(self.shown.clone(), Output { status, stdout, stderr })
    }

    #[track_caller]
    fn take_through(&self, stream: &Stream, text: &str) -> Option<String> {
        match stream.take_through(text.as_bytes()) {
            Ok(mut bytes) => {
                bytes.truncate(bytes.len() - text.len());
                Some(String::from_utf8_lossy(&bytes).into_owned())
            }
            Err(Missing::Ended) => None,
            Err(Missing::TimedOut) => panic!("waited in vain for {text:?}: {}", self.story()),
        }
    }

    /// Everything that is known, for messages.
    fn story(&self) -> String {
        let (out, err) = (self.stdout.so_far(), self.stderr.so_far());
        format!("{}\n--- stdout\n{out}\n--- stderr\n{err}", self.shown)
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
