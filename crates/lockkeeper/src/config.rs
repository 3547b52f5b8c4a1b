//! Settings: built in, then the user's, then the project's, then the environment, then flags.
//!
//! Each value remembers where it comes from, so that `lockkeeper config` can tell.

use lockkeeper_engine::report::{Exit, Report};
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lockkeeper_core::time::{SpanError, Ttl, parse_span};
use thiserror::Error;

/// The project's file, beside its root.
pub const PROJECT_FILE: &str = "lockkeeper.toml";
/// The user's file, below the configuration folder.
const USER_FILE: &str = "lockkeeper/config.toml";
/// A file of settings is not larger than this.
const MAX_BYTES: u64 = 64 * 1024;

/// Where a value comes from; later ones win.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// Nobody set it.
    Default,
    /// The user's file.
    User(PathBuf),
    /// The project's file.
    Project(PathBuf),
    /// An environment variable.
    Environment(String),
    /// A flag of the command.
    Flag(&'static str),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::User(path) | Self::Project(path) => write!(f, "{}", path.display()),
            Self::Environment(name) => write!(f, "environment {name}"),
            Self::Flag(flag) => write!(f, "flag {flag}"),
        }
    }
}

/// A value and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its key, as in the files.
    pub key: &'static str,
    /// What it is for.
    pub meaning: &'static str,
    /// Its text; none when it is not set.
    pub value: Option<String>,
    /// Where it comes from.
    pub source: Source,
}

/// A key that can be set.
struct Known {
    key: &'static str,
    variable: &'static str,
    default: Option<&'static str>,
    meaning: &'static str,
    check: fn(&str) -> Result<(), String>,
}

const KNOWN: [Known; 12] = [
    Known {
        key: "dir",
        variable: "LOCKKEEPER_DIR",
        default: None,
        meaning: "folder of the state",
        check: not_empty,
    },
    Known {
        key: "store",
        variable: "LOCKKEEPER_STORE",
        default: None,
        meaning: "engine of the state, such as sqlite:PATH",
        check: not_empty,
    },
    Known {
        key: "owner",
        variable: "LOCKKEEPER_OWNER",
        default: None,
        meaning: "who holds and waits; unique to each command if not set",
        check: |text| {
            text.parse::<lockkeeper_core::id::Owner>().map(|_| ()).map_err(|error| error.to_string())
        },
    },
    Known {
        key: "lang",
        variable: "LOCKKEEPER_LANG",
        default: Some("en"),
        meaning: "language",
        check: language,
    },
    Known {
        key: "color",
        variable: "LOCKKEEPER_COLOR",
        default: Some("auto"),
        meaning: "colour",
        check: color,
    },
    Known {
        key: "ttl",
        variable: "LOCKKEEPER_TTL",
        default: Some("5m"),
        meaning: "TTL of a lease that no process stands for",
        check: ttl,
    },
    Known {
        key: "wait",
        variable: "LOCKKEEPER_WAIT",
        default: None,
        meaning: "how long `exec` waits; for good if not set",
        check: span,
    },
    Known {
        key: "ticket_ttl",
        variable: "LOCKKEEPER_TICKET_TTL",
        default: Some("2m"),
        meaning: "how long a ticket stays in line while its owner is away",
        check: ttl,
    },
    Known {
        key: "grace",
        variable: "LOCKKEEPER_GRACE",
        default: Some("10s"),
        meaning: "how long a command may take to stop before it is killed",
        check: span,
    },
    Known {
        key: "queue_timeout",
        variable: "LOCKKEEPER_QUEUE_TIMEOUT",
        default: None,
        meaning: "how long a run may wait in the queue; for good if not set",
        check: span,
    },
    Known {
        key: "timeout",
        variable: "LOCKKEEPER_TIMEOUT",
        default: None,
        meaning: "how long an attempt of a run may take; for good if not set",
        check: span,
    },
    Known {
        key: "queue_limit",
        variable: "LOCKKEEPER_QUEUE_LIMIT",
        default: None,
        meaning: "how many runs may wait in the queue; any number if not set",
        check: count,
    },
];

/// All settings.
#[derive(Clone, Debug)]
pub struct Config {
    settings: Vec<Setting>,
}

/// What decides on the settings.
pub struct Inputs<'i> {
    /// The project's root.
    pub root: &'i Path,
    /// Reads an environment variable.
    pub variable: &'i dyn Fn(&str) -> Option<String>,
    /// Values of flags.
    pub flags: &'i [(&'static str, &'static str, String)],
}

