//! The check for files that killed writers left between a lock file's old and new record.

use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use super::finding::{Finding, Recovered, Status, some_of, told};
use super::{Pass, Visit};
use lockkeeper_formats::guard::Folder;
use lockkeeper_formats::sprint::LOCK_FILE_NAME;
use lockkeeper_platform::wall_clock::WallTime;

/// A program that takes longer to write a sprint lock has given up.
const WRITE_LIMIT: Duration = Duration::from_secs(10);

pub(super) fn leftovers(visit: &Visit<'_>) -> Finding {
    let mut folders: Vec<Folder> = Vec::new();
    // Why one cannot be opened is told by the check of its format.
    folders.extend(visit.site.swarm.folder().ok().flatten());
    folders.extend(visit.aiflow().folder().ok().flatten());
    folders.extend(Folder::open(&visit.site.location.root).ok());
    let mut finding = Finding::pass("there are none");
    let mut recovered = Vec::new();
    for folder in &folders {
        let cleared = match visit.pass {
            Pass::Quick => Ok(Vec::new()),
            Pass::Full => folder.clear_leftovers(),
        };
        let (cleared, left) = match cleared.and_then(|cleared| Ok((cleared, folder.leftovers()?))) {
            Ok(seen) => seen,
            Err(error) => {
                finding = finding.and(Status::Warn, told(&error), error.hint());
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
            let fix = "`lockkeeper doctor --full` removes them, and so does the next lock there";
            let list = some_of(left.into_iter().map(path), ", ");
            finding = finding.and(Status::Warn, format!("left by killed writers: {list}"), fix);
        }
    }
    if let Some(path) = unfinished_sprint_lock(visit) {
        let detail = format!("{path} was never finished by the program that wrote it");
        finding =
            finding.and(Status::Warn, detail, format!("remove {path} if no sprint is just being started"));
    }
    finding.with_recovered(recovered)
}

/// What another program left beside the sprint lock. It is not ours to remove.
fn unfinished_sprint_lock(visit: &Visit<'_>) -> Option<String> {
    let path = visit.site.location.root.join(format!("{LOCK_FILE_NAME}.tmp"));
    let facts = path.symlink_metadata().ok()?;
    let modified_at = WallTime::from_micros(facts.mtime().saturating_mul(1_000_000));
    (visit.site.now.since(modified_at) > WRITE_LIMIT).then(|| path.display().to_string())
}
