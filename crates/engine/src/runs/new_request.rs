//! Validation: turns a request as a user writes it into a [`Request`]. It is the same on every interface.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use lockkeeper_core::id::{IdError, Name, RequestId};
use lockkeeper_core::pattern::PatternError;
use lockkeeper_core::record::{Priority, PriorityError};
use lockkeeper_core::request::Request;
use lockkeeper_core::retry::RetryPolicy;
use lockkeeper_core::secret::shown_command;
use lockkeeper_core::time::{SpanError, parse_span};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The longest title, in bytes. A title that is made from the command is cut to `MADE_TITLE` characters.
const LONGEST_TITLE: usize = 1000;
const MADE_TITLE: usize = 80;
/// The longest command with all its arguments, in bytes. The system itself does not accept much more.
const LONGEST_COMMAND: usize = 1 << 20;
/// The longest key, in bytes.
const LONGEST_KEY: usize = 256;
/// The largest number of retries: with more, the waits between them would take years.
const MOST_RETRIES: u32 = 1000;

/// A request as a user writes it, before it is checked.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(
    feature = "openapi",
    derive(utoipa::ToSchema),
    schema(example = json!({ "title": "tests", "command": ["make", "test"], "locks": ["db"], "timeout": "10m" }))
)]
#[serde(deny_unknown_fields, default)]
pub struct NewRequest {
    /// Its id; generated if it is not given.
    pub id: Option<String>,
    /// Its title; made from the command if it is not given.
    pub title: Option<String>,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The working folder of the command; the submitter's if it is not given.
    pub cwd: Option<String>,
    /// Environment variables, in addition to the inherited ones.
    pub env: BTreeMap<String, String>,
    /// Names to hold while it runs.
    pub locks: Vec<String>,
    /// Patterns over paths, from the repository's root, to hold while it runs.
    pub paths: Vec<String>,
    /// Whether the locks and paths are held in shared mode.
    pub shared: bool,
    /// Labels of workers: only a worker that has all of them runs it.
    pub needs: Vec<String>,
    /// Its priority, from -100 to 100; larger is more urgent.
    pub priority: i32,
    /// The requests that have to be done first.
    pub after: Vec<String>,
    /// How long it may wait in the queue; 0 means no limit, also if the settings have one.
    pub queue_timeout: Option<SpanText>,
    /// How long an attempt may take; 0 means no limit, also if the settings have one.
    pub timeout: Option<SpanText>,
    /// How many attempts there may be after the first.
    pub retries: u32,
    /// The wait before the second attempt.
    pub backoff: Option<SpanText>,
    /// The longest wait between two attempts.
    pub max_backoff: Option<SpanText>,
    /// The exit codes after which there is another attempt; empty means all but success.
    pub retry_on: Vec<u8>,
    /// The exit codes that mean success; empty means 0.
    pub success: Vec<u8>,
    /// Idempotency key: a second request with the same key is not submitted, and the first one is returned.
    pub key: Option<String>,
    /// Its origin, `kind:id`.
    pub origin: Option<String>,
}

/// A duration: a number of seconds, or a text such as `5m`.
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

/// Defaults for the fields that a request leaves out.
#[derive(Clone, Debug, Default)]
pub struct Defaults {
    /// The working folder of the submitter.
    pub dir: PathBuf,
    /// The inherited variables of the submitter's environment.
    pub env: Vec<(String, String)>,
    /// How long a request may wait in the queue.
    pub queue_timeout: Option<Duration>,
    /// How long an attempt may take.
    pub timeout: Option<Duration>,
}

