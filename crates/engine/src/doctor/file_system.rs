//! Checks of the state folder: access, file system, free space, and git.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use lockkeeper_formats::sprint::{LOCK_FILE_NAME, is_ignored};
use lockkeeper_platform::access::{is_for_group, is_shared};
use lockkeeper_platform::volume::Volume;
use rustix::fs::{Access, access};

use super::Context;
use super::finding::{Finding, Status};
use crate::location::LocationSource;
use crate::messages::{Sentence, said};

/// With less free space than this, writes may fail: FAIL.
const LEAST_BYTES: u64 = 1024 * 1024;
const LEAST_FILES: u64 = 16;
/// With less than this: WARN.
const LOW_BYTES: u64 = 100 * LEAST_BYTES;
const LOW_FILES: u64 = 1_000;

/// Choose another folder.
const ELSEWHERE: Sentence = said("fix.elsewhere");

pub(super) fn state_folder(context: &Context<'_>) -> Finding {
    let folder = &context.inputs.location.state;
    let shown = folder.display();
    let facts = match fs::metadata(folder) {
        Ok(facts) => facts,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return not_created_yet(context),
        Err(error) => return Finding::fail(unreadable(folder, &error), ELSEWHERE),
    };
    if !facts.is_dir() {
        return Finding::fail(said("seen.not_a_folder").with("path", &shown), said("fix.move_away"));
    }
    let (owner, own) = (facts.uid(), rustix::process::geteuid().as_raw());
    if access(folder, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK).is_err() {
        let detail = match owner == own {
            true => said("seen.not_writable").with("path", &shown),
            false => said("seen.not_writable_of").with("path", &shown).with("user", owner),
        };
        return Finding::fail(detail, said("fix.give_access"));
    }
    let is_shared = is_shared(&facts);
    let mut finding = Finding::pass(match (is_shared, owner == own) {
        (true, _) => format!("{shown}, shared by group {}", facts.gid()),
        (false, true) => format!("{shown}, for its owner only"),
        // Files that root creates there are given to the owner.
        (false, false) => format!("{shown}, for user {owner} only"),
    });
    if owner != own && own != 0 && !is_shared {
        let detail = said("seen.other_owner").with("path", &shown).with("owner", owner).with("user", own);
        finding = finding.and(Status::Warn, detail, said("fix.run_as_owner"));
    }
    if let Ok(around) = fs::metadata(folder.join(".."))
        && !is_shared
        && is_for_group(&folder.join(".."))
    {
        let group = around.gid();
        let detail = said("seen.not_shared").with("path", &shown).with("group", group);
        // The token of a server lets its reader run commands as the owner, so it stays private.
        let fix = format!(
            "chgrp -R {group} {shown}; find {shown} -type d -exec chmod 2770 {{}} +; \
             find {shown} -type f ! -name '*.token' -exec chmod 660 {{}} +"
        );
        finding = finding.and(Status::Warn, detail, Sentence::Literal(fix));
    }
    let mode = facts.mode() & 0o777;
    let (too_much, right_mode) = if is_shared { (0o007, "2770") } else { (0o077, "700") };
    if mode & too_much != 0 {
        let detail = said("seen.open_to_others").with("path", &shown).with("mode", format!("{mode:03o}"));
        let fix = Sentence::Literal(format!("chmod {right_mode} {shown}"));
        finding = finding.and(Status::Warn, detail, fix);
    }
    finding
}

fn unreadable(path: &Path, error: &io::Error) -> Sentence {
    said("seen.unreadable").with("path", path.display()).with("error", error)
}

/// The state folder does not exist: checks whether it can be created.
fn not_created_yet(context: &Context<'_>) -> Finding {
    let (shown, parent) = (context.inputs.location.state.display(), context.existing_folder());
    if access(parent, Access::WRITE_OK | Access::EXEC_OK).is_ok() {
        Finding::pass(format!("the first lease will create {shown}"))
    } else {
        let detail = said("seen.cannot_create").with("path", &shown).with("parent", parent.display());
        Finding::fail(detail, ELSEWHERE)
    }
}

pub(super) fn file_system(context: &Context<'_>) -> Finding {
    let folder = context.existing_folder();
    let shown = folder.display();
    let volume = match Volume::of(folder) {
        Ok(volume) => volume,
        Err(error) => return Finding::fail(unreadable(folder, &error), ELSEWHERE),
    };
    if let Some(network) = volume.network {
        let detail = said("seen.network").with("path", &shown).with("network", network);
        return Finding::fail(detail, ELSEWHERE);
    }
    if volume.read_only {
        return Finding::fail(said("seen.read_only").with("path", &shown), said("fix.make_writable"));
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
            finding = finding.and(status, detail, said("fix.free_space").with("path", folder.display()));
        }
    }
    finding
}

fn low_space(folder: &Path, volume: &Volume) -> Option<(Status, Sentence)> {
    let (bytes, files) = (volume.free_bytes, volume.free_files.unwrap_or(u64::MAX));
    let status = match () {
        () if bytes < LEAST_BYTES || files < LEAST_FILES => Status::Fail,
        () if bytes < LOW_BYTES || files < LOW_FILES => Status::Warn,
        () => return None,
    };
    let detail = match volume.free_files {
        Some(files) => said("seen.low_space_files").with("files", files),
        None => said("seen.low_space"),
    };
    Some((status, detail.with("path", folder.display()).with("kib", bytes / 1024)))
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
        LocationSource::Named | LocationSource::Found | LocationSource::Here => {
            Finding::pass("no repository here: the locks belong to the folder")
        }
    };
    let tracked = tracked(context);
    if tracked.is_empty() {
        return finding;
    }
    let list = || tracked.iter().cloned().map(Sentence::Literal);
    let fix = said("fix.gitignore").with("file", format!("{root}/.gitignore")).with_list("list", list());
    finding.and(Status::Warn, said("seen.tracked").with_list("list", list()), fix)
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
