//! Errors as people and programs see them: one sentence, its causes, a hint, a stable code and an exit code.

use std::error::Error;
use std::fmt;

use serde_json::{Map, Value, json};

use lockkeeper_core::id::IdError;
use lockkeeper_core::lease::NotCurrent;
use lockkeeper_core::pattern::PatternError;
use lockkeeper_core::record::PriorityError;
use lockkeeper_core::request::NotARequestStatus;
use lockkeeper_core::run::NotAStatus;
use lockkeeper_core::size::SizeError;
use lockkeeper_core::time::SpanError;

use crate::config::ConfigError;
use crate::conflicts::ConflictsError;
use crate::engine::runs::new_request::BadRequest;
use crate::engine::runs::template::TemplateError;
use crate::engine::runs::{Refused, RunError};
use crate::engine::stages::StageError;
use crate::history::HistoryError;
use crate::keeper::KeeperError;
use crate::location::OutsideError;
use crate::lockfile::aiflow::AiflowError;
use crate::lockfile::group::{GroupError, GroupIdError};
use crate::lockfile::guard::GuardError;
use crate::lockfile::registry::RegistryError;
use crate::lockfile::swarm::SwarmError;
use crate::platform::anchor::AnchorError;
use crate::stages::{SelectError, StagesError};
use crate::status::StatusError;
use crate::store::StoreError;

/// How a command ends. The numbers are public and never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done.
    Done,
    /// I/O, store or internal failure.
    Failed,
    /// Bad input or usage; nothing was touched.
    Usage,
    /// The store cannot be reached.
    Unreachable,
    /// Held by another, waited in vain, compare-and-set lost, patterns overlap.
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

/// A failure on its way to whoever started the command.
///
/// It is small to hand on, since every command returns one.
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
}

impl Report {
    /// A failure in one sentence, under a stable code.
    pub fn new(exit: Exit, code: &'static str, message: impl Into<String>) -> Self {
        let (causes, hint, context) = (Vec::new(), None, Map::new());
        Self(Box::new(Details { exit, code, message: message.into(), causes, hint, context }))
    }