/// Why a request is not valid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BadRequest {
    /// There is no command.
    #[error("a request needs a command")]
    NoCommand,
    /// A request that may replace another one is found by its id. A key would find another one.
    #[error("a request that replaces another needs its id, and has no key")]
    NotById,
    /// A text contains a NUL byte, which the system does not accept.
    #[error("{0} contains a NUL byte")]
    Nul(&'static str),
    /// A text is too long, or a number too large.
    #[error("{what} is too long: {length}, and {limit} is the most")]
    TooLong {
        /// What it is.
        what: &'static str,
        /// How long it is.
        length: usize,
        /// How long it may be.
        limit: usize,
    },
    /// A text is not UTF-8.
    #[error("{what} is not UTF-8")]
    NotUtf8 {
        /// What it is.
        what: String,
    },
    /// The name of a variable is not valid.
    #[error("`{}` cannot be the name of a variable", .0.escape_debug())]
    Variable(String),
    /// The path of the folder is not UTF-8.
    #[error("the folder {} is not UTF-8", .0.display())]
    Folder(PathBuf),
    /// An id or name is not valid.
    #[error(transparent)]
    Id(#[from] IdError),
    /// A pattern is not valid.
    #[error(transparent)]
    Pattern(#[from] PatternError),
    /// A duration is not valid.
    #[error(transparent)]
    Span(#[from] SpanError),
    /// A priority is out of range.
    #[error(transparent)]
    Priority(#[from] PriorityError),
}

impl BadRequest {
    /// What the user can do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::NoCommand => "give a program and its arguments behind `--`".to_owned(),
            Self::NotById => "name the request to replace with an id, and leave out the key".to_owned(),
            Self::Nul(_) => "programs cannot be given NUL bytes".to_owned(),
            Self::TooLong { .. } => "put it into a file and have the command read that".to_owned(),
            Self::NotUtf8 { .. } => "requests are kept as text: put it into a script".to_owned(),
            Self::Variable(_) => "write NAME=VALUE, or NAME to take it along".to_owned(),
            Self::Folder(_) => "choose another folder for the command with --cwd".to_owned(),
            Self::Id(error) => error.hint().to_owned(),
            Self::Pattern(error) => error.hint().to_string(),
            Self::Span(error) => error.hint().to_owned(),
            Self::Priority(_) => "0 is the default, more is sooner".to_owned(),
        }
    }
}

impl NewRequest {
    /// Checks a request that may replace another one: the user names it by its id.
    pub fn check_replacement(self, defaults: &Defaults) -> Result<Request, BadRequest> {
        let id: RequestId = match (&self.id, &self.key) {
            (Some(id), None) => id.parse()?,
            (None, _) | (_, Some(_)) => return Err(BadRequest::NotById),
        };
        self.check(&id, defaults)
    }

    /// Checks all fields and fills in the defaults. `made_id` is used if the user has chosen no id.
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
            needs: labels(&self.needs)?,
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

/// Labels in the order of the alphabet, each once.
pub fn labels(texts: &[String]) -> Result<Vec<Name>, IdError> {
    let labels: BTreeSet<Name> = texts.iter().map(|text| text.parse()).collect::<Result<_, _>>()?;
    Ok(labels.into_iter().collect())
}

/// A duration of zero means no limit: no command could run within it.
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

/// A title made from the command: one line, cut if it is too long.
fn made_title(command: &[String]) -> String {
    let command = shown_command(command);
    let words: Vec<&str> = match &command[..] {
        // The script describes the work better than the name of the shell.
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
    fn defaults_are_filled_in() {
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
    fn a_replacement_names_its_id_and_no_key() {
        let (id, key) = (Some("nightly".to_owned()), Some("k".to_owned()));
        let named = NewRequest { id: id.clone(), ..of(&["x"]) };
        let replacement = |new: NewRequest| new.check_replacement(&Defaults::default());
        assert_eq!(replacement(named).unwrap().id.as_str(), "nightly");
        assert_eq!(replacement(of(&["x"])), Err(BadRequest::NotById));
        assert_eq!(replacement(NewRequest { id, key, ..of(&["x"]) }), Err(BadRequest::NotById));
    }

    #[test]
    fn invalid_requests_are_refused() {
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
