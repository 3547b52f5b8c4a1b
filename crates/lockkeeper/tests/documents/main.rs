//! Documents that are generated from the code, or whose examples are run.
#![expect(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

mod examples;
mod guide;
mod links;
mod named_tests;
mod picture;
mod readme;
mod reference;
mod run_states;

use std::path::{Path, PathBuf};

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// Compares a document with what it should be; with `LOCKKEEPER_WRITE_DOCS` set, writes it.
fn hold_to(name: &str, expected: &str) {
    let path = docs().join(name);
    if std::env::var_os("LOCKKEEPER_WRITE_DOCS").is_some() {
        std::fs::write(&path, expected).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == expected,
        "docs/{name} is not what the code says; `LOCKKEEPER_WRITE_DOCS=1 cargo test --test documents` writes it"
    );
}
