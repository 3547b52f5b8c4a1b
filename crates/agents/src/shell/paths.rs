//! Paths of a script: what a word means as a path, the working folder, and the folders and links that the script makes.

use std::path::{Path, PathBuf};

use lockkeeper_core::pattern::Pattern;

use super::reader::{Extent, Reader};
use super::state::State;
use super::value::{Value, escaped};
use crate::place::{Entry, join, lexical};
use crate::writes::Target;

/// A script makes at most this many links; others are not followed.
const MAX_LINKS: usize = 32;
/// A folder with more entries than this is not listed.
const MAX_FILES: usize = 200;
/// Listing folders costs as many steps as this many bytes of text.
const LISTING_BYTES: usize = 64 * 1024;

impl Reader<'_> {
    /// Notes a write, also through the links that this script made.
    pub(super) fn write(&mut self, value: &Value, state: &State, extent: Extent) {
        if let Ok(Some(target)) = self.target(value, state, extent) {
            self.linked(&target).into_iter().for_each(|target| self.writes.add(target));
        }
        self.write_name(value, state, extent);
    }

    /// Notes that a name is removed or gets another file. What a link leads to stays as it is.
    pub(super) fn write_name(&mut self, value: &Value, state: &State, extent: Extent) {
        match self.target(value, state, extent) {
            Ok(Some(target)) => self.writes.add(target),
            Ok(None) => {}
            Err(why) => self.writes.not_known(why),
        }
    }

    /// Notes that a name leads to another path from now on: a symlink, or a second name of a file.
    pub(super) fn link(&mut self, name: &Path, leads_to: &Path) {
        if self.links.len() < MAX_LINKS {
            self.links.push((lexical(name), lexical(leads_to)));
        }
    }

    /// What a target also means by the links of this script.
    fn linked(&self, target: &Target) -> Vec<Target> {
        let (path, extent) = match target {
            Target::File(path) => (lexical(path), Extent::File),
            Target::Below(path) => (lexical(path), Extent::Below),
            Target::Pattern(_) => return Vec::new(),
        };
        let through = |(name, leads_to): &(PathBuf, PathBuf)| {
            let rest = path.strip_prefix(name).ok()?;
            let path = if rest.as_os_str().is_empty() { leads_to.clone() } else { leads_to.join(rest) };
            Some(if extent == Extent::File { Target::File(path) } else { Target::Below(path) })
        };
        self.links.iter().filter_map(through).collect()
    }

    /// The target that a value means. `None`: a device, which nobody owns.
    pub(super) fn target(
        &self,
        value: &Value,
        state: &State,
        extent: Extent,
    ) -> Result<Option<Target>, &'static str> {
        let folder = |text: &str| match &state.cwd {
            Some(cwd) => Ok(cwd.as_path()),
            None if text.starts_with('/') => Ok(Path::new("/")),
            None => Err("a path in a folder that is not known before"),
        };
        match value {
            Value::Text(text) if text.is_empty() || text.contains('\0') => Ok(None),
            Value::Text(text) => {
                let path = without_process(join(folder(text)?, text), state)
                    .ok_or("a path in a folder that is not known before")?;
                if path.starts_with("/dev") || path.starts_with("/proc") {
                    return Ok(None);
                }
                Ok(Some(if extent == Extent::File { Target::File(path) } else { Target::Below(path) }))
            }
            Value::Pattern(pattern) => {
                let cwd = folder(pattern)?.to_str().ok_or("a folder whose name is not UTF-8")?;
                let below = if extent == Extent::Below && !pattern.ends_with('/') { "/" } else { "" };
                let whole = match pattern.starts_with('/') {
                    true => format!("{pattern}{below}"),
                    false => format!("{}/{pattern}{below}", escaped(cwd.trim_end_matches('/'))),
                };
                without_parents(&whole).map(|pattern| Some(Target::Pattern(pattern)))
            }
            Value::Unknown => Err("a path that only the shell knows"),
        }
    }

    /// Changes the working folder, as `cd` does: by the text alone.
    pub(super) fn change_folder(&mut self, value: Option<&Value>, state: &mut State) {
        let cwd = match value {
            None => self.place.home.map(Path::to_path_buf),
            Some(Value::Text(text)) if text.starts_with('/') => {
                without_process(PathBuf::from(text), state).map(|path| lexical(&path))
            }
            Some(Value::Text(text)) if text == "-" => match state.values("OLDPWD").as_slice() {
                [Value::Text(old)] => Some(PathBuf::from(old)),
                _ => None,
            },
            Some(Value::Text(text)) => state.cwd.as_deref().map(|cwd| lexical(&join(cwd, text))),
            Some(Value::Pattern(pattern)) => self.only_folder(pattern, state),
            Some(Value::Unknown) => None,
        };
        let old = std::mem::replace(&mut state.cwd, cwd);
        let old = old.as_deref().and_then(Path::to_str).map(str::to_owned);
        state.set("OLDPWD", vec![old.map_or(Value::Unknown, Value::Text)]);
    }

    /// The only folder that matches a pattern. With several, `cd` fails.
    fn only_folder(&mut self, pattern: &str, state: &State) -> Option<PathBuf> {
        // A folder may have very many entries.
        self.spend(LISTING_BYTES);
        let start = if pattern.starts_with('/') { Path::new("/") } else { state.cwd.as_deref()? };
        let mut folders = vec![start.to_path_buf()];
        for part in pattern.split('/').filter(|part| !part.is_empty()) {
            if !part.contains(['*', '?', '[']) {
                let name = part.replace('\\', "");
                folders.iter_mut().for_each(|folder| *folder = lexical(&join(folder, &name)));
                continue;
            }
            let matching: Pattern = part.parse().ok()?;
            // A wildcard does not match a leading dot.
            let fits =
                |name: &String| part.starts_with('.') == name.starts_with('.') && matching.matches(name);
            let below = |folder: &PathBuf| {
                let names = (self.place.names)(folder).into_iter().filter(fits);
                names.map(|name| folder.join(name)).collect::<Vec<_>>()
            };
            folders =
                folders.iter().flat_map(below).filter(|folder| self.is_folder(folder)).take(2).collect();
        }
        match folders.as_slice() {
            [only] => Some(only.clone()),
            _ => None,
        }
    }

    /// Whether a path is a folder, now or by what the script did before.
    pub(super) fn is_folder(&self, path: &Path) -> bool {
        let path = lexical(path);
        let leads = |(name, leads_to): &(PathBuf, PathBuf)| {
            Some(lexical(&leads_to.join(path.strip_prefix(name).ok()?)))
                .filter(|path| (self.place.entry)(path).is_some())
        };
        let is_folder = |path: &Path| (self.place.entry)(path) == Some(Entry::Folder);
        self.made.contains(&path)
            || is_folder(&path)
            || self.links.iter().filter_map(leads).any(|path| is_folder(&path))
    }

    /// Whether the script finds the folder where it is now: it is there, and no command before removes it.
    pub(super) fn is_surely_folder(&self, path: &Path) -> bool {
        let path = lexical(path);
        let removes = |target: &Target| match target {
            Target::File(file) => *file == path && !self.links.iter().any(|(name, _)| *name == path),
            Target::Below(folder) => path.starts_with(folder),
            Target::Pattern(pattern) => pattern.ends_with('/'),
        };
        let is_known = self.place.cwd.starts_with(&path) || self.place.home == Some(&*path);
        self.made.contains(&path)
            || ((is_known || self.is_folder(&path)) && !self.writes.paths.iter().any(removes))
    }

    /// Whether the script writes this file before, or something in this folder, as far as that is known.
    pub(super) fn may_have_written(&self, path: &Path) -> bool {
        let path = lexical(path);
        let may = |target: &Target| match target {
            Target::File(file) => file.starts_with(&path),
            Target::Below(folder) => path.starts_with(folder) || folder.starts_with(&path),
            Target::Pattern(_) => true,
        };
        !self.writes.unknown.is_empty() || self.writes.paths.iter().any(may)
    }

    /// The files below a folder, as paths from there. `None`: there are none, or too many, or the script may change them before.
    pub(super) fn files_below(&mut self, folder: &Path) -> Option<Vec<String>> {
        let folder = lexical(folder);
        if self.may_have_written(&folder) {
            return None;
        }
        let (mut files, mut folders) = (Vec::new(), vec![String::new()]);
        while let Some(below) = folders.pop() {
            self.spend(LISTING_BYTES / 8);
            for name in (self.place.names)(&lexical(&folder.join(&below))) {
                let name = if below.is_empty() { name } else { format!("{below}/{name}") };
                let is_folder = (self.place.entry)(&folder.join(&name)) == Some(Entry::Folder);
                if is_folder {
                    folders.push(name);
                } else {
                    files.push(name);
                }
                if files.len() + folders.len() > MAX_FILES {
                    return None;
                }
            }
        }
        Some(files).filter(|files| !files.is_empty())
    }

    pub(super) fn exists(&self, path: &Path) -> bool {
        (self.place.entry)(&lexical(path)).is_some()
    }

    pub(super) fn make_folder(&mut self, value: &Value, state: &State) {
        if let (Some(text), Some(cwd)) = (value.text(), &state.cwd) {
            let path = lexical(&join(cwd, text));
            self.made.extend(path.ancestors().map(Path::to_path_buf));
        }
    }
}

/// A path without `/proc/self/cwd` and `/proc/self/root` before it. `None`: the folder is not known.
fn without_process(path: PathBuf, state: &State) -> Option<PathBuf> {
    if let Ok(rest) = path.strip_prefix("/proc/self/cwd") {
        return state.cwd.as_deref().map(|cwd| cwd.join(rest));
    }
    Some(path.strip_prefix("/proc/self/root").map(|rest| Path::new("/").join(rest)).unwrap_or(path))
}

/// Takes `.` and `..` out of a pattern. A `..` after a wildcard cannot be worked out.
fn without_parents(pattern: &str) -> Result<String, &'static str> {
    let mut parts: Vec<&str> = Vec::new();
    for part in pattern.trim_start_matches('/').split('/') {
        match part {
            "." => {}
            ".." if parts.last().is_some_and(|last| last.contains(['*', '?', '['])) => {
                return Err("a pattern with .. after a wildcard");
            }
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    Ok(format!("/{}", parts.join("/")))
}
