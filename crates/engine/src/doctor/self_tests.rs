//! Self-tests of the lock primitives: `flock` between processes, kernel locks, and the exchange of two file names.

use std::collections::BTreeSet;
use std::path::PathBuf;

use lockkeeper_core::liveness::LockState;
use lockkeeper_formats::guard::{Folder, GuardError, ReplaceMethod};
use lockkeeper_formats::sprint::LOCK_FILE_NAME;
use lockkeeper_platform::lock_probe::{self, ProbeResult};
use lockkeeper_platform::random;
use lockkeeper_platform::volume::Volume;

use super::Context;
use super::finding::{Finding, Status, with_causes};
use crate::messages::{Sentence, said};

/// Use another file system.
const ELSEWHERE: Sentence = said("fix.other_file_system");

pub(super) fn flock(context: &Context<'_>) -> Finding {
    let mut finding = Finding::pass("tested with another process: it could lock only after the release");
    let mut folders = vec![context.existing_folder().to_owned()];
    folders.extend(context.inputs.groups.existing());
    let mut seen = BTreeSet::new();
    for folder in folders {
        if Volume::of(&folder).is_ok_and(|volume| !seen.insert(volume.device)) {
            continue;
        }
        let shown = folder.display();
        let detail = match lock_probe::probe(&folder) {
            Ok(ProbeResult::Works | ProbeResult::InUse) => continue,
            Ok(ProbeResult::LetsBothIn) => said("seen.lets_both_in"),
            Ok(ProbeResult::LetsNobodyIn) => said("seen.lets_nobody_in"),
            Err(error) => said("seen.cannot_lock").with("error", error),
        };
        let detail = detail.with("path", shown);
        finding = finding.and(Status::Fail, detail, ELSEWHERE);
    }
    finding
}

pub(super) fn kernel_locks(context: &Context<'_>) -> Finding {
    let Some(engine) = context.engine() else {
        return Finding::pass("not tested: there is no open store");
    };
    let file = engine.probe().liveness_file();
    let tested = random::holder_id().and_then(|holder| {
        let lock = file.hold(holder)?;
        let held = file.look(holder);
        lock.release()?;
        Ok((held, file.look(holder)))
    });
    match tested {
        Ok((LockState::Held, LockState::Free)) => {
            Finding::pass("a lock was seen while it was held, and was free afterwards")
        }
        Ok((held, after)) => {
            let detail = said("seen.kernel_lock");
            let detail = detail.with("held", format!("{held:?}")).with("after", format!("{after:?}"));
            Finding::fail(detail, ELSEWHERE)
        }
        Err(error) => Finding::fail(said("seen.no_kernel_lock").with("error", error), ELSEWHERE),
    }
}

pub(super) fn exchange(context: &Context<'_>) -> Finding {
    let mut finding = Finding::pass("two file names can be exchanged in every lock folder");
    for folder in folders(context) {
        let strength = folder.and_then(|folder| Ok((folder.probe()?, folder.path().to_owned())));
        match strength {
            Ok((ReplaceMethod::Exchange, _)) => {}
            Ok((ReplaceMethod::TwoRenames, path)) => {
                let detail = said("seen.two_renames").with("path", path.display());
                finding = finding.and(Status::Warn, detail, ELSEWHERE);
            }
            Err(error) => finding = finding.and(Status::Fail, with_causes(&error), error.hint()),
        }
    }
    finding
}

/// The existing folders with lock files. The checks of the formats say why a folder cannot be opened.
fn folders(context: &Context<'_>) -> Vec<Result<Folder, GuardError>> {
    let mut open: Vec<Result<Folder, GuardError>> = Vec::new();
    let root = &context.inputs.location.root;
    let mut paths: Vec<&PathBuf> = vec![];
    if context.inputs.location.state.is_dir() {
        paths.push(&context.inputs.location.state);
    }
    if root.join(LOCK_FILE_NAME).symlink_metadata().is_ok() {
        paths.push(root);
    }
    open.extend(paths.into_iter().map(|path| Folder::open(path)));
    open.extend(context.inputs.swarm.folder().ok().flatten().map(Ok));
    open.extend(context.aiflow().folder().ok().flatten().map(Ok));
    open
}
