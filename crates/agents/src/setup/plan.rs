//! What `init` changes: works out the new texts of files first, then writes them, so that a dry run shows the truth.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use thiserror::Error;

use super::command_line;
use super::entries::{self, Layout};
use super::exclude;
use super::folders::{Contents, Folders, Scope, SettingsFile};
use super::record::{Record, Records};
use super::replace;
use super::server::{with_server, without_server, words};
use super::settings_text::{TextError, with_entries, without_entries};

/// How often a change is worked out while other programs change the same file.
const MAX_ATTEMPTS: usize = 50;

/// Why a harness was not set up. Its file is as before.
#[derive(Debug, Error)]
pub enum SetUpError {
    /// The file cannot be read or written.
    #[error("{0}")]
    File(#[from] io::Error),
    /// The text of the file is left alone.
    #[error("{0}")]
    Text(#[from] TextError),
    /// A plugin with our name that somebody else wrote.
    #[error("it is not a file of lockkeeper")]
    Foreign,
    /// `--project` writes only what git does not track.
    #[error("git tracks it, and --project changes only files that git does not track")]
    Tracked,
}

impl SetUpError {
    /// What the user can do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::File(error) if replace::is_race(error) => "run `lockkeeper init` again",
            Self::File(_) => "make the file readable and writable, then run `lockkeeper init` again",
            Self::Text(TextError::Comment(..)) => "remove the comment, then run `lockkeeper init` again",
            Self::Text(TextError::OtherServer) => {
                "give the other server another name, then run `lockkeeper init` again"
            }
            Self::Text(_) => "correct the file, then run `lockkeeper init` again",
            Self::Foreign => "move the file away, then run `lockkeeper init` again",
            Self::Tracked => "use --shared, and commit the file",
        }
    }
}

/// The new text of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The file.
    pub file: PathBuf,
    /// Its text now. None: it does not exist.
    pub before: Option<String>,
    /// Its new text. None: it is removed.
    pub after: Option<String>,
    /// The name of its record.
    record: Option<String>,
    /// The text that `--remove` will give back.
    former: Option<String>,
    /// Folders that were made for it.
    folders: Vec<PathBuf>,
}

impl Change {
    /// Whether the file is already as it has to be.
    pub fn is_nothing(&self) -> bool {
        self.before == self.after
    }
}

/// Hooks and MCP server of harnesses for one scope.
pub struct SetUp<'f> {
    folders: &'f Folders,
    scope: Scope,
    /// The command line of the hook.
    command: String,
    /// The program of the MCP server.
    program: String,
    records: Records,
}

impl<'f> SetUp<'f> {
    /// `program` is the path of this program.
    pub fn new(folders: &'f Folders, scope: Scope, program: &str) -> Self {
        let (command, program) = match scope {
            Scope::User | Scope::Project => (command_line::of_program(program), program.to_owned()),
            Scope::Shared => (command_line::shared(), command_line::SHARED_PROGRAM.to_owned()),
        };
        Self { folders, scope, command, program, records: Records::new(folders.records(scope)) }
    }

    /// What has to change so that a file has our entries.
    ///
    /// # Errors
    ///
    /// The file cannot be read, does not parse, or belongs to somebody else.
    pub fn additions(&self, file: &SettingsFile) -> Result<Vec<Change>, SetUpError> {
        let path = &file.path;
        if self.scope == Scope::Project && self.is_tracked(path) {
            return Err(SetUpError::Tracked);
        }
        let before = replace::read(path)?;
        let name = self.record_name(file);
        let record = self.records.get(&name, path);
        let folders = record.as_ref().map(|record| record.folders.clone()).unwrap_or_default();
        let record = record.filter(|record| Some(&record.after) == before.as_ref());
        let record = record.or_else(|| self.records.of_text(path, before.as_deref()?));
        let (former, after) = if is_plugin(file) {
            if before.as_deref().is_some_and(|text| !is_our_plugin(text)) {
                return Err(SetUpError::Foreign);
            }
            (None, entries::plugin(&self.command))
        } else {
            let former = match record {
                Some(record) => record.before,
                None => {
                    let without = |text: &String| Ok(without(file, text)?.unwrap_or_else(|| text.clone()));
                    before.as_ref().map(without).transpose().map_err(SetUpError::Text)?
                }
            };
            // Made from the present text, so that entries which are current stay as they are.
            let after = self.with(file, before.as_deref().unwrap_or_default())?;
            (former, with_line_end(after, before.is_none()))
        };
        let (after, record) = (Some(after), Some(name));
        let mut changes = vec![Change { file: path.clone(), before, after, record, former, folders }];
        changes.extend(self.exclusion(path, |text, file| Some(exclude::with_file(text, file)))?);
        Ok(changes)
    }

