//! Checks that try out what locks are made of: `flock` between processes, kernel locks, and exchanging names.

use std::collections::BTreeSet;
use std::path::PathBuf;

use lockkeeper_core::liveness::LockSight;

use super::Visit;
use super::finding::{Finding, Status, told};
use lockkeeper_formats::guard::{Folder, GuardError, ReplaceMethod};
use lockkeeper_formats::sprint::LOCK_FILE_NAME;
use lockkeeper_platform::lock_probe::{self, ProbeResult};
use lockkeeper_platform::random;
use lockkeeper_platform::volume::Volume;

const ELSEWHERE: &str = "use folders on another file system: --dir, LOCK_DIR, AI_SWARM_DIR";

pub(super) fn flock(visit: &Visit<'_>) -> Finding {
    let mut finding = Finding::pass("tried with another process: it was kept out, and let in afterwards");
    let mut folders = vec![visit.ground().to_owned()];
    folders.extend(visit.site.groups.existing());
    let mut seen = BTreeSet::new();
    for folder in folders {
        if Volume::of(&folder).is_ok_and(|volume| !seen.insert(volume.device)) {
            continue;
        }
        let shown = folder.display();
        let detail = match lock_probe::probe(&folder) {
            Ok(ProbeResult::Works | ProbeResult::InUse) => continue,
            Ok(ProbeResult::LetsBothIn) => format!("{shown} can be locked by two processes at once"),
            Ok(ProbeResult::LetsNobodyIn) => format!("{shown} stays locked although nobody has it"),
            Err(error) => format!("cannot try to lock {shown}: {error}"),
        };
        finding = finding.and(Status::Fail, detail, ELSEWHERE);
    }
    finding
}

pub(super) fn kernel_locks(visit: &Visit<'_>) -> Finding {
    let Some(engine) = visit.engine() else {
        return Finding::pass("not tried: there is no open store");
    };
    let life = engine.senses().life();
    let tried = random::holder_id().and_then(|holder| {
        let lock = life.hold(holder)?;
        let held = life.look(holder);
        lock.release()?;
        Ok((held, life.look(holder)))
    });
    match tried {
        Ok((LockSight::Held, LockSight::Free)) => {
            Finding::pass("a lock was seen while held, and gone afterwards")
        }
        Ok((held, after)) => {
            let detail =
                format!("a lock that was held looks {held:?}, and one that was given back {after:?}");
            Finding::fail(detail, ELSEWHERE)
        }
        Err(error) => {
            Finding::fail(format!("cannot take a kernel lock beside the store: {error}"), ELSEWHERE)
        }
    }
}

pub(super) fn exchange(visit: &Visit<'_>) -> Finding {
    let mut finding = Finding::pass("names can be exchanged in every lock folder");
    for folder in folders(visit) {
        let strength = folder.and_then(|folder| Ok((folder.probe()?, folder.path().to_owned())));
        match strength {
            Ok((ReplaceMethod::Exchange, _)) => {}
            Ok((ReplaceMethod::TwoRenames, path)) => {
                let detail = format!(
                    "in {} a stale lock is replaced in two steps, and a program that breaks locks by itself could \
                     get in between",
                    path.display()
                );
                finding = finding.and(Status::Warn, detail, ELSEWHERE);
            }
            Err(error) => finding = finding.and(Status::Fail, told(&error), error.hint()),
        }
    }
    finding
}

/// The folders of lock files that are there; the formats' own checks tell why one cannot be opened.
fn folders(visit: &Visit<'_>) -> Vec<Result<Folder, GuardError>> {
    let mut open: Vec<Result<Folder, GuardError>> = Vec::new();
    let root = &visit.site.location.root;
    let mut paths: Vec<&PathBuf> = vec![];
    if visit.site.location.state.is_dir() {
        paths.push(&visit.site.location.state);
    }
    if root.join(LOCK_FILE_NAME).symlink_metadata().is_ok() {
        paths.push(root);
    }
    open.extend(paths.into_iter().map(|path| Folder::open(path)));
    open.extend(visit.site.swarm.folder().ok().flatten().map(Ok));
    open.extend(visit.aiflow().folder().ok().flatten().map(Ok));
    open
}
