//! Command lines of git: which of them write the index.
//!
//! Two commands that write the index at the same time fail: git takes `index.lock` and does not wait for it. A wrapper asks this
//! module whether a command has to wait for its turn.

mod tables;

use std::ffi::{OsStr, OsString};

use self::tables::{COMMIT_VALUES, READING, TAKES_MORE, WITH_VALUE, WRITING};

/// What a command does with the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexUse {
    /// It leaves the index alone.
    Reads,
    /// It writes the index.
    Writes,
    /// It is no command of git itself: an alias, or a program such as `git-flow`.
    Unknown,
}

/// A command line of git, without the name of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GitCommand<'a> {
    /// The options before the command.
    pub options: &'a [OsString],
    /// The command.
    pub name: Option<&'a OsStr>,
    /// Its arguments.
    pub arguments: &'a [OsString],
}

impl<'a> GitCommand<'a> {
    /// Splits a command line.
    pub fn parse(words: &'a [OsString]) -> Self {
        let mut at = 0;
        while let Some(option) =
            words.get(at).and_then(|word| word.to_str()).filter(|word| word.starts_with('-'))
        {
            at += 1 + usize::from(WITH_VALUE.contains(&option));
        }
        let at = at.min(words.len());
        let (options, rest) = words.split_at(at);
        match rest.split_first() {
            Some((name, arguments)) => Self { options, name: Some(name), arguments },
            None => Self { options, name: None, arguments: rest },
        }
    }

    /// Returns the folders of `-C`, each relative to the one before.
    pub fn folders(&self) -> impl Iterator<Item = &'a OsStr> {
        self.values("-C").filter(|folder| !folder.is_empty())
    }

    /// Returns the value of `--git-dir`.
    pub fn git_dir(&self) -> Option<&'a OsStr> {
        let joined =
            self.options.iter().filter_map(|word| word.to_str()?.strip_prefix("--git-dir=").map(OsStr::new));
        self.values("--git-dir").chain(joined).last()
    }

    /// Says what the command does with the index.
    pub fn index_use(&self) -> IndexUse {
        let has = |words: &[&str]| self.arguments.iter().any(|word| words.iter().any(|known| word == known));
        let first = self.arguments.first().and_then(|word| word.to_str());
        // Without a command git prints something and ends.
        let Some(name) = self.name else { return IndexUse::Reads };
        if has(&["--help", "-h"]) {
            return IndexUse::Reads;
        }
        let writes = |writes: bool| if writes { IndexUse::Writes } else { IndexUse::Reads };
        match name.to_str() {
            None => IndexUse::Unknown,
            Some("apply") => writes(has(&["--index", "--cached", "-3", "--3way", "-N", "--intent-to-add"])),
            Some("stash") => writes(!matches!(first, Some("list" | "show" | "drop" | "clear" | "store"))),
            Some("submodule") => {
                writes(!matches!(first, None | Some("status" | "summary" | "foreach" | "sync" | "--quiet")))
            }
            Some("version") => IndexUse::Reads,
            Some(name) if WRITING.contains(&name) => IndexUse::Writes,
            Some(name) if READING.contains(&name) => IndexUse::Reads,
            Some(_) => IndexUse::Unknown,
        }
    }

    /// Says whether it is a `commit` of exactly what is staged: without paths, `-a` and the like.
    pub fn commits_staged(&self) -> bool {
        self.name.is_some_and(|name| name == "commit") && names_no_paths(self.arguments)
    }

    /// Says whether it names the git folder or the work tree itself.
    pub fn names_work_tree(&self) -> bool {
        let names = |word: &str| ["--git-dir", "--work-tree"].iter().any(|option| word.starts_with(option));
        self.options.iter().any(|word| word.to_str().is_some_and(names))
    }

    fn values(&self, option: &str) -> impl Iterator<Item = &'a OsStr> {
        let mut at = 0;
        let mut found = Vec::new();
        while let Some(word) = self.options.get(at) {
            let takes = word.to_str().is_some_and(|word| WITH_VALUE.contains(&word));
            if takes && word == option {
                found.extend(self.options.get(at + 1).map(OsString::as_os_str));
            }
            at += 1 + usize::from(takes);
        }
        found.into_iter()
    }
}

/// Says whether arguments of `commit` name neither paths nor an option that takes more than what is staged.
fn names_no_paths(arguments: &[OsString]) -> bool {
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let Some(word) = word.to_str() else { return false };
        if word == "--" {
            return words.next().is_none();
        }
        if word.starts_with("--") {
            let name = word.split_once('=').map_or(word, |(name, _)| name);
            if TAKES_MORE.contains(&name) {
                return false;
            }
            if COMMIT_VALUES.contains(&word) {
                words.next();
            }
            continue;
        }
        let Some(letters) = word.strip_prefix('-').filter(|letters| !letters.is_empty()) else {
            return false;
        };
        for (at, letter) in letters.char_indices() {
            match letter {
                'a' | 'i' | 'o' | 'p' => return false,
                'C' | 'F' | 'c' | 'm' | 't' => {
                    if at + 1 == letters.len() {
                        words.next();
                    }
                    break;
                }
                // The rest is the value.
                'S' | 'u' => break,
                _ => {}
            }
        }
    }
    true
}

/// What an alias of git stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Alias {
    /// Another command with arguments.
    Command(Vec<OsString>),
    /// A line for the shell, and whether it names a command that writes the index.
    Shell(IndexUse),
}

/// Reads the value of `alias.NAME`.
pub fn alias(value: &str) -> Alias {
    match value.trim().strip_prefix('!') {
        Some(line) => {
            let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '-');
            let writes =
                words.any(|word| WRITING.contains(&word) || matches!(word, "stash" | "apply" | "submodule"));
            Alias::Shell(if writes { IndexUse::Writes } else { IndexUse::Reads })
        }
        None => Alias::Command(value.split_whitespace().map(OsString::from).collect()),
    }
}

#[cfg(test)]
mod tests;
