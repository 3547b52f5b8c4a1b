//! Checks of the lease store: it opens, is not damaged, and only its owner has access to its files.

use std::fs;
use std::os::unix::fs::MetadataExt;

use lockkeeper_store::StoreError;

use super::finding::{Finding, Status, first_few, with_causes};
use super::{Context, Opened, Pass};

/// At most this many files are examined. A state folder has about ten.
const MOST_FILES: usize = 1_000;

pub(super) fn store(context: &Context<'_>) -> Finding {
    let engine = match &context.inputs.store {
        Opened::Absent => return Finding::pass("there is none yet; the first lease creates it"),
        Opened::Refused { why, fix } => return Finding::fail(why, fix),
        Opened::Open(engine) => engine,
    };
    let examined =
        engine.store().examine(context.pass == Pass::Full).and_then(|found| Ok((found, engine.listing()?)));
    let (found, listing) = match examined {
        Ok(examined) => examined,
        Err(error @ StoreError::Mismatch(_)) => {
            return Finding::fail(with_causes(&error), replace_store(context));
        }
        Err(error) => return Finding::fail(with_causes(&error), error.hint()),
    };
    if !found.flaws.is_empty() {
        return Finding::fail(first_few(found.flaws.into_iter(), "; "), replace_store(context));
    }
    let version = found.schema.map_or_else(String::new, |version| format!(", tables of version {version}"));
    let (held, waiting) = (listing.holders.len(), listing.waiters.len());
    Finding::pass(format!("{}{version}: {held} leases, {waiting} tickets", found.engine))
}

/// How to replace a damaged store.
fn replace_store(context: &Context<'_>) -> String {
    let state = context.inputs.location.state.display();
    format!("stop everything that uses it, then move {state}/leases.db* away; tokens still only grow")
}

pub(super) fn files(context: &Context<'_>) -> Finding {
    let folder = &context.inputs.location.state;
    let Ok(entries) = fs::read_dir(folder) else {
        return Finding::pass("there are no files yet");
    };
    let own = rustix::process::geteuid().as_raw();
    let mut finding = Finding::pass("only their owner can read and write them");
    for entry in entries.take(MOST_FILES).flatten() {
        let Ok(facts) = entry.metadata() else { continue };
        if !facts.is_file() {
            continue;
        }
        let (path, mode) = (entry.path(), facts.mode() & 0o777);
        let shown = path.display();
        if facts.uid() != own {
            // The owner of the folder cannot open a file that root created there.
            let detail = format!("{shown} belongs to user {}, and this process is user {own}", facts.uid());
            finding =
                finding.and(Status::Warn, detail, format!("chown it to the user of {}", folder.display()));
        } else if mode & 0o077 != 0 {
            let fix = format!("chmod 600 {}/*", folder.display());
            finding = finding.and(Status::Warn, format!("{shown} has mode {mode:03o}"), fix);
        }
    }
    finding
}
