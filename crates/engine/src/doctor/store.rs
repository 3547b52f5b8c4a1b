//! Checks of the lease store: it opens, is not damaged, and only its owner has access to its files.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use lockkeeper_platform::access::is_shared;
use lockkeeper_store::{Risk, StoreError};

use super::finding::{Finding, Status, first_few, with_causes};
use super::{Context, Opened, Pass};
use crate::messages::{Sentence, said};

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
    let passed = Finding::pass(format!("{}{version}: {held} leases, {waiting} tickets", found.backend));
    found.risks.into_iter().fold(passed, |finding, risk| {
        let (seen, fix) = sentences_of(risk);
        finding.and(Status::Warn, seen, fix)
    })
}

/// How a server may lose leases, and what to do about it.
fn sentences_of(risk: Risk) -> (Sentence, Sentence) {
    match risk {
        Risk::Forgets => (said("seen.store_forgets"), said("fix.store_forgets")),
        Risk::Evicts { policy } => {
            (said("seen.store_evicts").with("policy", policy), said("fix.store_evicts"))
        }
        Risk::Replicas { count } => {
            (said("seen.store_replicas").with("count", count), said("fix.store_replicas"))
        }
        other => (Sentence::Literal(format!("{other:?}")), said("fix.store_replicas")),
    }
}

/// How to replace a damaged store.
fn replace_store(context: &Context<'_>) -> Sentence {
    let files = context.inputs.location.state.join("leases.db*");
    said("fix.replace_store").with("files", files.display())
}

pub(super) fn files(context: &Context<'_>) -> Finding {
    let folder = &context.inputs.location.state;
    let Ok(above) = fs::metadata(folder) else {
        return Finding::pass("there are no files yet");
    };
    let shown = folder.display();
    let is_shared = is_shared(&above);
    let mut finding = Finding::pass(if is_shared {
        "their group can read and write them, and nobody else"
    } else {
        "only their owner can read and write them"
    });
    for (path, facts) in entries(folder).chain(entries(&folder.join("wake"))).take(MOST_FILES) {
        let (mode, file) = (facts.mode() & 0o777, path.display());
        if is_of_server(&path) {
            // It is for the user who runs the server, also in a shared folder.
            if facts.is_file() && mode & 0o077 != 0 {
                let detail = said("seen.server_file").with("file", &file).with("mode", format!("{mode:03o}"));
                finding = finding.and(Status::Warn, detail, Sentence::Literal(format!("rm {file}")));
            }
            continue;
        }
        let has_mode = || said("seen.file_mode").with("file", &file).with("mode", format!("{mode:03o}"));
        let is_theirs = if is_shared { facts.gid() == above.gid() } else { facts.uid() == above.uid() };
        if !is_theirs {
            // The users of the folder cannot use what root or a container created there.
            let detail = said("seen.file_owner").with("file", &file);
            let detail = detail.with("user", facts.uid()).with("group", facts.gid());
            let fix = format!("chown -R {}:{} {file}", above.uid(), above.gid());
            finding = finding.and(Status::Warn, detail, Sentence::Literal(fix));
        } else if is_shared && mode & 0o060 != 0o060 {
            let fix = format!("chmod -R g+rwX {file}");
            finding = finding.and(Status::Warn, has_mode(), Sentence::Literal(fix));
        } else if facts.is_file() && mode & (if is_shared { 0o007 } else { 0o077 }) != 0 {
            let fix = format!("chmod {} {shown}/*", if is_shared { "o-rwx" } else { "600" });
            finding = finding.and(Status::Warn, has_mode(), Sentence::Literal(fix));
        }
    }
    finding
}

/// Whether it is the token or the socket of a server.
fn is_of_server(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.starts_with("server") && (name.ends_with(".token") || name.ends_with(".sock"))
}

/// What is in a folder; nothing if it cannot be read.
fn entries(folder: &Path) -> impl Iterator<Item = (PathBuf, fs::Metadata)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some((entry.path(), entry.metadata().ok()?)))
}
