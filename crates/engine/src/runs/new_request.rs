//! A request as its user writes it, on every interface the same, and the check that makes it one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lockkeeper_core::id::{IdError, RequestId};
use lockkeeper_core::pattern::PatternError;
use lockkeeper_core::record::{Priority, PriorityError};
use lockkeeper_core::request::Request;
use lockkeeper_core::retry::RetryPolicy;
use lockkeeper_core::secret::shown_command;
use lockkeeper_core::time::{SpanError, parse_span};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The longest title, in bytes; one that is made from a command is cut shorter.
const LONGEST_TITLE: usize = 1000;
const MADE_TITLE: usize = 80;
/// All words of a command together, in bytes; the system itself does not take much more.
const LONGEST_COMMAND: usize = 1 << 20;
/// The longest key, in bytes.
const LONGEST_KEY: usize = 255;
/// No more attempts than this: the waits between them would take years.
const MOST_RETRIES: u32 = 1000;

/// What somebody wants done, not yet checked.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct NewRequest {
    /// Its id; one is made when it is not given.
    pub id: Option<String>,
    /// What it is about; made from the command when it is not given.
    pub title: Option<String>,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The folder to run in; where the submitter is when it is not given.
    pub cwd: Option<String>,
    /// Variables beside those that go along by themselves.
    pub env: BTreeMap<String, String>,
    /// Names to hold while it runs.
    pub locks: Vec<String>,
    /// Patterns over paths, from the repository's root, to hold while it runs.
    pub paths: Vec<String>,
    /// Whether all of that can be shared.
    pub shared: bool,
    /// How urgent it is, from -100 to 100.
    pub priority: i32,
    /// The requests that have to be done before.
    pub after: Vec<String>,
    /// How long it may wait; 0 for as long as it takes, whatever the settings say.
    pub queue_timeout: Option<SpanText>,
    /// How long an attempt may take; 0 for as long as it takes, whatever the settings say.
    pub timeout: Option<SpanText>,
    /// How many more attempts there may be.
    pub retries: u32,
    /// The wait before the second attempt.
    pub backoff: Option<SpanText>,
    /// The longest wait between two attempts.
    pub max_backoff: Option<SpanText>,
    /// The exit codes that are worth another attempt; all when there are none.
    pub retry_on: Vec<u8>,
    /// The exit codes that are a success; 0 when there are none.
    pub success: Vec<u8>,
    /// The same key gives the same request.
    pub key: Option<String>,
    /// Who asked for it, `kind:id`.
    pub origin: Option<String>,
}

/// A span as people write one: a number of seconds, or a text such as `5m`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(untagged)]
pub enum SpanText {
    /// Seconds.
    Seconds(f64),
    /// As on the command line.
    Text(String),
}

impl SpanText {
    fn span(&self) -> Result<Duration, SpanError> {
        match self {
            Self::Seconds(seconds) => parse_span(&seconds.to_string()),
            Self::Text(text) => parse_span(text),
        }
    }
}

/// What counts where a request says nothing.
#[derive(Clone, Debug, Default)]
pub struct Defaults {
    /// Where the submitter is.
    pub dir: PathBuf,
    /// What goes along of the submitter's environment.
    pub env: Vec<(String, String)>,
    /// How long it may wait.
    pub queue_timeout: Option<Duration>,
    /// How long an attempt may take.
    pub timeout: Option<Duration>,
}

