//! Checks of the place: the folder of the state, its file system, its room, and git.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{Access, access};

use super::Visit;
use super::finding::{Finding, Status, some_of};
use crate::location::Because;
use lockkeeper_formats::sprint::{LOCK_FILE_NAME, is_ignored};
use lockkeeper_platform::volume::Volume;

/// Below this nothing can be written for certain.
const LEAST_BYTES: u64 = 1024 * 1024;
const LEAST_FILES: u64 = 16;
/// Below this it may soon be so.
const FEW_BYTES: u64 = 100 * LEAST_BYTES;
const FEW_FILES: u64 = 1_000;

const ELSEWHERE: &str = "choose a local folder with --dir or LOCKKEEPER_DIR";

pub(super) fn state_folder(visit: &Visit<'_>) -> Finding {
    let folder = &visit.site.location.state;
    let shown = folder.display();
    let facts = match fs::metadata(folder) {
        Ok(facts) => facts,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return to_be_made(visit),
        Err(error) => return Finding::fail(format!("cannot look at {shown}: {error}"), ELSEWHERE),
    };
    if !facts.is_dir() {
        return Finding::fail(
            format!("{shown} is not a folder"),
            "move it away, or choose another with --dir",
        );
    }
    let (owner, own) = (facts.uid(), rustix::process::geteuid().as_raw());
    if access(folder, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK).is_err() {
        let whose = if owner == own { "us".to_owned() } else { format!("user {owner}") };
        let fix = format!("give this user access to it, or {ELSEWHERE}");
        return Finding::fail(format!("{shown} belongs to {whose} and cannot be written"), fix);
    }
    let mut finding = Finding::pass(format!("{shown}, for its owner only"));
    if owner != own {
        let detail = format!(
            "{shown} belongs to user {owner}, and we are user {own}: what we make there is not theirs"
        );
        finding = finding.and(Status::Warn, detail, "run lockkeeper as the user whose folder it is");
    }
    let mode = facts.mode() & 0o777;
    if mode & 0o077 != 0 {
        let detail = format!("{shown} has mode {mode:03o}: others may look in or write");
        finding = finding.and(Status::Warn, detail, format!("chmod 700 {shown}"));
    }
    finding
}

fn to_be_made(visit: &Visit<'_>) -> Finding {
    let (shown, ground) = (visit.site.location.state.display(), visit.ground());
    if access(ground, Access::WRITE_OK | Access::EXEC_OK).is_ok() {
        Finding::pass(format!("{shown} will be made by the first lease"))
    } else {
        let detail =
            format!("{shown} is not there and cannot be made: {} cannot be written", ground.display());
        Finding::fail(detail, ELSEWHERE)
    }
}

pub(super) fn file_system(visit: &Visit<'_>) -> Finding {
    let ground = visit.ground();
    let shown = ground.display();
    let volume = match Volume::of(ground) {
        Ok(volume) => volume,
        Err(error) => return Finding::fail(format!("cannot look at {shown}: {error}"), ELSEWHERE),
    };
    if let Some(network) = volume.network {
        return Finding::fail(format!("{shown} is on {network}, whose locks are not reliable"), ELSEWHERE);
    }
    if volume.read_only {
        let fix = format!("make it writable, or {ELSEWHERE}");
        return Finding::fail(format!("{shown} is on a file system that is mounted read-only"), fix);
    }
    Finding::pass(format!("{shown} is on {}", volume.kind.unwrap_or("a local file system")))
}

pub(super) fn free_space(visit: &Visit<'_>) -> Finding {
    let mut seen = BTreeSet::new();
    let mut finding = Finding::pass("enough everywhere that locks lie");
    for folder in visit.lock_folders() {
        let Ok(volume) = Volume::of(&folder) else { continue };
        if volume.read_only || !seen.insert(volume.device) {
            continue;
        }
        if let Some((status, detail)) = scarce(&folder, &volume) {
            finding = finding.and(status, detail, format!("free some space below {}", folder.display()));
        }
    }
    finding
}

fn scarce(folder: &Path, volume: &Volume) -> Option<(Status, String)> {
    let (bytes, files) = (volume.free_bytes, volume.free_files.unwrap_or(u64::MAX));
    let status = match () {
        () if bytes < LEAST_BYTES || files < LEAST_FILES => Status::Fail,
        () if bytes < FEW_BYTES || files < FEW_FILES => Status::Warn,
        () => return None,
    };
    let files = volume.free_files.map_or_else(String::new, |files| format!(" and {files} files"));
    Some((status, format!("{} has room for {} KiB{files} only", folder.display(), bytes / 1024)))
}

pub(super) fn git(visit: &Visit<'_>) -> Finding {
    let location = visit.site.location;
    let root = location.root.display();
    let in_repository =
        location.root.ancestors().any(|folder| folder.join(".git").symlink_metadata().is_ok());
    let finding = match location.because {
        Because::Git => Finding::pass(format!("{root} is a repository; all its work trees share the locks")),
        Because::Named if in_repository => Finding::pass(format!("{root} is a repository")),
        Because::Found | Because::Here if in_repository => Finding::warn(
            format!("there is a .git above {root} that leads to no repository"),
            "mend it (`git worktree repair`, `git init`): its work trees do not share locks now",
        ),
        Because::Named | Because::Found | Because::Here => {
            Finding::pass("no repository here: the locks belong to the folder")
        }
    };
    let tracked = tracked(visit);
    if tracked.is_empty() {
        return finding;
    }
    let list = some_of(tracked.into_iter(), ", ");
    finding.and(Status::Warn, format!("git would track {list}"), format!("add to {root}/.gitignore: {list}"))
}

/// Files of ours that are there and that git does not ignore.
fn tracked(visit: &Visit<'_>) -> Vec<String> {
    let location = visit.site.location;
    let mut files = Vec::new();
    if let (Because::Named, Ok(inside)) = (location.because, location.state.strip_prefix(&location.root)) {
        files.extend(inside.to_str().filter(|_| !inside.starts_with(".git")).map(str::to_owned));
    }
    files.push(LOCK_FILE_NAME.to_owned());
    files.retain(|file| !file.is_empty() && location.root.join(file).symlink_metadata().is_ok());
    if location.root.join(".aiflow/locks").is_dir() {
        files.push(".aiflow/locks/queue.lock.json".to_owned());
    }
    files.retain(|file| is_ignored(&location.root, file) == Some(false));
    files
}
