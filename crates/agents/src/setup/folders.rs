//! Where harnesses keep their settings, for one user and for one project, and which harnesses are here.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use lockkeeper_engine::location::{Location, LocationSource};
use serde_json::Value;

use crate::harness::Harness;

/// For whom hooks are set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The user, in all repositories that take part.
    User,
    /// One checkout: files that git does not track.
    Project,
    /// Everybody who works on the project: files that are to be committed.
    Shared,
}

impl Scope {
    /// The word in records and JSON.
    pub const fn word(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Project => "project",
            Self::Shared => "shared",
        }
    }
}

/// What a file of a harness has to say about us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// Hooks.
    Hooks,
    /// The MCP server.
    Server,
    /// Both.
    Both,
}

/// A file that a harness reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsFile {
    /// The harness.
    pub harness: Harness,
    /// Where it is.
    pub path: PathBuf,
    /// What is in it.
    pub contents: Contents,
}

impl SettingsFile {
    /// Whether it has the hooks.
    pub fn has_hooks(&self) -> bool {
        self.contents != Contents::Server
    }

    /// Whether it has the MCP server.
    pub fn has_server(&self) -> bool {
        self.contents != Contents::Hooks
    }
}

/// The folders that settings are in.
#[derive(Clone, Debug)]
pub struct Folders {
    home: PathBuf,
    claude: PathBuf,
    claude_servers: PathBuf,
    codex: PathBuf,
    gemini: PathBuf,
    copilot: PathBuf,
    opencode: PathBuf,
    qwen: PathBuf,
    user_state: PathBuf,
    search_path: Option<OsString>,
    location: Location,
}

impl Folders {
    /// The folders of a user and of a project. `variable` looks up an environment variable: harnesses let users move their
    /// folders. None without a home folder.
    pub fn new(variable: impl Fn(&str) -> Option<OsString>, location: &Location) -> Option<Self> {
        let absolute = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let home = absolute("HOME")?;
        let or_home = |name: &str, folder: &str| absolute(name).unwrap_or_else(|| home.join(folder));
        Some(Self {
            claude: or_home("CLAUDE_CONFIG_DIR", ".claude"),
            claude_servers: or_home("CLAUDE_CONFIG_DIR", "").join(".claude.json"),
            codex: or_home("CODEX_HOME", ".codex"),
            gemini: absolute("GEMINI_CLI_HOME").unwrap_or_else(|| home.clone()).join(".gemini"),
            copilot: or_home("COPILOT_HOME", ".copilot"),
            opencode: or_home("XDG_CONFIG_HOME", ".config").join("opencode"),
            qwen: or_home("QWEN_HOME", ".qwen"),
            user_state: or_home("XDG_STATE_HOME", ".local/state").join("lockkeeper"),
            search_path: variable("PATH"),
            location: location.clone(),
            home,
        })
    }

    /// Whether a harness is here: its folder or its program exists.
    pub fn has(&self, harness: Harness) -> bool {
        self.of_user(harness).is_dir() || self.program(harness).is_some()
    }

    /// The program of a harness in the search path.
    pub fn program(&self, harness: Harness) -> Option<PathBuf> {
        let names: &[&str] = match harness {
            Harness::Cursor => &["cursor", "cursor-agent"],
            other => &[other.kind()],
        };
        let folders: Vec<PathBuf> = self.search_path.iter().flat_map(std::env::split_paths).collect();
        let mut paths = folders.iter().flat_map(|folder| names.iter().map(|name| folder.join(name)));
        paths.find(|path| path.is_absolute() && path.is_file())
    }

    /// The file with the hooks of a harness.
    pub fn file(&self, harness: Harness, scope: Scope) -> PathBuf {
        let (user, project) = match harness {
            Harness::Claude if scope == Scope::Project => ("settings.json", ".claude/settings.local.json"),
            Harness::Claude => ("settings.json", ".claude/settings.json"),
            Harness::Codex => ("hooks.json", ".codex/hooks.json"),
            Harness::Gemini => ("settings.json", ".gemini/settings.json"),
            Harness::Copilot => ("hooks/lockkeeper.json", ".github/hooks/lockkeeper.json"),
            Harness::OpenCode => ("plugins/lockkeeper.js", ".opencode/plugins/lockkeeper.js"),
            Harness::Qwen => ("settings.json", ".qwen/settings.json"),
            Harness::Cursor => ("hooks.json", ".cursor/hooks.json"),
            Harness::Windsurf => ("hooks.json", ".windsurf/hooks.json"),
        };
        match scope {
            Scope::User => self.of_user(harness).join(user),
            Scope::Project | Scope::Shared => self.location.root.join(project),
        }
    }

