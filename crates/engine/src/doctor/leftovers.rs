//! Check for temporary files of writers that were killed while they replaced a lock file.

use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use lockkeeper_formats::guard::Folder;
use lockkeeper_formats::sprint::LOCK_FILE_NAME;
use lockkeeper_platform::wall_clock::WallTime;

use super::finding::{Finding, Recovered, Status, with_causes};
use super::{Context, Pass};
use crate::messages::{Sentence, said};

/// How long a program may take to write a sprint lock. An older temporary file was abandoned.
const WRITE_LIMIT: Duration = Duration::from_secs(10);

pub(super) fn leftovers(context: &Context<'_>) -> Finding {
    let mut folders: Vec<Folder> = Vec::new();
    // The check of its format says why a folder cannot be opened.
    folders.extend(context.inputs.swarm.folder().ok().flatten());
    folders.extend(context.aiflow().folder().ok().flatten());
    folders.extend(Folder::open(&context.inputs.location.root).ok());
    let mut finding = Finding::pass("there are none");
    let mut recovered = Vec::new();
    for folder in &folders {
        let cleared = match context.pass {
            Pass::Quick => Ok(Vec::new()),
            Pass::Full => folder.clear_leftovers(),
        };
        let (cleared, left) = match cleared.and_then(|cleared| Ok((cleared, folder.leftovers()?))) {
            Ok(seen) => seen,
            Err(error) => {
                finding = finding.and(Status::Warn, with_causes(&error), error.hint());
                continue;
            }
        };
        let path = |name: String| folder.path().join(name).display().to_string();
        let why = "its writer was killed";
        recovered.extend(cleared.into_iter().map(|name| Recovered {
            format: "leftover",
            what: path(name),
            why: why.to_owned(),
        }));
        if !left.is_empty() {
            let list = left.into_iter().map(path).map(Sentence::Literal);
            let detail = said("seen.leftovers").with_list("list", list);
            finding = finding.and(Status::Warn, detail, said("fix.leftovers"));
        }
    }
    if let Some(path) = unfinished_sprint_lock(context) {
        let detail = said("seen.unfinished").with("path", &path);
        finding = finding.and(Status::Warn, detail, said("fix.unfinished").with("path", &path));
    }
    finding.with_recovered(recovered)
}

/// A temporary file of another program beside the sprint lock. The doctor does not remove it.
fn unfinished_sprint_lock(context: &Context<'_>) -> Option<String> {
    let path = context.inputs.location.root.join(format!("{LOCK_FILE_NAME}.tmp"));
    let facts = path.symlink_metadata().ok()?;
    let modified_at = WallTime::from_micros(facts.mtime().saturating_mul(1_000_000));
    (context.inputs.now.since(modified_at) > WRITE_LIMIT).then(|| path.display().to_string())
}
