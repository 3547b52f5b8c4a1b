//! A shell command on a pseudo-terminal, made by script(1): typing keys and reading the screen.

use std::process::Command;

use crate::{Finished, Started};

/// A terminal with a command on it. What is typed is echoed, so tests wait for text that only the command can write.
pub struct Terminal {
    script: Started,
}

impl Terminal {
    /// Starts a shell command, with these variables besides those of the test.
    #[must_use]
    pub fn start(line: &str, variables: &[(&str, &str)]) -> Self {
        let mut script = Command::new("script");
        script.envs(variables.iter().copied());
        Self::of(script, line)
    }

    pub(crate) fn of(mut script: Command, line: &str) -> Self {
        Self { script: Started::of(script.args(["-qfec", line, "/dev/null"])) }
    }

    /// Types keys, such as `"\x03"` for Ctrl-C.
    #[track_caller]
    pub fn types(&mut self, keys: &str) {
        self.script.send(keys);
    }

    /// Waits until a text appears, and returns what came before it.
    #[track_caller]
    pub fn sees(&mut self, text: &str) -> String {
        self.script.until_stdout(text)
    }

    /// Waits for the end of the command. Returns what appeared since the last [`Terminal::sees`].
    #[must_use]
    #[track_caller]
    pub fn wait(self) -> Finished {
        self.script.wait()
    }
}