impl Config {
    /// Reads all sources.
    pub fn load(inputs: &Inputs<'_>) -> Result<Self, ConfigError> {
        let mut config = Self { settings: KNOWN.iter().map(Known::unset).collect() };
        if let Some(path) = user_file(inputs.variable) {
            config.read_file(&path, &Source::User(path.clone()))?;
        }
        let path = inputs.root.join(PROJECT_FILE);
        config.read_file(&path, &Source::Project(path.clone()))?;
        for known in &KNOWN {
            if let Some(value) = (inputs.variable)(known.variable).filter(|value| !value.is_empty()) {
                config.set(known, value, Source::Environment(known.variable.to_owned()))?;
            }
        }
        for (key, flag, value) in inputs.flags {
            if let Some(known) = KNOWN.iter().find(|known| known.key == *key) {
                config.set(known, value.clone(), Source::Flag(flag))?;
            }
        }
        Ok(config)
    }

    /// All of them, in a fixed order.
    pub fn settings(&self) -> &[Setting] {
        &self.settings
    }

    /// The text of one of them.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.settings.iter().find(|setting| setting.key == key).and_then(|setting| setting.value.as_deref())
    }

    /// A span of time; texts were checked when they came in.
    pub fn span(&self, key: &str) -> Option<Duration> {
        self.text(key).and_then(|text| parse_span(text).ok())
    }

    /// A TTL; texts were checked when they came in.
    pub fn ttl(&self, key: &str) -> Option<Ttl> {
        self.span(key).and_then(|span| Ttl::new(span).ok())
    }

    /// A count; texts were checked when they came in.
    pub fn count(&self, key: &str) -> Option<u64> {
        self.text(key).and_then(|text| text.parse().ok())
    }

    fn read_file(&mut self, path: &Path, source: &Source) -> Result<(), ConfigError> {
        let unreadable = |source| ConfigError::Unreadable { path: path.to_owned(), source };
        let text = match fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            // A home of somebody else, as `su` and `setpriv` leave it behind: its settings are not this user's.
            Err(error)
                if error.kind() == io::ErrorKind::PermissionDenied && matches!(source, Source::User(_)) =>
            {
                return Ok(());
            }
            Err(error) => return Err(unreadable(error)),
            Ok(meta) if !meta.is_file() || meta.len() > MAX_BYTES => {
                return Err(ConfigError::NotAFile { path: path.to_owned() });
            }
            Ok(_) => fs::read_to_string(path).map_err(unreadable)?,
        };
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
            let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            let line = before.matches('\n').count() + 1;
            ConfigError::Syntax { path: path.to_owned(), line, what: error.message().to_owned() }
        })?;
        for (key, value) in table {
            let Some(known) = KNOWN.iter().find(|known| known.key == key) else {
                return Err(ConfigError::UnknownKey { path: path.to_owned(), key });
            };
            let text = match value {
                toml::Value::String(text) => text,
                toml::Value::Integer(number) => number.to_string(),
                toml::Value::Float(number) => number.to_string(),
                toml::Value::Boolean(_)
                | toml::Value::Datetime(_)
                | toml::Value::Array(_)
                | toml::Value::Table(_) => {
                    let reason = "it is neither a text nor a number".to_owned();
                    return Err(ConfigError::Value { key: known.key, origin: source.to_string(), reason });
                }
            };
            self.set(known, text, source.clone())?;
        }
        Ok(())
    }

    fn set(&mut self, known: &Known, value: String, source: Source) -> Result<(), ConfigError> {
        (known.check)(&value).map_err(|reason| ConfigError::Value {
            key: known.key,
            origin: source.to_string(),
            reason,
        })?;
        if let Some(setting) = self.settings.iter_mut().find(|setting| setting.key == known.key) {
            setting.value = Some(value);
            setting.source = source;
        }
        Ok(())
    }
}

impl Known {
    fn unset(&self) -> Setting {
        let value = self.default.map(str::to_owned);
        Setting { key: self.key, meaning: self.meaning, value, source: Source::Default }
    }
}

/// Why the settings cannot be used.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// A file cannot be read.
    #[error("cannot read the settings in {}", path.display())]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Something else lies there.
    #[error("{} is not a file of settings", path.display())]
    NotAFile {
        /// Where.
        path: PathBuf,
    },
    /// It is not TOML.
    #[error("{} is not valid TOML: line {line}: {what}", path.display())]
    Syntax {
        /// Which file.
        path: PathBuf,
        /// In which line, from 1.
        line: usize,
        /// What the reader stumbled over.
        what: String,
    },
    /// A key that does not exist.
    #[error("{} has an unknown setting `{key}`", path.display())]
    UnknownKey {
        /// Which file.
        path: PathBuf,
        /// The key.
        key: String,
    },
    /// A value that cannot be.
    #[error("the setting `{key}` from {origin} cannot be used: {reason}")]
    Value {
        /// The key.
        key: &'static str,
        /// Where it comes from.
        origin: String,
        /// What is wrong.
        reason: String,
    },
}