    /// The files of a harness: first the one with the hooks, then that with the MCP server if it is another one.
    pub fn files(&self, harness: Harness, scope: Scope) -> Vec<SettingsFile> {
        let file = |path, contents| SettingsFile { harness, path, contents };
        let (user, project) = match harness {
            Harness::Gemini | Harness::Qwen => return vec![file(self.file(harness, scope), Contents::Both)],
            Harness::Claude => (self.claude_servers.clone(), Some(".mcp.json")),
            Harness::Codex => (self.codex_config(), Some(".codex/config.toml")),
            Harness::Copilot => (self.copilot.join("mcp-config.json"), Some(".github/mcp.json")),
            Harness::OpenCode => (opencode_config(&self.opencode), None),
            Harness::Cursor => (self.of_user(harness).join("mcp.json"), Some(".cursor/mcp.json")),
            // It has no servers for one project.
            Harness::Windsurf => (self.of_user(harness).join("mcp_config.json"), None),
        };
        let servers = match (scope, harness) {
            (Scope::User, _) => Some(user),
            (Scope::Project | Scope::Shared, Harness::OpenCode) => Some(opencode_config(&self.location.root)),
            (Scope::Project | Scope::Shared, _) => project.map(|below| self.location.root.join(below)),
        };
        let mut files = vec![file(self.file(harness, scope), Contents::Hooks)];
        files.extend(servers.map(|path| file(path, Contents::Server)));
        files
    }

    /// The scopes whose files a harness reads. Claude has one file more than the others.
    pub fn scopes(harness: Harness) -> &'static [Scope] {
        match harness {
            Harness::Claude => &[Scope::User, Scope::Project, Scope::Shared],
            _ => &[Scope::User, Scope::Project],
        }
    }

    /// Where our package for a harness is, if the user has installed it with the harness: see [`super::package`].
    pub(crate) fn package(&self, harness: Harness) -> Option<PathBuf> {
        match harness {
            Harness::Claude => {
                let file = self.file(harness, Scope::User);
                let settings: Value = serde_json::from_str(&std::fs::read_to_string(&file).ok()?).ok()?;
                let plugins = settings.get("enabledPlugins").and_then(Value::as_object)?;
                let is_on = |(name, on): (&String, &Value)| name.starts_with("lockkeeper@") && *on == true;
                plugins.iter().any(is_on).then_some(file)
            }
            Harness::Gemini => {
                let file = self.gemini.join("extensions/lockkeeper/gemini-extension.json");
                file.is_file().then_some(file)
            }
            _ => None,
        }
    }

    /// Codex' other settings.
    pub fn codex_config(&self) -> PathBuf {
        self.codex.join("config.toml")
    }

    /// The project.
    pub fn location(&self) -> &Location {
        &self.location
    }

    /// The list of files that git ignores in this clone. None outside of git.
    pub fn exclude_file(&self) -> Option<PathBuf> {
        let common = self.location.state.parent().filter(|_| self.location.source == LocationSource::Git);
        common.map(|common| common.join("info/exclude"))
    }

    /// Where the records of changed files are.
    pub fn records(&self, scope: Scope) -> PathBuf {
        match scope {
            Scope::User => self.user_state.join("setup"),
            Scope::Project | Scope::Shared => self.location.state.join("setup"),
        }
    }

    /// A path as people write it.
    pub fn shown(&self, path: &Path) -> String {
        match (path.strip_prefix(&self.location.root), path.strip_prefix(&self.home)) {
            (Ok(below), _) => below.display().to_string(),
            (_, Ok(below)) => format!("~/{}", below.display()),
            _ => path.display().to_string(),
        }
    }

    fn of_user(&self, harness: Harness) -> PathBuf {
        match harness {
            Harness::Claude => self.claude.clone(),
            Harness::Codex => self.codex.clone(),
            Harness::Gemini => self.gemini.clone(),
            Harness::Copilot => self.copilot.clone(),
            Harness::OpenCode => self.opencode.clone(),
            Harness::Qwen => self.qwen.clone(),
            Harness::Cursor => self.home.join(".cursor"),
            Harness::Windsurf => self.home.join(".codeium/windsurf"),
        }
    }
}

/// OpenCode reads either name.
fn opencode_config(folder: &Path) -> PathBuf {
    let with_comments = folder.join("opencode.jsonc");
    if with_comments.exists() { with_comments } else { folder.join("opencode.json") }
}
