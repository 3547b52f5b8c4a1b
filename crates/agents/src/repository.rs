//! The repository of a file: follows symlinks, finds the state folder, and names the file as a pattern there.
//!
//! The file's own repository decides, not the folder in which the agent works. A file outside of all repositories that
//! take part is ignored.

use std::fs;
use std::path::{Component, Path, PathBuf};

use lockkeeper_core::id::Name;
use lockkeeper_core::pattern::Pattern;
use lockkeeper_core::resource::{Mode, Resource, Target as Claimed};
use lockkeeper_engine::location::{Location, LocationInputs, LocationSource, literal_pattern};

use crate::writes::Target;

/// The longest path that a system accepts, in bytes. A write to a longer one fails by itself.
const MAX_PATH: usize = 4096;
/// How many symlinks that lead nowhere are followed.
const MAX_LINKS: usize = 40;

/// Something that a call would write, in its repository.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The path from the root of the work tree, or the pattern.
    pub shown: String,
    /// The absolute path, or the root of the work tree for a pattern.
    pub path: PathBuf,
    /// The repository.
    pub location: Location,
    /// What has to be claimed. Two names where the file system ignores case.
    pub resources: Vec<Resource>,
    /// Why a name is held.
    pub because: Option<String>,
    /// It is not a single file: others must not hold any of it, but it is not claimed.
    pub only_checked: bool,
}

impl Wanted {
    /// The name, if it is no file.
    pub fn name(&self) -> Option<&str> {
        match &self.resources.first()?.target {
            Claimed::Name(name) => Some(name.as_str()),
            Claimed::Path(_) => None,
        }
    }
}

/// A name in a repository. None if the repository does not take part.
pub fn wanted_name(name: &Name, because: &str, location: &Location) -> Option<Wanted> {
    if !takes_part(location) {
        return None;
    }
    let target = Claimed::Name(name.clone());
    Some(Wanted {
        shown: name.to_string(),
        path: PathBuf::new(),
        location: location.clone(),
        resources: vec![Resource { target, mode: Mode::Exclusive }],
        because: Some(because.to_owned()),
        only_checked: false,
    })
}

/// Whether the agents of a repository are coordinated: `<state>/agents` is there.
pub fn takes_part(location: &Location) -> bool {
    location.source != LocationSource::Here && location.state.join("agents").is_dir()
}

/// Finds the state folder for a folder. `named` is an absolute state folder that the environment names. None if the
/// repository cannot be read: then nothing can be claimed in it.
pub fn locate(folder: &Path, named: Option<&Path>) -> Option<Location> {
    let inputs = LocationInputs {
        named: named.filter(|named| named.is_absolute()).map(Path::to_owned),
        cwd: folder.to_owned(),
        ..LocationInputs::default()
    };
    inputs.locate().ok()
}

/// What a target of a call means in its repository. None if that repository does not take part, or if the path cannot be claimed.
pub(crate) fn wanted(target: &Target, named: Option<&Path>) -> Option<Wanted> {
    match target {
        Target::File(path) => wanted_file(path, named),
        Target::Below(path) if path.is_dir() => {
            let folder = real_path(path)?;
            let location = locate(&folder, named)?;
            let below = relative(&folder, &location)?;
            // A pattern without wildcards covers all that is below it.
            let pattern = if below.is_empty() { "**".to_owned() } else { literal_pattern(&below) };
            let shown = if below.is_empty() { pattern.clone() } else { format!("{below}/") };
            swept(shown, location, &pattern)
        }
        Target::Below(path) => wanted_file(path, named),
        Target::Pattern(text) => {
            let pattern: Pattern = text.trim_start_matches('/').parse().ok()?;
            let folder = real_path(&Path::new("/").join(pattern.literal_prefix()))?;
            let location = locate(&folder, named)?;
            let from_root = location.from_root(text, &folder).ok()?;
            swept(from_root.trim_end_matches('/').to_owned(), location, &from_root)
        }
    }
}

/// All files of the work tree in which a folder is.
pub(crate) fn wanted_tree(folder: &Path, named: Option<&Path>) -> Option<Wanted> {
    wanted(&Target::Below(locate(&real_path(folder)?, named)?.root), named)
}

/// A single file in its repository. None if that repository does not take part, or if the path cannot be claimed.
pub fn wanted_file(path: &Path, named: Option<&Path>) -> Option<Wanted> {
    let path = real_path(path)?;
    let location = locate(path.parent()?, named)?;
    let shown = relative(&path, &location).filter(|relative| !relative.is_empty())?;
    if !takes_part(&location) {
        return None;
    }
    let mut names = vec![shown.clone()];
    let folded = shown.to_lowercase();
    if folded != shown && location.ignores_case() {
        names.push(folded);
    }
    let resources: Option<Vec<Resource>> =
        names.iter().map(|name| resource(&literal_pattern(name))).collect();
    Some(Wanted { shown, path, location, resources: resources?, because: None, only_checked: false })
}

fn swept(shown: String, location: Location, pattern: &str) -> Option<Wanted> {
    if !takes_part(&location) {
        return None;
    }
    let path = location.root.clone();
    let resources = vec![resource(pattern)?];
    Some(Wanted { shown, path, location, resources, because: None, only_checked: true })
}

fn resource(pattern: &str) -> Option<Resource> {
    Some(Resource { target: Claimed::Path(pattern.parse().ok()?), mode: Mode::Exclusive })
}

/// The path from the root of the work tree. None for what is inside of git's own folder, or is not UTF-8.
fn relative(path: &Path, location: &Location) -> Option<String> {
    let inside_git =
        location.source == LocationSource::Git && location.state.parent() == Some(&location.root);
    let relative = path.strip_prefix(&location.root).ok().filter(|_| !inside_git)?;
    let in_git = relative.components().any(|part| part.as_os_str() == ".git");
    let in_state = path.starts_with(&location.state);
    relative.to_str().filter(|_| !in_git && !in_state).map(str::to_owned)
}

/// Follows symlinks and `..` as the system does. The end of the path may be missing.
pub(crate) fn real_path(path: &Path) -> Option<PathBuf> {
    if !path.is_absolute() || path.as_os_str().len() > MAX_PATH {
        return None;
    }
    Some(follow(path, MAX_LINKS))
}

fn follow(path: &Path, links: usize) -> PathBuf {
    if let Ok(real) = fs::canonicalize(path) {
        return real;
    }
    let (Some(parent), Some(last)) = (path.parent(), path.components().next_back()) else {
        return path.to_owned();
    };
    let mut folder = follow(parent, links);
    match last {
        Component::ParentDir => {
            folder.pop();
            folder
        }
        Component::CurDir | Component::Prefix(_) | Component::RootDir => folder,
        Component::Normal(name) => {
            let entry = folder.join(name);
            match fs::read_link(&entry) {
                // A symlink to a file that is not there yet: the write makes that file.
                Ok(target) if links > 0 => follow(&folder.join(target), links - 1),
                Ok(_) | Err(_) => entry,
            }
        }
    }
}

#[cfg(test)]
mod tests;
