//! STAGES files that may be read over HTTP: only files inside of the project, after all links are followed.
//!
//! Errors of a file are reported with its lines. So only files with a YAML name are read: otherwise a client could read any
//! file of the project through error messages.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_stages::File;

use crate::state::AppState;

/// The usual paths of STAGES files.
const USUAL: [&str; 3] = ["STAGES.yml", "STAGES.yaml", ".workflow/STAGES.yml"];
/// The longest path.
const MOST_BYTES: usize = 4096;

/// Loads a STAGES file; its errors are reported with line and column.
pub(super) fn sound_file(state: &AppState, name: &str) -> Result<File, Report> {
    let path = inside(state, name)?;
    if !path.is_file() {
        return Err(missing(name));
    }
    let mut file = File::load(&path)?;
    file.name = shown(state, &path);
    match Report::unsound(&file, &file.name) {
        Some(report) => Err(report),
        None => Ok(file),
    }
}

/// The path of a file relative to the root of the project, or the whole path of a file outside.
pub(super) fn shown(state: &AppState, path: &Path) -> String {
    let root = fs::canonicalize(state.root()).unwrap_or_else(|_| state.root().to_owned());
    path.strip_prefix(root).unwrap_or(path).to_string_lossy().into_owned()
}

/// The files that can be planned: those that were executed, and those at the usual paths.
pub(super) fn known_files<'f>(state: &AppState, executed: impl Iterator<Item = &'f str>) -> Vec<String> {
    let usual = USUAL.iter().map(|name| state.root().join(name)).filter_map(|path| path.canonicalize().ok());
    let all: BTreeSet<String> =
        executed.map(PathBuf::from).chain(usual).map(|path| shown(state, &path)).collect();
    all.into_iter().filter(|name| inside(state, name).is_ok_and(|path| path.is_file())).collect()
}

/// Resolves a path inside of the project, following all links.
fn inside(state: &AppState, name: &str) -> Result<PathBuf, Report> {
    let path = Path::new(name);
    let ending = path.extension().and_then(|ending| ending.to_str());
    if !matches!(ending, Some("yml" | "yaml")) || name.len() > MOST_BYTES || name.contains('\0') {
        return Err(Report::usage(format!("`{}` is not the name of a STAGES file", name.escape_debug()))
            .with_hint("name a .yml or .yaml file of the project: ?file=STAGES.yml"));
    }
    // Decided by the text alone: the answer must not say which files exist outside.
    let leads_out = path.is_absolute() || path.components().any(|part| part == Component::ParentDir);
    if leads_out {
        return Err(outside(name));
    }
    let root = fs::canonicalize(state.root()).map_err(|_| missing(name))?;
    let found = fs::canonicalize(root.join(path)).map_err(|_| missing(name))?;
    let state = fs::canonicalize(state.state_folder()).ok();
    let is_ours = found.starts_with(&root)
        && state.is_none_or(|state| !found.starts_with(state))
        && !found.components().any(|part| part.as_os_str() == ".git");
    if is_ours { Ok(found) } else { Err(outside(name)) }
}

fn outside(name: &str) -> Report {
    Report::usage(format!("`{}` is not a file of the project", name.escape_debug()))
        .with_hint("name a file below the project's folder, without `..`")
        .with_context("file", name)
}

fn missing(name: &str) -> Report {
    Report::new(Exit::Usage, "NO_SUCH_FILE", format!("there is no file `{}`", name.escape_debug()))
        .with_hint("`files` of /api/stages lists those that are known")
        .with_context("file", name)
}
