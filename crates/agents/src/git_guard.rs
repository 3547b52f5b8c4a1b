//! Set-up of the git guard: hooks of one repository that call `lockkeeper git-hook EVENT`.
//!
//! From git 2.54 on they are settings of the repository (`hook.lockkeeper-EVENT.event` and `.command`), beside which all other hooks run
//! as before. Before that they are files in the hooks folder, in front of the hooks that are there. Folders that belong to
//! somebody else stay as they are: one that the user or the machine has set for all repositories, and one that is tracked.

mod files;

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::git::{Git, GitError};
use crate::git_hook::GitEvent;

/// The first version of git that reads hooks from its settings.
const FIRST_WITH_SETTINGS: (u32, u32) = (2, 54);

/// Where the guard is, or would be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GuardPlace {
    /// The settings of the repository.
    Settings,
    /// This folder.
    Folder(PathBuf),
}

/// The guard of one repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardState {
    /// Where it is, or would be.
    pub place: GuardPlace,
    /// The hooks that call this program.
    pub present: Vec<GitEvent>,
    /// The program that they call, if all call the same.
    pub program: Option<String>,
}

impl GuardState {
    /// Whether all hooks are there.
    pub fn is_complete(&self) -> bool {
        self.present.len() == GitEvent::ALL.len()
    }
}

/// Why the guard was not set up. Nothing was changed.
#[derive(Debug, Error)]
pub enum GuardError {
    /// The hooks folder belongs to all repositories.
    #[error("core.hooksPath is set to {} for all repositories ({scope})", folder.display())]
    Global {
        /// The folder.
        folder: PathBuf,
        /// `global`, `system` or `command`.
        scope: String,
    },
    /// The hooks folder is tracked, so that a change would be committed.
    #[error("the hooks folder {} is tracked by git", .0.display())]
    Tracked(PathBuf),
    /// The path of the program cannot be written into a hook.
    #[error("the path of the program has characters that a hook cannot have: {0:?}")]
    Program(String),
    /// Git failed.
    #[error(transparent)]
    Git(#[from] GitError),
    /// A file could not be read or written.
    #[error("cannot change {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

impl GuardError {
    /// What the user can do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Global { .. } => {
                "use git 2.54 or newer, or set core.hooksPath for this repository alone".to_owned()
            }
            Self::Tracked(_) => {
                format!(
                    "use git 2.54 or newer, or add this line to each of these hooks yourself: `{}`",
                    files::shared_line()
                )
            }
            Self::Program(_) => "install the program at another path".to_owned(),
            Self::Git(_) => "check that git is installed, and that this is a work tree".to_owned(),
            Self::File { .. } => "check the permissions of the hooks folder".to_owned(),
        }
    }
}

/// Sets the guard up. `program` is the absolute path of this program. Doing it twice changes nothing.
pub fn install(repository: &Path, program: &str) -> Result<GuardState, GuardError> {
    if program.contains(['\n', '\0']) || program.is_empty() {
        return Err(GuardError::Program(program.to_owned()));
    }
    let git = Git::find(repository)?;
    let now = look(&git)?;
    match &now.place {
        GuardPlace::Settings => {
            for event in GitEvent::ALL {
                let (name, command) = (event.name(), files::command(program, event));
                set(&git, &format!("hook.lockkeeper-{name}.event"), name)?;
                set(&git, &format!("hook.lockkeeper-{name}.command"), &command)?;
            }
        }
        GuardPlace::Folder(folder) => {
            match refuse_foreign(&git, folder) {
                // The project has the lines.
                Err(GuardError::Tracked(_)) if now.is_complete() => return Ok(now),
                refused => refused?,
            }
            files::install(folder, program)?;
        }
    }
    look(&git)
}

