//! What `init` changes: works out the new texts of files first, then writes them, so that a dry run shows the truth.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use thiserror::Error;

use super::command_line;
use super::entries::{self, Layout};
use super::exclude;
use super::folders::{Folders, Scope};
use super::record::{Record, Records};
use super::replace;
use super::settings_text::{TextError, with_entries, without_entries};
use crate::harness::Harness;

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
            Self::File(_) => "make the file readable and writable, then run `lockkeeper init` again",
            Self::Text(TextError::Comment(..)) => "remove the comment, then run `lockkeeper init` again",
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

/// Hooks of harnesses for one scope.
pub struct SetUp<'f> {
    folders: &'f Folders,
    scope: Scope,
    command: String,
    records: Records,
}

impl<'f> SetUp<'f> {
    /// `program` is the path of this program.
    pub fn new(folders: &'f Folders, scope: Scope, program: &str) -> Self {
        let command = match scope {
            Scope::User | Scope::Project => command_line::of_program(program),
            Scope::Shared => command_line::shared(),
        };
        Self { folders, scope, command, records: Records::new(folders.records(scope)) }
    }

    /// What has to change so that a harness calls the hook.
    ///
    /// # Errors
    ///
    /// The file cannot be read, does not parse, or belongs to somebody else.
    pub fn additions(&self, harness: Harness) -> Result<Vec<Change>, SetUpError> {
        let file = self.folders.file(harness, self.scope);
        if self.scope == Scope::Project && self.is_tracked(&file) {
            return Err(SetUpError::Tracked);
        }
        let before = replace::read(&file)?;
        let name = self.record_name(harness);
        let record = self.records.get(&name, &file);
        let folders = record.as_ref().map(|record| record.folders.clone()).unwrap_or_default();
        let record = record.filter(|record| Some(&record.after) == before.as_ref());
        let (former, after) = match entries::layout(harness) {
            Layout::Groups | Layout::Flat => {
                let former = match record {
                    Some(record) => record.before,
                    None => before.as_ref().map(|text| without(harness, text)).transpose()?,
                };
                // From the present text: what is current stays as it is.
                let after = with_entries(harness, before.as_deref().unwrap_or_default(), &self.command)?;
                (former, with_line_end(after, before.is_none()))
            }
            Layout::Plugin => {
                if before.as_deref().is_some_and(|text| !is_our_plugin(text)) {
                    return Err(SetUpError::Foreign);
                }
                (None, entries::plugin(&self.command))
            }
        };
        let mut changes = vec![Change {
            file: file.clone(),
            before,
            after: Some(after),
            record: Some(name),
            former,
            folders,
        }];
        changes.extend(self.exclusion(&file, |text, file| Some(exclude::with_file(text, file)))?);
        Ok(changes)
    }

    /// What has to change so that a harness calls the hook no more. Nothing if it does not call it.
    ///
    /// # Errors
    ///
    /// As for [`SetUp::additions`].
    pub fn removals(&self, harness: Harness) -> Result<Vec<Change>, SetUpError> {
        let file = self.folders.file(harness, self.scope);
        let name = self.record_name(harness);
        let record = self.records.get(&name, &file);
        let folders = record.as_ref().map(|record| record.folders.clone()).unwrap_or_default();
        let mut changes = Vec::new();
        if let Some(before) = replace::read(&file)? {
            let made_by_us = record.as_ref().is_some_and(|record| record.before.is_none());
            let after = match record.filter(|record| record.after == before) {
                Some(record) => Some(record.before),
                None => match entries::layout(harness) {
                    Layout::Plugin => is_our_plugin(&before).then_some(None),
                    Layout::Groups | Layout::Flat => without_entries(harness, &before)?
                        .map(|text| Some(text).filter(|text| !(made_by_us && is_empty_object(text)))),
                },
            };
            changes.extend(after.map(|after| Change {
                file: file.clone(),
                before: Some(before),
                after,
                record: Some(name),
                former: None,
                folders,
            }));
        }
        changes.extend(self.exclusion(&file, exclude::without_file)?);
        Ok(changes)
    }

    /// Whether the file of a harness is as [`SetUp::additions`] would write it.
    pub fn is_current(&self, harness: Harness) -> bool {
        self.additions(harness).is_ok_and(|changes| changes.iter().all(Change::is_nothing))
    }

    /// Writes a change. The record comes first: without it a crash would leave entries whose former text is lost.
    ///
    /// # Errors
    ///
    /// The file, its folder or the record cannot be written. Then the file is as before.
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

    /// Work trees share the folder of records, and each has its own files.
    fn record_name(&self, harness: Harness) -> String {
        let tree = self.folders.location().work_tree();
        let tree = tree.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        match self.scope {
            Scope::User => harness.kind().to_owned(),
            Scope::Project | Scope::Shared => format!("{}-{}-{tree}", harness.kind(), self.scope.word()),
        }
    }
}

/// The text without our entries.
fn without(harness: Harness, text: &str) -> Result<String, TextError> {
    Ok(without_entries(harness, text)?.unwrap_or_else(|| text.to_owned()))
}

fn with_line_end(text: String, is_new: bool) -> String {
    if is_new && !text.ends_with('\n') { text + "\n" } else { text }
}

fn is_empty_object(text: &str) -> bool {
    let compact: String = text.split_whitespace().collect();
    compact == "{}" || compact == r#"{"version":1}"#
}

/// Whether we have written a plugin that has our name.
fn is_our_plugin(text: &str) -> bool {
    entries::command_in_plugin(text).is_some_and(|command| command_line::is_ours(&command))
}