    /// What has to change so that a file has our entries no more. Nothing if it has none.
    ///
    /// # Errors
    ///
    /// As for [`SetUp::additions`].
    pub fn removals(&self, file: &SettingsFile) -> Result<Vec<Change>, SetUpError> {
        let path = &file.path;
        let name = self.record_name(file);
        let record = self.records.get(&name, path);
        let folders = record.as_ref().map(|record| record.folders.clone()).unwrap_or_default();
        let mut changes = Vec::new();
        if let Some(before) = replace::read(path)? {
            let made_by_us = record.as_ref().is_some_and(|record| record.before.is_none());
            let record = record.filter(|record| record.after == before);
            let after = match record.or_else(|| self.records.of_text(path, &before)) {
                Some(record) => Some(record.before),
                None if is_plugin(file) => is_our_plugin(&before).then_some(None),
                None => without(file, &before)?
                    .map(|text| Some(text).filter(|text| !(made_by_us && is_empty(text)))),
            };
            let (file, before, record) = (path.clone(), Some(before), Some(name));
            changes.extend(after.map(|after| Change { file, before, after, record, former: None, folders }));
        }
        changes.extend(self.exclusion(path, exclude::without_file)?);
        Ok(changes)
    }

    /// Adds our entries to a file, or removes them. Works the change out again if another program was faster, such as `init` in another
    /// repository.
    ///
    /// # Errors
    ///
    /// As for [`SetUp::additions`] and [`SetUp::apply`].
    pub fn change(
        &self,
        file: &SettingsFile,
        removes: bool,
        is_dry: bool,
    ) -> Result<Vec<Change>, SetUpError> {
        let mut attempts = MAX_ATTEMPTS;
        loop {
            let changes = if removes { self.removals(file) } else { self.additions(file) }?;
            let applied = match is_dry {
                true => Ok(()),
                false => changes.iter().try_for_each(|change| self.apply(change, removes)),
            };
            attempts -= 1;
            match applied {
                Err(error) if attempts > 0 && replace::is_race(&error) => {}
                applied => return Ok(applied.map(|()| changes)?),
            }
        }
    }

    /// Whether a file is as [`SetUp::additions`] would write it.
    pub fn is_current(&self, file: &SettingsFile) -> bool {
        self.additions(file).is_ok_and(|changes| changes.iter().all(Change::is_nothing))
    }

    /// The words that start the MCP server.
    pub(crate) fn server_words(&self) -> Vec<String> {
        words(&self.program).map(str::to_owned).to_vec()
    }

    /// Writes a change. The record comes first: without it a crash would leave entries whose former text is lost.
    ///
    /// # Errors
    ///
    /// The file, its folder or the record cannot be written. The file is then as before, unless only its record failed after it.
    pub fn apply(&self, change: &Change, removes: bool) -> io::Result<()> {
        let Change { file, before, after, record, former, folders } = change;
        if let (Some(name), Some(after), false) = (record, after, removes) {
            let record = Record {
                file: file.clone(),
                before: former.clone(),
                after: after.clone(),
                folders: folders.clone(),
            };
            self.records.put(name, &record)?;
        }
        if change.is_nothing() {
            return Ok(());
        }
        match (before, after) {
            (before, Some(after)) => {
                let made = replace::write(file, before.as_deref(), after)?;
                if let Some(name) = record.as_ref().filter(|_| !made.is_empty() && !removes) {
                    let (file, before, after) = (file.clone(), former.clone(), after.clone());
                    self.records.put(name, &Record { file, before, after, folders: made })?;
                }
            }
            (Some(before), None) => replace::remove(file, before, folders)?,
            (None, None) => {}
        }
        if let Some(name) = record.as_ref().filter(|_| removes) {
            self.records.remove_all(file)?;
            self.records.remove(name)?;
        }
        Ok(())
    }

