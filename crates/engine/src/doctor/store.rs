//! Checks of the store of leases: that it opens and is whole, and whose its files are.

use std::fs;
use std::os::unix::fs::MetadataExt;

use super::finding::{Finding, Status, some_of, told};
use super::{Opened, Pass, Visit};
use lockkeeper_store::StoreError;

/// The folder has about ten files; whoever put more there is not ours to judge.
const MOST_FILES: usize = 1_000;

pub(super) fn store(visit: &Visit<'_>) -> Finding {
    let engine = match &visit.site.store {
        Opened::Absent => return Finding::pass("there is none yet; the first lease makes it"),
        Opened::Refused { why, fix } => return Finding::fail(why, fix),
        Opened::Open(engine) => engine,
    };
    let seen =
        engine.store().examine(visit.pass == Pass::Full).and_then(|found| Ok((found, engine.listing()?)));
    let (found, listing) = match seen {
        Ok(seen) => seen,
        Err(error @ StoreError::Mismatch(_)) => return Finding::fail(told(&error), start_anew(visit)),
        Err(error) => return Finding::fail(told(&error), error.hint()),
    };
    if !found.flaws.is_empty() {
        return Finding::fail(some_of(found.flaws.into_iter(), "; "), start_anew(visit));
    }
    let version = found.schema.map_or_else(String::new, |version| format!(", tables of version {version}"));
    let (held, waiting) = (listing.holders.len(), listing.waiters.len());
    Finding::pass(format!("{}{version}: {held} leases, {waiting} tickets", found.engine))
}

fn start_anew(visit: &Visit<'_>) -> String {
    let state = visit.site.location.state.display();
    format!("stop everything that uses it, then move {state}/leases.db* away; tokens go on where they were")
}

pub(super) fn files(visit: &Visit<'_>) -> Finding {
    let folder = &visit.site.location.state;
    let Ok(entries) = fs::read_dir(folder) else {
        return Finding::pass("there are none yet");
    };
    let own = rustix::process::geteuid().as_raw();
    let mut finding = Finding::pass("all of them for their owner only");
    for entry in entries.take(MOST_FILES).flatten() {
        let Ok(facts) = entry.metadata() else { continue };
        if !facts.is_file() {
            continue;
        }
        let (path, mode) = (entry.path(), facts.mode() & 0o777);
        let shown = path.display();
        if facts.uid() != own {
            // The owner of the folder can do nothing with a file that root left there.
            let detail = format!("{shown} belongs to user {}, and we are user {own}", facts.uid());
            finding =
                finding.and(Status::Warn, detail, format!("chown it to the user of {}", folder.display()));
        } else if mode & 0o077 != 0 {
            let fix = format!("chmod 600 {}/*", folder.display());
            finding = finding.and(Status::Warn, format!("{shown} has mode {mode:03o}"), fix);
        }
    }
    finding
}
