//! Checks of the state folder: access, file system, free space, and git.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use lockkeeper_formats::sprint::{LOCK_FILE_NAME, is_ignored};
use lockkeeper_platform::access::is_shared;
use lockkeeper_platform::volume::Volume;
use rustix::fs::{Access, access};

use super::Context;
use super::finding::{Finding, Status, first_few};
use crate::location::LocationSource;

/// With less free space than this, writes may fail: FAIL.
const LEAST_BYTES: u64 = 1024 * 1024;
const LEAST_FILES: u64 = 16;
/// With less than this: WARN.
const LOW_BYTES: u64 = 100 * LEAST_BYTES;
const LOW_FILES: u64 = 1_000;

const ELSEWHERE: &str = "choose a local folder with --dir or LOCKKEEPER_DIR";

pub(super) fn state_folder(context: &Context<'_>) -> Finding {
    let folder = &context.inputs.location.state;
    let shown = folder.display();
    let facts = match fs::metadata(folder) {
        Ok(facts) => facts,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return not_created_yet(context),
        Err(error) => return Finding::fail(format!("cannot read {shown}: {error}"), ELSEWHERE),
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
        return Finding::fail(format!("{shown} belongs to {whose} and is not writable"), fix);
    }
    let is_shared = is_shared(&facts);
    let mut finding = Finding::pass(match (is_shared, owner == own) {
        (true, _) => format!("{shown}, shared by group {}", facts.gid()),
        (false, true) => format!("{shown}, for its owner only"),
        // Files that root creates there are given to the owner.
        (false, false) => format!("{shown}, for user {owner} only"),
    });
    if owner != own && own != 0 && !is_shared {
        let detail = format!(
            "{shown} belongs to user {owner}, and this process is user {own}: that user cannot use files that it creates there"
        );
        finding = finding.and(Status::Warn, detail, "run lockkeeper as the user who owns the folder");
    }
    let mode = facts.mode() & 0o777;
    let (too_much, right_mode) = if is_shared { (0o007, "2770") } else { (0o077, "700") };
    if mode & too_much != 0 {
        let detail = format!("{shown} has mode {mode:03o}: other users may read or write it");
        finding = finding.and(Status::Warn, detail, format!("chmod {right_mode} {shown}"));
    }
    finding
}

/// The state folder does not exist: checks whether it can be created.
fn not_created_yet(context: &Context<'_>) -> Finding {
    let (shown, parent) = (context.inputs.location.state.display(), context.existing_folder());
    if access(parent, Access::WRITE_OK | Access::EXEC_OK).is_ok() {
        Finding::pass(format!("the first lease will create {shown}"))
    } else {
        let detail =
            format!("{shown} does not exist and cannot be created: {} is not writable", parent.display());
        Finding::fail(detail, ELSEWHERE)
    }
}

pub(super) fn file_system(context: &Context<'_>) -> Finding {
    let folder = context.existing_folder();
    let shown = folder.display();
    let volume = match Volume::of(folder) {
        Ok(volume) => volume,
        Err(error) => return Finding::fail(format!("cannot read {shown}: {error}"), ELSEWHERE),
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

pub(super) fn free_space(context: &Context<'_>) -> Finding {
    let mut seen = BTreeSet::new();
    let mut finding = Finding::pass("enough in every folder with locks");
    for folder in context.lock_folders() {
        let Ok(volume) = Volume::of(&folder) else { continue };
        if volume.read_only || !seen.insert(volume.device) {
            continue;
        }
        if let Some((status, detail)) = low_space(&folder, &volume) {
            finding = finding.and(status, detail, format!("free some space below {}", folder.display()));
        }
    }
    finding
}

fn low_space(folder: &Path, volume: &Volume) -> Option<(Status, String)> {
    let (bytes, files) = (volume.free_bytes, volume.free_files.unwrap_or(u64::MAX));
    let status = match () {
        () if bytes < LEAST_BYTES || files < LEAST_FILES => Status::Fail,
        () if bytes < LOW_BYTES || files < LOW_FILES => Status::Warn,
        () => return None,
    };
    let files = volume.free_files.map_or_else(String::new, |files| format!(" and {files} files"));
    Some((status, format!("{} has only {} KiB{files} free", folder.display(), bytes / 1024)))
}

pub(super) fn git(context: &Context<'_>) -> Finding {
    let location = context.inputs.location;
    let root = location.root.display();
    let in_repository =
        location.root.ancestors().any(|folder| folder.join(".git").symlink_metadata().is_ok());
    let finding = match location.source {
        LocationSource::Git => {
            Finding::pass(format!("{root} is a repository; all its work trees share the locks"))
        }
        LocationSource::Named if in_repository => Finding::pass(format!("{root} is a repository")),
        LocationSource::Found | LocationSource::Here if in_repository => Finding::warn(
            format!("a .git above {root} leads to no repository"),
            "repair it (`git worktree repair`, `git init`): its work trees do not share locks now",
        ),
        LocationSource::Named | LocationSource::Found | LocationSource::Here => {
            Finding::pass("no repository here: the locks belong to the folder")
        }
    };
    let tracked = tracked(context);
    if tracked.is_empty() {
        return finding;
    }
    let list = first_few(tracked.into_iter(), ", ");
    finding.and(Status::Warn, format!("git would track {list}"), format!("add to {root}/.gitignore: {list}"))
}

/// The existing files of Lockkeeper that git does not ignore.
fn tracked(context: &Context<'_>) -> Vec<String> {
    let location = context.inputs.location;
    let mut files = Vec::new();
    if let (LocationSource::Named, Ok(inside)) =
        (location.source, location.state.strip_prefix(&location.root))
    {
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