/// Removes the guard. The hooks of others get their former bytes back.
pub fn remove(repository: &Path) -> Result<GuardState, GuardError> {
    let git = Git::find(repository)?;
    for event in GitEvent::ALL {
        let section = format!("hook.lockkeeper-{}", event.name());
        if git.line(&["config", "--local", "--get", &format!("{section}.event")]).is_some() {
            git.run(None, &["config", "--local", "--remove-section", &section], b"")?;
        }
    }
    // An older git may have been in use when the guard was installed: then its hook files are there as well.
    let folder = hooks_folder(&git)?;
    if refuse_foreign(&git, &folder).is_ok() {
        files::remove(&folder)?;
    }
    look(&git)
}

/// Looks at the guard, and changes nothing.
pub fn state(repository: &Path) -> Result<GuardState, GuardError> {
    look(&Git::find(repository)?)
}

/// Why the guard cannot be set up in this repository; none if it can.
pub fn obstacle(repository: &Path) -> Option<GuardError> {
    let git = match Git::find(repository) {
        Ok(git) => git,
        Err(error) => return Some(error.into()),
    };
    match look(&git) {
        Ok(GuardState { place: GuardPlace::Folder(folder), .. }) => refuse_foreign(&git, &folder).err(),
        Ok(GuardState { place: GuardPlace::Settings, .. }) => None,
        Err(error) => Some(error),
    }
}

fn look(git: &Git) -> Result<GuardState, GuardError> {
    let in_settings = version(git).is_some_and(|version| version >= FIRST_WITH_SETTINGS);
    let place = if in_settings { GuardPlace::Settings } else { GuardPlace::Folder(hooks_folder(git)?) };
    let mut programs = Vec::new();
    let mut present = Vec::new();
    for event in GitEvent::ALL {
        let line = match &place {
            GuardPlace::Settings => {
                let key = |end: &str| format!("hook.lockkeeper-{}.{end}", event.name());
                let is_on = git.line(&["config", "--get", &key("event")]).as_deref() == Some(event.name());
                git.line(&["config", "--get", &key("command")]).filter(|_| is_on)
            }
            GuardPlace::Folder(folder) => files::line(folder, event),
        };
        if let Some(program) = line.and_then(|line| files::program(&line, event)) {
            present.push(event);
            programs.push(program);
        }
    }
    programs.dedup();
    let program = match programs.as_slice() {
        [one] => Some(one.clone()),
        _ => None,
    };
    Ok(GuardState { place, present, program })
}

fn set(git: &Git, key: &str, value: &str) -> Result<(), GuardError> {
    if git.line(&["config", "--local", "--get", key]).as_deref() != Some(value) {
        git.run(None, &["config", "--local", key, value], b"")?;
    }
    Ok(())
}

/// `git version 2.54.0 (Apple Git-1)` as 2 and 54.
fn version(git: &Git) -> Option<(u32, u32)> {
    let text = git.line(&["version"])?;
    let mut numbers = text.split(' ').nth(2)?.split('.').map(|part| part.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

fn hooks_folder(git: &Git) -> Result<PathBuf, GuardError> {
    let text = git.run(None, &["rev-parse", "--git-path", "hooks"], b"")?;
    let text = text.strip_suffix(b"\n").unwrap_or(&text);
    Ok(git.root.join(crate::git::path_text(text)))
}

/// Refuses folders that are not of this repository alone, or that git tracks.
fn refuse_foreign(git: &Git, folder: &Path) -> Result<(), GuardError> {
    if let Some(found) = git.line(&["config", "--show-scope", "--get", "core.hooksPath"]) {
        let scope = found.split_whitespace().next().unwrap_or_default().to_owned();
        if !matches!(scope.as_str(), "local" | "worktree") {
            return Err(GuardError::Global { folder: folder.to_owned(), scope });
        }
    }
    let real = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    if let Ok(inside) = real.strip_prefix(&git.root)
        && let Some(inside) = inside.to_str().filter(|inside| !inside.starts_with(".git"))
        && git
            .line(&["--literal-pathspecs", "ls-files", "--", if inside.is_empty() { "." } else { inside }])
            .is_some()
    {
        return Err(GuardError::Tracked(folder.to_owned()));
    }
    Ok(())
}
