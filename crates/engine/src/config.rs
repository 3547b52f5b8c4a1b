//! Settings: defaults, then the user's file, the project's file, the environment, and flags. Later sources win.
//!
//! Each value has its source, which `lockkeeper config` shows.

mod error;
mod keys;
mod store;

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lockkeeper_core::id::{IdError, Name};
use lockkeeper_core::time::{Ttl, parse_span};

pub use error::ConfigError;
use keys::{KNOWN, Known};
pub use store::{GRACE, ProjectConfig, checked_store, folder_of_store, shared_store_at};

/// The project's file, in its root.
pub const PROJECT_FILE: &str = "lockkeeper.toml";
/// The user's file, in the configuration folder.
const USER_FILE: &str = "lockkeeper/config.toml";
/// The key of the table that gives names to commands.
const COMMANDS: &str = "agents.commands";
/// The largest file of settings.
const MAX_BYTES: u64 = 64 * 1024;

/// The source of a value. Later sources win.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The default.
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

impl Source {
    /// The rank of its kind. The source of a higher rank wins.
    fn rank(&self) -> u8 {
        match self {
            Self::Default => 0,
            Self::User(_) => 1,
            Self::Project(_) => 2,
            Self::Environment(_) => 3,
            Self::Flag(_) => 4,
        }
    }
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

/// A setting and its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The key, as in the files.
    pub key: &'static str,
    /// What it is for, in words.
    pub meaning: &'static str,
    /// The value as text; none if it is not set.
    pub value: Option<String>,
    /// The source of the value.
    pub source: Source,
}

impl Setting {
    /// The environment variable of the setting, if it says which store of several machines is used, and how.
    pub fn shared_store_variable(&self) -> Option<&'static str> {
        let known = KNOWN.iter().find(|known| known.key == self.key)?;
        let keys = ["store", "runs", "project", "session", "connect_timeout", "password_file"];
        keys.contains(&self.key).then_some(known.variable)
    }
}

/// A pattern of commands with its name, from the table `[agents.commands]`, and its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandSetting {
    /// The pattern: how the command begins, or with `*` for anything.
    pub pattern: String,
    /// The name that is held while such a command runs.
    pub name: Name,
    /// The source of the name.
    pub source: Source,
}

/// All settings.
#[derive(Clone, Debug)]
pub struct Config {
    settings: Vec<Setting>,
    commands: Vec<CommandSetting>,
    files: Vec<ConfigFile>,
}

/// A file that settings are read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFile {
    /// Whose it is: `user` or `project`.
    pub of: &'static str,
    /// Its path.
    pub path: PathBuf,
    /// Whether it was there.
    pub exists: bool,
}

/// Settings from flags: key, flag and value.
pub type Flags = [(&'static str, &'static str, String)];

/// What the settings are read from.
pub struct Inputs<'i> {
    /// The root of the project.
    pub root: &'i Path,
    /// Reads an environment variable.
    pub variable: &'i dyn Fn(&str) -> Option<String>,
    /// The flags.
    pub flags: &'i Flags,
}

impl Config {
    /// Reads all sources.
    pub fn load(inputs: &Inputs<'_>) -> Result<Self, ConfigError> {
        let settings = KNOWN.iter().map(Known::unset).collect();
        let mut config = Self { settings, commands: Vec::new(), files: Vec::new() };
        if let Some(path) = user_file(inputs.variable) {
            let exists = config.read_file(&path, &Source::User(path.clone()))?;
            config.files.push(ConfigFile { of: "user", path, exists });
        }
        let path = inputs.root.join(PROJECT_FILE);
        let exists = config.read_file(&path, &Source::Project(path.clone()))?;
        config.files.push(ConfigFile { of: "project", path, exists });
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

    /// All settings, in a fixed order.
    pub fn settings(&self) -> &[Setting] {
        &self.settings
    }

    /// The files that settings are read from, in their order.
    pub fn files(&self) -> &[ConfigFile] {
        &self.files
    }

    /// The names of commands, in the order of the files.
    pub fn commands(&self) -> &[CommandSetting] {
        &self.commands
    }

    /// The value of a setting as text.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.settings.iter().find(|setting| setting.key == key).and_then(|setting| setting.value.as_deref())
    }