/// Why something cannot be a request.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BadRequest {
    /// There is nothing to run.
    #[error("a request needs a command")]
    NoCommand,
    /// A NUL byte where the system takes none.
    #[error("{0} contains a NUL byte")]
    Nul(&'static str),
    /// Too much of something.
    #[error("{what} is too long: {length}, and {limit} is the most")]
    TooLong {
        /// What it is.
        what: &'static str,
        /// How long it is.
        length: usize,
        /// How long it may be.
        limit: usize,
    },
    /// A text where no program could use it.
    #[error("{what} is not UTF-8")]
    NotUtf8 {
        /// What it is.
        what: String,
    },
    /// A name that no variable can have.
    #[error("`{}` cannot be the name of a variable", .0.escape_debug())]
    Variable(String),
    /// A folder that cannot be said in text.
    #[error("the folder {} is not UTF-8", .0.display())]
    Folder(PathBuf),
    /// An id or name.
    #[error(transparent)]
    Id(#[from] IdError),
    /// A pattern.
    #[error(transparent)]
    Pattern(#[from] PatternError),
    /// A span of time.
    #[error(transparent)]
    Span(#[from] SpanError),
    /// A priority.
    #[error(transparent)]
    Priority(#[from] PriorityError),
}

impl BadRequest {
    /// The way out.
    pub fn hint(&self) -> String {
        match self {
            Self::NoCommand => "give a program and its arguments behind `--`".to_owned(),
            Self::Nul(_) => "programs cannot be given NUL bytes".to_owned(),
            Self::TooLong { .. } => "put it into a file and have the command read that".to_owned(),
            Self::NotUtf8 { .. } => "requests are kept as text: put it into a script".to_owned(),
            Self::Variable(_) => "write NAME=VALUE, or NAME to take it along".to_owned(),
            Self::Folder(_) => "choose another with --dir".to_owned(),
            Self::Id(error) => error.hint().to_owned(),
            Self::Pattern(error) => error.hint().to_string(),
            Self::Span(error) => error.hint().to_owned(),
            Self::Priority(_) => "0 is the default, more is sooner".to_owned(),
        }
    }
}

impl NewRequest {
    /// Checks everything and fills in what was left open; `made_id` is taken when no id was chosen.
    pub fn check(self, made_id: &RequestId, defaults: &Defaults) -> Result<Request, BadRequest> {
        check_command(&self.command)?;
        let title = self.title.unwrap_or_else(|| made_title(&self.command));
        limit("the title", title.len(), LONGEST_TITLE)?;
        limit("the key", self.key.as_ref().map_or(0, String::len), LONGEST_KEY)?;
        limit("the number of retries", self.retries as usize, MOST_RETRIES as usize)?;
        let base = RetryPolicy::default();
        let span = |text: Option<SpanText>| text.map(|text| text.span()).transpose();
        Ok(Request {
            id: self.id.map_or_else(|| Ok(made_id.clone()), |id| id.parse())?,
            title,
            dir: folder(&defaults.dir, self.cwd.as_deref())?,
            env: environment(&defaults.env, self.env)?,
            locks: self.locks.iter().map(|name| name.parse()).collect::<Result<_, IdError>>()?,
            paths: self.paths.iter().map(|path| path.parse()).collect::<Result<_, PatternError>>()?,
            shared: self.shared,
            priority: Priority::new(self.priority)?,
            after: self.after.iter().map(|id| id.parse()).collect::<Result<_, IdError>>()?,
            queue_timeout: limited(span(self.queue_timeout)?.or(defaults.queue_timeout)),
            timeout: limited(span(self.timeout)?.or(defaults.timeout)),
            retry: RetryPolicy {
                limit: self.retries,
                base: span(self.backoff)?.unwrap_or(base.base),
                longest: span(self.max_backoff)?.unwrap_or(base.longest),
                codes: self.retry_on,
            },
            success: if self.success.is_empty() { vec![0] } else { self.success },
            key: self.key,
            origin: self.origin,
            command: self.command,
        })
    }
}

/// No time at all is no limit: nothing could ever run within it.
fn limited(span: Option<Duration>) -> Option<Duration> {
    span.filter(|span| !span.is_zero())
}

fn check_command(command: &[String]) -> Result<(), BadRequest> {
    if command.first().is_none_or(String::is_empty) {
        return Err(BadRequest::NoCommand);
    }
    if command.iter().any(|word| word.contains('\0')) {
        return Err(BadRequest::Nul("the command"));
    }
    limit("the command", command.iter().map(|word| word.len() + 1).sum(), LONGEST_COMMAND)
}

fn limit(what: &'static str, length: usize, limit: usize) -> Result<(), BadRequest> {
    if length > limit { Err(BadRequest::TooLong { what, length, limit }) } else { Ok(()) }
}

/// The command itself, as much of it as a line has room for.
fn made_title(command: &[String]) -> String {
    let command = shown_command(command);
    let words: Vec<&str> = match &command[..] {
        // What a shell is to do says more than that it is a shell.
        [shell, flag, script, ..] if flag == "-c" && shell.ends_with("sh") => vec![script],
        words => words.iter().map(String::as_str).collect(),
    };
    let line: String =
        words.join(" ").chars().map(|c| if c.is_control() || c.is_whitespace() { ' ' } else { c }).collect();
    let line = line.trim();
    if line.chars().count() <= MADE_TITLE {
        return line.to_owned();
    }
    line.chars().take(MADE_TITLE - 1).chain(['…']).collect()
}

fn folder(base: &Path, named: Option<&str>) -> Result<String, BadRequest> {
    let path = named.map_or_else(|| base.to_owned(), |named| base.join(named));
    match path.to_str() {
        Some(text) if text.contains('\0') => Err(BadRequest::Nul("the folder")),
        Some(text) => Ok(text.to_owned()),
        None => Err(BadRequest::Folder(path)),
    }
}

fn environment(
    given: &[(String, String)],
    named: BTreeMap<String, String>,
) -> Result<Vec<(String, String)>, BadRequest> {
    let mut all: BTreeMap<String, String> = given.iter().cloned().collect();
    for (name, value) in named {
        if name.is_empty() || name.contains(['=', '\0']) {
            return Err(BadRequest::Variable(name));
        }
        if value.contains('\0') {
            return Err(BadRequest::Nul("the environment"));
        }
        all.insert(name, value);
    }
    Ok(all.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(new: NewRequest) -> Result<Request, BadRequest> {
        let defaults =
            Defaults { dir: "/work".into(), timeout: Some(Duration::from_secs(9)), ..Defaults::default() };
        new.check(&"RQ-1".parse().unwrap(), &defaults)
    }

    fn of(command: &[&str]) -> NewRequest {
        let command = command.iter().map(|word| (*word).to_owned()).collect();
        NewRequest { command, ..NewRequest::default() }
    }

    #[test]
    fn what_was_left_open_is_filled_in() {
        let request = check(NewRequest { cwd: Some("api".to_owned()), ..of(&["make", "test"]) }).unwrap();
        assert_eq!((request.id.as_str(), request.title.as_str()), ("RQ-1", "make test"));
        assert_eq!((request.dir.as_str(), request.success.as_slice()), ("/work/api", &[0][..]));
        assert_eq!(request.timeout, Some(Duration::from_secs(9)));
        let unlimited = NewRequest { timeout: Some(SpanText::Text("0".to_owned())), ..of(&["x"]) };
        assert_eq!(check(unlimited).unwrap().timeout, None);
        let script = check(of(&["/bin/sh", "-c", "echo a\nb", "x"])).unwrap();
        assert_eq!(script.title, "echo a b");
        assert_eq!(check(of(&[&"x".repeat(200)])).unwrap().title.chars().count(), MADE_TITLE);
    }

    #[test]
    fn spans_are_numbers_or_texts() {
        let text = r#"{"command":["x"],"timeout":90,"queue_timeout":"5m","backoff":0.5}"#;
        let request = check(serde_json::from_str(text).unwrap()).unwrap();
        assert_eq!(request.timeout, Some(Duration::from_secs(90)));
        assert_eq!(request.queue_timeout, Some(Duration::from_secs(300)));
        assert_eq!(request.retry.base, Duration::from_millis(500));
        for bad in ["-1", "1e300", "\"soon\""] {
            let new = serde_json::from_str(&format!(r#"{{"command":["x"],"timeout":{bad}}}"#)).unwrap();
            assert!(matches!(check(new), Err(BadRequest::Span(_))), "{bad}");
        }
        assert!(serde_json::from_str::<NewRequest>(r#"{"comand":["x"]}"#).is_err());
    }

    #[test]
    fn what_cannot_be_done_is_refused() {
        assert_eq!(check(of(&[])), Err(BadRequest::NoCommand));
        assert_eq!(check(of(&[""])), Err(BadRequest::NoCommand));
        assert_eq!(check(of(&["a\0"])), Err(BadRequest::Nul("the command")));
        let env = BTreeMap::from([("A=B".to_owned(), String::new())]);
        assert!(matches!(check(NewRequest { env, ..of(&["x"]) }), Err(BadRequest::Variable(_))));
        let retries = NewRequest { retries: 1001, ..of(&["x"]) };
        assert!(matches!(check(retries), Err(BadRequest::TooLong { .. })));
        let long = of(&["x", &"y".repeat(LONGEST_COMMAND)]);
        assert!(matches!(check(long), Err(BadRequest::TooLong { .. })));
        assert!(matches!(
            check(NewRequest { locks: vec!["a//b".to_owned()], ..of(&["x"]) }),
            Err(BadRequest::Id(_))
        ));
    }
}
