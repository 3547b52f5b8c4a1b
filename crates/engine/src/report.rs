//! Error reports: one sentence, its causes, a hint, a stable code and an exit code.

mod input;
mod localized;
mod locks;
mod runs;
#[cfg(feature = "stages")]
mod stages;

use std::error::Error;
use std::fmt;

use serde_json::{Map, Value, json};

pub use locks::{deadlock, plain, reason};

/// How a command ends. The numbers are public and never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done.
    Done,
    /// I/O, store or internal failure.
    Failed,
    /// Bad input or usage; nothing was changed.
    Usage,
    /// The store cannot be reached.
    Unreachable,
    /// Another owner holds it, the wait timed out, a compare-and-set was lost, or patterns overlap.
    Refused,
    /// The lease was lost while the command ran; the command was stopped.
    LeaseLost,
    /// The command's own code, or 126, 127, 128+n as a shell gives them.
    Command(u8),
}

impl Exit {
    /// The number.
    pub const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Unreachable => 69,
            Self::Refused => 75,
            Self::LeaseLost => 76,
            Self::Command(code) => code,
        }
    }
}

/// An error report. Every front end prints it in its own way.
///
/// It is one pointer wide, so that a `Result` with it stays small.
#[derive(Debug)]
pub struct Report(Box<Details>);

#[derive(Debug)]
struct Details {
    exit: Exit,
    code: &'static str,
    message: String,
    causes: Vec<String>,
    hint: Option<String>,
    context: Map<String, Value>,
    message_key: &'static str,
}

impl Report {
    /// Reports a failure in one sentence, with a stable code.
    pub fn new(exit: Exit, code: &'static str, message: impl Into<String>) -> Self {
        let (causes, hint, context) = (Vec::new(), None, Map::new());
        let message = message.into();
        Self(Box::new(Details { exit, code, message, causes, hint, context, message_key: code }))
    }

    /// Takes title, summary and actions from another entry of the message tables than that of the code.
    #[must_use]
    pub fn explained_as(mut self, key: &'static str) -> Self {
        self.0.message_key = key;
        self
    }

    /// Reports bad input.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, "BAD_INPUT", message)
    }

    /// Reports that the system gave no information about this process or machine.
    pub fn machine(error: &dyn Error) -> Self {
        Self::of(Exit::Failed, "MACHINE", error).with_hint(
            "nothing was changed; check the limits of this process with `ulimit -a`, and that /proc is mounted",
        )
    }

    /// Adds what the user can do about it.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into()).filter(|hint: &String| !hint.is_empty());
        self
    }

    /// Adds a value for programs.
    #[must_use]
    pub fn with_context(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.0.context.insert(key.to_owned(), value.into());
        self
    }

    /// Takes the sentence and the causes from an error.
    pub fn of(exit: Exit, code: &'static str, error: &dyn Error) -> Self {
        let mut report = Self::new(exit, code, error.to_string());
        let mut cause = error.source();
        while let Some(error) = cause {
            let text = error.to_string();
            // A transparent error has the same text as its cause.
            if text != report.0.message {
                report.0.causes.push(text);
            }
            cause = error.source();
        }
        report
    }

    /// How the command ends.
    pub fn exit(&self) -> Exit {
        self.0.exit
    }

    /// The stable code.
    pub fn code(&self) -> &'static str {
        self.0.code
    }

    /// A value for programs.
    pub fn context(&self, key: &str) -> Option<&Value> {
        self.0.context.get(key)
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// The report as JSON, the same for every front end.
    pub fn to_json(&self) -> Value {
        let category = match self.0.exit {
            Exit::Usage => "INPUT",
            Exit::Unreachable => "ENVIRONMENT",
            Exit::Refused | Exit::LeaseLost | Exit::Command(_) => "EXECUTION",
            Exit::Failed => "ENVIRONMENT",
            Exit::Done => "UNKNOWN",
        };
        let mut message = self.0.message.clone();
        for cause in &self.0.causes {
            message.push_str(": ");
            message.push_str(cause);
        }
        json!({ "error": {
            "category": category,
            "reason_code": self.0.code,
            "message": message,
            "hint": self.0.hint,
            "context": self.0.context,
        }})
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)?;
        for cause in &self.0.causes {
            write!(f, "\n  caused by: {cause}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_those_that_scripts_know() {
        let codes =
            [Exit::Done, Exit::Failed, Exit::Usage, Exit::Unreachable, Exit::Refused, Exit::LeaseLost];
        assert_eq!(codes.map(Exit::code), [0, 1, 2, 69, 75, 76]);
        assert_eq!(Exit::Command(143).code(), 143);
    }

    #[test]
    fn an_error_has_one_shape_everywhere() {
        let report = Report::usage("no").with_hint("yes").with_context("name", "db");
        let value = report.to_json();
        let error = value["error"].as_object().unwrap();
        let keys: Vec<&str> = error.keys().map(String::as_str).collect();
        assert_eq!(keys, ["category", "reason_code", "message", "hint", "context"]);
        assert_eq!(
            (error["category"].as_str(), error["context"]["name"].as_str()),
            (Some("INPUT"), Some("db"))
        );
    }
}