impl ConfigError {
    /// The way out.
    pub fn hint(&self) -> String {
        match self {
            Self::UnknownKey { .. } => {
                let keys: Vec<&str> = KNOWN.iter().map(|known| known.key).collect();
                format!("settings are: {}", keys.join(", "))
            }
            Self::Value { .. } => "`lockkeeper config` shows every setting with an example".to_owned(),
            Self::Unreadable { path, .. } | Self::NotAFile { path } | Self::Syntax { path, .. } => {
                format!("mend {} or move it away", path.display())
            }
        }
    }
}

fn user_file(variable: &dyn Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let set = |name: &str| variable(name).filter(|value| value.starts_with('/')).map(PathBuf::from);
    let folder = set("XDG_CONFIG_HOME").or_else(|| set("HOME").map(|home| home.join(".config")))?;
    Some(folder.join(USER_FILE))
}

fn not_empty(text: &str) -> Result<(), String> {
    if text.is_empty() { Err("it is empty".to_owned()) } else { Ok(()) }
}

fn language(text: &str) -> Result<(), String> {
    if matches!(text, "en" | "ja" | "zh") { Ok(()) } else { Err(format!("`{text}` is none of en, ja, zh")) }
}

fn color(text: &str) -> Result<(), String> {
    let known = matches!(text, "auto" | "always" | "never");
    if known { Ok(()) } else { Err(format!("`{text}` is none of auto, always, never")) }
}

fn span(text: &str) -> Result<(), String> {
    parse_span(text).map(|_| ()).map_err(|error| format!("{error}; {}", error.hint()))
}

fn count(text: &str) -> Result<(), String> {
    let number = text.parse::<u64>().ok().filter(|number| *number > 0);
    number.map(|_| ()).ok_or_else(|| format!("`{text}` is not a number from 1"))
}

fn ttl(text: &str) -> Result<(), String> {
    let checked = parse_span(text).and_then(Ttl::new);
    checked.map(|_| ()).map_err(|error: SpanError| format!("{error}; {}", error.hint()))
}

impl From<ConfigError> for Report {
    fn from(error: ConfigError) -> Self {
        Self::of(Exit::Usage, "BAD_SETTING", &error).with_hint(error.hint())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(
        root: &Path,
        variables: &[(&str, &str)],
        flags: &[(&'static str, &'static str, String)],
    ) -> Result<Config, ConfigError> {
        let variable = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        Config::load(&Inputs { root, variable: &variable, flags })
    }

    #[test]
    fn later_sources_win_and_are_named() {
        let temp = tempfile::tempdir().unwrap();
        let home = temp.path().join("home");
        fs::create_dir_all(home.join(".config/lockkeeper")).unwrap();
        fs::write(home.join(".config/lockkeeper/config.toml"), "ttl = \"1m\"\ngrace = 3\nlang = \"ja\"\n")
            .unwrap();
        fs::write(temp.path().join(PROJECT_FILE), "grace = \"4s\"\nlang = \"zh\"\n").unwrap();
        let variables = [("HOME", home.to_str().unwrap()), ("LOCKKEEPER_LANG", "en")];
        let config = load(temp.path(), &variables, &[("color", "--color", "never".to_owned())]).unwrap();
        let shown = |key: &str| {
            let setting = config.settings().iter().find(|setting| setting.key == key).unwrap();
            (setting.value.clone().unwrap_or_default(), setting.source.clone())
        };
        assert_eq!(shown("ttl").0, "1m");
        assert!(matches!(shown("ttl").1, Source::User(_)));
        assert_eq!(shown("grace").0, "4s");
        assert!(matches!(shown("grace").1, Source::Project(_)));
        assert_eq!(shown("lang"), ("en".to_owned(), Source::Environment("LOCKKEEPER_LANG".to_owned())));
        assert_eq!(shown("color"), ("never".to_owned(), Source::Flag("--color")));
        assert_eq!(shown("ticket_ttl"), ("2m".to_owned(), Source::Default));
    }

    #[test]
    fn what_cannot_be_used_is_refused_with_its_place() {
        let temp = tempfile::tempdir().unwrap();
        let project = temp.path().join(PROJECT_FILE);
        for (text, expected) in [
            ("ttl = 0\n", "`ttl`"),
            ("tl = 1\n", "unknown setting `tl`"),
            ("ttl = [1]\n", "neither"),
            ("ttl = \n", "not valid TOML"),
        ] {
            fs::write(&project, text).unwrap();
            let error = load(temp.path(), &[], &[]).unwrap_err();
            assert!(error.to_string().contains(expected), "{text:?}: {error}");
            assert!(!error.hint().is_empty());
        }
        fs::remove_file(&project).unwrap();
        fs::create_dir(&project).unwrap();
        assert!(matches!(load(temp.path(), &[], &[]), Err(ConfigError::NotAFile { .. })));
    }
}
