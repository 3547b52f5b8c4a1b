//! Files and folders: writing, listing, copying, ageing.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lockkeeper_platform::wall_clock::WallTime;

/// Paths with the content of files. Folders and special files have none.
pub type Tree = BTreeMap<PathBuf, Vec<u8>>;

/// Writes a file, and makes its folder.
pub fn write(path: &Path, content: impl AsRef<[u8]>) {
    fs::create_dir_all(path.parent().expect("a file is in a folder")).unwrap();
    fs::write(path, content).unwrap();
}

/// The names in a folder, sorted. A missing folder has none.
#[must_use]
pub fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Every file and folder below a folder.
#[must_use]
pub fn tree(folder: &Path) -> Tree {
    let mut tree = Tree::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let (path, kind) = entry.map(|entry| (entry.path(), entry.file_type().unwrap())).unwrap();
            let content = if kind.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
            if kind.is_dir() {
                folders.push(path.clone());
            }
            tree.insert(path, content);
        }
    }
    tree
}

/// Copies a folder with everything in it to a new place.
pub fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (kind, target) = (entry.file_type().unwrap(), to.join(entry.file_name()));
        if kind.is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            assert!(kind.is_file(), "{} is neither a file nor a folder", entry.path().display());
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Makes a named pipe. Reading from it waits for a writer.
#[track_caller]
pub fn make_fifo(path: &Path) {
    crate::Finished::of(Command::new("mkfifo").arg(path)).code(0);
}

/// Whether something is at a path. A dangling symbolic link is something.
#[must_use]
pub fn is_there(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// The time on the wall clock this long ago.
#[must_use]
pub fn ago(age: Duration) -> WallTime {
    WallTime::from_micros(WallTime::now().as_micros() - i64::try_from(age.as_micros()).unwrap())
}

/// Sets the modification time of a file to this long ago.
pub fn set_age(path: &Path, age: Duration) {
    let micros = ago(age).as_micros().cast_unsigned();
    set_modified(path, UNIX_EPOCH + Duration::from_micros(micros));
}

/// Sets the modification time of a file.
pub fn set_modified(path: &Path, time: SystemTime) {
    File::open(path).unwrap().set_modified(time).unwrap();
}