    /// The value as a duration. Values were checked when they were read.
    pub fn span(&self, key: &str) -> Option<Duration> {
        self.text(key).and_then(|text| parse_span(text).ok())
    }

    /// The value as a TTL. Values were checked when they were read.
    pub fn ttl(&self, key: &str) -> Option<Ttl> {
        self.span(key).and_then(|span| Ttl::new(span).ok())
    }

    /// The value as a number. Values were checked when they were read.
    pub fn count(&self, key: &str) -> Option<u64> {
        self.text(key).and_then(|text| text.parse().ok())
    }

    fn read_file(&mut self, path: &Path, source: &Source) -> Result<bool, ConfigError> {
        let unreadable = |source| ConfigError::Unreadable { path: path.to_owned(), source };
        let text = match fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            // After `su` or `setpriv`, HOME may be the home of another user. Its settings are not for this user.
            Err(error)
                if error.kind() == io::ErrorKind::PermissionDenied && matches!(source, Source::User(_)) =>
            {
                return Ok(false);
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
        for (key, value) in flat(table) {
            if let (COMMANDS, toml::Value::Table(commands)) = (key.as_str(), &value) {
                self.set_commands(commands, source)?;
                continue;
            }
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
        Ok(true)
    }

    fn set_commands(&mut self, commands: &toml::Table, source: &Source) -> Result<(), ConfigError> {
        for (pattern, name) in commands {
            let refused = |reason: String| ConfigError::Value {
                key: COMMANDS,
                origin: source.to_string(),
                reason: format!("`{pattern}`: {reason}"),
            };
            if pattern.trim_matches(['*', ' ']).is_empty() {
                return Err(refused("it would fit every command".to_owned()));
            }
            let name = name.as_str().ok_or_else(|| refused("its name is no text".to_owned()))?;
            let name = name.parse().map_err(|error: IdError| refused(error.to_string()))?;
            self.commands.retain(|known| known.pattern != *pattern);
            self.commands.push(CommandSetting { pattern: pattern.clone(), name, source: source.clone() });
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

/// The settings of a file, with those of the table `[agents]` as `agents.KEY`.
fn flat(table: toml::Table) -> Vec<(String, toml::Value)> {
    let entries = table.into_iter().flat_map(|(key, value)| match value {
        toml::Value::Table(inner) if key == "agents" => {
            inner.into_iter().map(|(name, value)| (format!("agents.{name}"), value)).collect()
        }
        value => vec![(key, value)],
    });
    entries.collect()
}

fn user_file(variable: &dyn Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let set = |name: &str| variable(name).filter(|value| value.starts_with('/')).map(PathBuf::from);
    let folder = set("XDG_CONFIG_HOME").or_else(|| set("HOME").map(|home| home.join(".config")))?;
    Some(folder.join(USER_FILE))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(root: &Path, variables: &[(&str, &str)], flags: &Flags) -> Result<Config, ConfigError> {
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
    fn commands_have_names_and_the_project_wins() {
        let temp = tempfile::tempdir().unwrap();
        let home = temp.path().join("home");
        fs::create_dir_all(home.join(".config/lockkeeper")).unwrap();
        let user = "[agents.commands]\n\"cargo *\" = \"user\"\n\"make*\" = \"make\"\n";
        fs::write(home.join(".config/lockkeeper/config.toml"), user).unwrap();
        let project = "[agents]\nworking = \"1m\"\n[agents.commands]\n\"cargo *\" = \"build\"\n\"npm run dev\" = \"port/3000\"\n";
        fs::write(temp.path().join(PROJECT_FILE), project).unwrap();
        let config = load(temp.path(), &[("HOME", home.to_str().unwrap())], &[]).unwrap();
        let shown: Vec<(&str, &str)> = config
            .commands()
            .iter()
            .map(|command| (command.pattern.as_str(), command.name.as_str()))
            .collect();
        assert_eq!(shown, [("make*", "make"), ("cargo *", "build"), ("npm run dev", "port/3000")]);
        assert_eq!(config.text("agents.working"), Some("1m"));
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
            ("[agents.commands]\n\"a *\" = \"\"\n", "`a *`"),
            ("[agents.commands]\n\"a *\" = 3\n", "no text"),
            ("[agents.commands]\n\" * \" = \"x\"\n", "every command"),
            ("[agents]\ncommands = \"x\"\n", "unknown setting `agents.commands`"),
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
