//! A repository and a home folder, and what is in them.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use lockkeeper_testing::{World, files, world};

/// All harnesses.
pub const ALL: [&str; 8] = ["claude", "codex", "gemini", "copilot", "opencode", "qwen", "cursor", "windsurf"];

/// A repository, and a search path without any agent.
pub fn repository() -> World {
    let world = world!().git();
    let bin = world.beside("bin");
    fs::create_dir(&bin).unwrap();
    for program in ["bash", "git", "sh"] {
        let paths = std::env::var_os("PATH").unwrap();
        let found =
            std::env::split_paths(&paths).map(|folder| folder.join(program)).find(|path| path.is_file());
        std::os::unix::fs::symlink(found.unwrap(), bin.join(program)).unwrap();
    }
    fs::create_dir_all(world.home()).unwrap();
    // On a loaded machine a hook may take longer than it takes for people.
    world.set("PATH", bin).set("LOCKKEEPER_AGENTS_LIMIT", "9s")
}

/// A file of the home folder.
pub fn in_home(world: &World, path: &str, text: &str) -> PathBuf {
    let path = world.home().join(path);
    files::write(&path, text);
    path
}

pub fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every file below a folder, with its mode and its bytes. A symlink counts as itself.
pub fn snapshot(folder: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let meta = fs::symlink_metadata(&path).unwrap();
        if meta.is_dir() {
            found.extend(snapshot(&path));
        } else if meta.is_symlink() {
            let target = fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes();
            found.insert(path, (0, target));
        } else {
            found.insert(path.clone(), (meta.permissions().mode(), fs::read(&path).unwrap()));
        }
    }
    found
}