    /// The change of git's list of ignored files, for files that git must not track.
    fn exclusion(
        &self,
        file: &Path,
        edit: impl Fn(&str, &str) -> Option<String>,
    ) -> Result<Option<Change>, SetUpError> {
        let Some(list) = self.folders.exclude_file().filter(|_| self.scope == Scope::Project) else {
            return Ok(None);
        };
        let Some(below) = file.strip_prefix(&self.folders.location().root).ok().and_then(Path::to_str) else {
            return Ok(None);
        };
        let before = replace::read(&list)?;
        let after = edit(before.as_deref().unwrap_or_default(), below);
        let change = after.map(|after| Change {
            file: list,
            before,
            after: Some(after),
            record: None,
            former: None,
            folders: Vec::new(),
        });
        Ok(change.filter(|change| !change.is_nothing()))
    }

    fn is_tracked(&self, file: &Path) -> bool {
        let mut git = Command::new("git");
        git.arg("-C").arg(&self.folders.location().root);
        git.args(["ls-files", "--error-unmatch", "--"]).arg(file);
        git.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        git.status().is_ok_and(|status| status.success())
    }

    /// The name of the record of a file. Work trees share the folder of records, so the name contains the work tree.
    fn record_name(&self, file: &SettingsFile) -> String {
        let tree = self.folders.location().work_tree();
        let tree = tree.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        let kind = file.harness.kind();
        let kind = if file.has_hooks() { kind.to_owned() } else { format!("{kind}-mcp") };
        match self.scope {
            Scope::User => kind,
            Scope::Project | Scope::Shared => format!("{kind}-{}-{tree}", self.scope.word()),
        }
    }

    /// The text with our entries.
    fn with(&self, file: &SettingsFile, text: &str) -> Result<String, TextError> {
        let harness = file.harness;
        match file.contents {
            Contents::Hooks => with_entries(harness, text, &self.command),
            Contents::Server => with_server(harness, text, &self.program),
            Contents::Both => {
                with_server(harness, &with_entries(harness, text, &self.command)?, &self.program)
            }
        }
    }
}

/// The text without our entries. None: there are none.
fn without(file: &SettingsFile, text: &str) -> Result<Option<String>, TextError> {
    let harness = file.harness;
    match file.contents {
        Contents::Hooks => without_entries(harness, text),
        Contents::Server => without_server(harness, text),
        Contents::Both => {
            let without_hooks = without_entries(harness, text)?;
            let without_server = without_server(harness, without_hooks.as_deref().unwrap_or(text))?;
            Ok(without_server.or(without_hooks))
        }
    }
}

/// Whether the file is a plugin that is ours alone.
fn is_plugin(file: &SettingsFile) -> bool {
    file.has_hooks() && entries::layout(file.harness) == Layout::Plugin
}

fn with_line_end(text: String, is_new: bool) -> String {
    if is_new && !text.ends_with('\n') { text + "\n" } else { text }
}

/// Whether settings have no entry besides a version.
fn is_empty(text: &str) -> bool {
    let compact: String = text.split_whitespace().collect();
    compact.is_empty() || compact == "{}" || compact == r#"{"version":1}"#
}

/// Whether we have written a plugin that has our name.
fn is_our_plugin(text: &str) -> bool {
    entries::command_in_plugin(text).is_some_and(|command| command_line::is_ours(&command))
}