    /// Bad input.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, "BAD_INPUT", message)
    }

    /// Adds the way out.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into()).filter(|hint: &String| !hint.is_empty());
        self
    }

    /// Adds something for programs.
    #[must_use]
    pub fn with_context(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.0.context.insert(key.to_owned(), value.into());
        self
    }

    /// Takes sentence and causes from an error.
    pub fn of(exit: Exit, code: &'static str, error: &dyn Error) -> Self {
        let mut report = Self::new(exit, code, error.to_string());
        let mut cause = error.source();
        while let Some(error) = cause {
            let text = error.to_string();
            // A transparent error repeats its cause word for word.
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

    /// Something for programs.
    pub fn context(&self, key: &str) -> Option<&Value> {
        self.0.context.get(key)
    }

    /// The way out, if there is one.
    pub fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// The shape that every interface gives errors in.
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

impl From<StoreError> for Report {
    fn from(error: StoreError) -> Self {
        let exit = if error.is_unreachable() { Exit::Unreachable } else { Exit::Failed };
        let code = match error {
            StoreError::Io { .. } | StoreError::Database { .. } => "STORE_FAILED",
            StoreError::Busy { .. } => "STORE_BUSY",
            StoreError::Damaged { .. } => "STORE_DAMAGED",
            StoreError::Foreign { .. } => "STORE_FOREIGN",
            StoreError::TooNew { .. } => "STORE_TOO_NEW",
            StoreError::TooOld { .. } => "STORE_TOO_OLD",
            StoreError::NetworkFileSystem { .. } => "STORE_ON_NETWORK",
            StoreError::Removed { .. } => "STORE_REMOVED",
            StoreError::Mismatch(_) => "INTERNAL",
        };
        Self::of(exit, code, &error).with_hint(error.hint())
    }
}

impl From<KeeperError> for Report {
    fn from(error: KeeperError) -> Self {
        match error {
            KeeperError::Id(error) => error.into(),
            KeeperError::Pattern(error) => error.into(),
            KeeperError::Span(error) => error.into(),
            KeeperError::Store(error) => error.into(),
            KeeperError::Lost(error) => error.into(),
            KeeperError::Order(message) => Self::usage(message),
            KeeperError::Held { .. } => Self::of(Exit::Refused, "LOCK_HELD", &error),
            KeeperError::Deadlock { .. } => Self::of(Exit::Refused, "DEADLOCK", &error),
            KeeperError::TicketRemoved => Self::of(Exit::Refused, "TICKET_REMOVED", &error),
            KeeperError::Machine(_) => Self::of(Exit::Failed, "MACHINE", &error)
                .with_hint("nothing was changed; check the limits of this process with `ulimit -a`, and that /proc is mounted"),
        }
    }
}

impl From<RunError> for Report {
    fn from(error: RunError) -> Self {
        let error = match error {
            RunError::Store(error) => return error.into(),
            error => error,
        };
        let hint = error.hint();
        match &error {
            RunError::NoRun(id) => {
                Self::of(Exit::Usage, "NO_SUCH_RUN", &error).with_context("run_id", id.as_str())
            }
            RunError::Ambiguous { text, .. } => {
                Self::of(Exit::Usage, "AMBIGUOUS", &error).with_context("run_id", text.as_str())
            }
            RunError::NoRequest(id) => {
                Self::of(Exit::Usage, "NO_SUCH_REQUEST", &error).with_context("request_id", id.as_str())
            }
            RunError::Lost { run, current, .. } => Self::of(Exit::Refused, "TRANSITION_REFUSED", &error)
                .with_context("run_id", run.as_str())
                .with_context("status", current.as_str()),
            RunError::InProgress { request, run, status } => {
                Self::of(Exit::Refused, "RUN_IN_PROGRESS", &error)
                    .with_context("request_id", request.as_str())
                    .with_context("run_id", run.as_str())
                    .with_context("status", status.as_str())
            }
            RunError::Machine(_) => Self::of(Exit::Failed, "MACHINE", &error),
            RunError::Store(_) => Self::of(Exit::Failed, "STORE_FAILED", &error),
        }
        .with_hint(hint)
    }
}

impl From<StageError> for Report {
    fn from(error: StageError) -> Self {
        let error = match error {
            StageError::Refused(error) => return error.into(),
            StageError::Run(error) => return error.into(),
            StageError::Conflicts(error) => return error.into(),
            error => error,
        };
        let (exit, code) = match &error {
            StageError::Abort(_) => (Exit::Refused, "CONFLICT_ABORT"),
            StageError::QueueFull { .. } => (Exit::Refused, "QUEUE_FULL"),
            StageError::NoCommand(_) | StageError::GroupName { .. } => (Exit::Usage, "BAD_STAGES"),
            StageError::NothingToResume { .. } => (Exit::Usage, "NOTHING_TO_RESUME"),
            StageError::Changed { .. } => (Exit::Usage, "STAGES_CHANGED"),
            StageError::Conducted { .. } => (Exit::Refused, "EXECUTION_RUNS"),
            StageError::NotOurs(_) => (Exit::Refused, "DUPLICATE"),
            StageError::Io { .. } => (Exit::Failed, "STAGES_FAILED"),
            StageError::Refused(_) | StageError::Run(_) | StageError::Conflicts(_) => {
                (Exit::Failed, "STAGES_FAILED")
            }
        };
        let hint = error.hint();
        Self::of(exit, code, &error).with_hint(hint)
    }
}

impl From<Refused> for Report {
    fn from(refused: Refused) -> Self {
        let refused = match refused {
            Refused::Run(error) => return error.into(),
            refused => refused,
        };
        let hint = refused.hint();
        let of_run = |report: Self, run: &Option<lockkeeper_core::id::RunId>| match run {
            Some(run) => report.with_context("run_id", run.as_str()),
            None => report,
        };
        match &refused {
            Refused::Duplicate { request, run } => {
                of_run(Self::of(Exit::Refused, "DUPLICATE", &refused), run)
                    .with_context("request_id", request.as_str())
            }
            Refused::QueueFull { request, run, .. } => {
                of_run(Self::of(Exit::Refused, "QUEUE_FULL", &refused), run)
                    .with_context("request_id", request.as_str())
            }
            Refused::NothingToComeAfter { .. } => Self::of(Exit::Usage, "NO_SUCH_REQUEST", &refused),
            Refused::Circle { .. } => Self::of(Exit::Usage, "CIRCLE", &refused),
            Refused::Run(_) => Self::of(Exit::Failed, "STORE_FAILED", &refused),
        }
        .with_hint(hint)
    }
}

impl From<BadRequest> for Report {
    fn from(error: BadRequest) -> Self {
        match error {
            BadRequest::Pattern(error) => error.into(),
            error => Self::of(Exit::Usage, "BAD_INPUT", &error).with_hint(error.hint()),
        }
    }
}

impl From<TemplateError> for Report {
    fn from(error: TemplateError) -> Self {
        Self::of(Exit::Usage, "BAD_INPUT", &error).with_hint(error.hint())
    }
}

impl From<NotAStatus> for Report {
    fn from(error: NotAStatus) -> Self {
        Self::of(Exit::Usage, "BAD_INPUT", &error).with_hint(error.hint())
    }
}

impl From<NotARequestStatus> for Report {
    fn from(error: NotARequestStatus) -> Self {
        Self::of(Exit::Usage, "BAD_INPUT", &error).with_hint(error.hint())
    }
}

impl From<GuardError> for Report {
    fn from(error: GuardError) -> Self {
        let code = match error {
            GuardError::Folder { .. } | GuardError::Unlockable { .. } => "LOCK_FOLDER_FAILED",
            GuardError::Network { .. } => "LOCK_FOLDER_ON_NETWORK",
            GuardError::Stuck { .. } => "LOCK_FOLDER_STUCK",
            GuardError::Hostile { .. } => "LOCK_FILE_HOSTILE",
            GuardError::Write { .. } | GuardError::ReadBack { .. } | GuardError::Rename { .. } => {
                "LOCK_FILE_FAILED"
            }
        };
        Self::of(Exit::Failed, code, &error).with_hint(error.hint())
    }
}

impl From<SwarmError> for Report {
    fn from(error: SwarmError) -> Self {
        let hint = error.hint();
        match error {
            SwarmError::Guard(error) => error.into(),
            SwarmError::Worker(error) => error.into(),
            SwarmError::Task(_) => Self::of(Exit::Usage, "BAD_INPUT", &error).with_hint(hint),
            SwarmError::ForeignFolder { .. } | SwarmError::List { .. } => {
                Self::of(Exit::Failed, "LOCK_FOLDER_FAILED", &error).with_hint(hint)
            }
            SwarmError::NotUnderstood { .. } | SwarmError::AnotherTask { .. } => {
                Self::of(Exit::Failed, "LOCK_FILE_HOSTILE", &error).with_hint(hint)
            }
        }
    }
}

impl From<AiflowError> for Report {
    fn from(error: AiflowError) -> Self {
        let hint = error.hint();
        match error {
            AiflowError::Guard(error) => error.into(),
            AiflowError::Request(_) => Self::of(Exit::Usage, "BAD_INPUT", &error).with_hint(hint),
            AiflowError::List { .. } => Self::of(Exit::Failed, "LOCK_FOLDER_FAILED", &error).with_hint(hint),
            AiflowError::NotUnderstood { .. } => {
                Self::of(Exit::Failed, "LOCK_FILE_HOSTILE", &error).with_hint(hint)
            }
        }
    }
}

impl From<StagesError> for Report {
    fn from(error: StagesError) -> Self {
        let (exit, code) = match error {
            StagesError::Unreadable { .. } | StagesError::NotAFile { .. } => (Exit::Failed, "UNREADABLE"),
            StagesError::TooLarge { .. } => (Exit::Usage, "BAD_STAGES"),
        };
        Self::of(exit, code, &error).with_hint(error.hint())
    }
}

impl From<SelectError> for Report {
    fn from(error: SelectError) -> Self {
        Self::of(Exit::Usage, "BAD_INPUT", &error).with_hint(error.hint())
    }
}

impl From<ConflictsError> for Report {
    fn from(error: ConflictsError) -> Self {
        let (exit, code) =
            if error.is_usage() { (Exit::Usage, "NO_PATHS") } else { (Exit::Failed, "UNREADABLE") };
        Self::of(exit, code, &error).with_hint(error.hint())
    }
}

impl From<NotCurrent> for Report {
    fn from(error: NotCurrent) -> Self {
        Self::of(Exit::Refused, "NOT_CURRENT", &error)
            .with_hint("it was released, lost or broken: `lockkeeper locks` shows what is held now")
    }
}

impl From<IdError> for Report {
    fn from(error: IdError) -> Self {
        Self::of(Exit::Usage, "BAD_INPUT", &error).with_hint(error.hint())
    }
}

impl From<PatternError> for Report {
    fn from(error: PatternError) -> Self {
        Self::of(Exit::Usage, "BAD_PATTERN", &error).with_hint(error.hint())
    }
}

impl From<SpanError> for Report {
    fn from(error: SpanError) -> Self {
        Self::of(Exit::Usage, "BAD_INPUT", &error).with_hint(error.hint())
    }
}

impl From<SizeError> for Report {
    fn from(error: SizeError) -> Self {
        Self::of(Exit::Usage, "BAD_INPUT", &error).with_hint(error.hint())
    }
}

impl From<PriorityError> for Report {
    fn from(error: PriorityError) -> Self {
        Self::of(Exit::Usage, "BAD_INPUT", &error).with_hint("0 is the default, more is sooner")
    }
}

impl From<OutsideError> for Report {
    fn from(error: OutsideError) -> Self {
        Self::of(Exit::Usage, "BAD_PATTERN", &error).with_hint("give a path inside of the repository")
    }
}

impl From<AnchorError> for Report {
    fn from(error: AnchorError) -> Self {
        Self::of(Exit::Usage, "BAD_INPUT", &error).with_hint(error.hint())
    }
}

impl From<StatusError> for Report {
    fn from(error: StatusError) -> Self {
        let (exit, code) = match error {
            StatusError::Line(_) => (Exit::Usage, "BAD_INPUT"),
            StatusError::NotALog { .. } | StatusError::PlantedFolder { .. } => {
                (Exit::Failed, "STATUS_NOT_A_LOG")
            }
            StatusError::Io { .. } | StatusError::Torn { .. } => (Exit::Failed, "STATUS_FAILED"),
        };
        Self::of(exit, code, &error).with_hint(error.hint())
    }
}

impl From<ConfigError> for Report {
    fn from(error: ConfigError) -> Self {
        Self::of(Exit::Usage, "BAD_SETTING", &error).with_hint(error.hint())
    }
}

impl From<HistoryError> for Report {
    fn from(error: HistoryError) -> Self {
        let (exit, code) = match error {
            HistoryError::NotARepository { .. } => (Exit::Usage, "NOT_A_REPOSITORY"),
            HistoryError::NoGit(_) => (Exit::Failed, "GIT_MISSING"),
            HistoryError::Git { .. } | HistoryError::Read(_) | HistoryError::Unexpected { .. } => {
                (Exit::Failed, "GIT_FAILED")
            }
        };
        Self::of(exit, code, &error).with_hint(error.hint())
    }
}

impl From<GroupIdError> for Report {
    fn from(error: GroupIdError) -> Self {
        Self::of(Exit::Usage, "BAD_INPUT", &error).with_hint(error.hint())
    }
}

impl From<GroupError> for Report {
    fn from(error: GroupError) -> Self {
        let (exit, code) = if error.is_usage() {
            (Exit::Usage, "BAD_DESCRIPTOR")
        } else {
            (Exit::Failed, "LOCK_FILE_FAILED")
        };
        Self::of(exit, code, &error).with_hint(error.hint())
    }
}

impl From<RegistryError> for Report {
    fn from(error: RegistryError) -> Self {
        Self::of(Exit::Failed, "REGISTRY_FAILED", &error).with_hint(error.hint())
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
