//! How the code is laid out, read from the code itself.
#![expect(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Every crate, and the crates of the workspace that it may depend on. No crate may depend on `testing`: it is
/// only a dev-dependency.
const MAY_USE: [(&str, &[&str]); 10] = [
    ("core", &[]),
    ("platform", &["core"]),
    ("store", &["core", "platform"]),
    ("formats", &["core", "platform"]),
    ("stages", &["core", "formats"]),
    ("engine", &["core", "platform", "store", "formats", "stages"]),
    ("agents", &["core", "platform", "engine"]),
    ("server", &["core", "platform", "formats", "stages", "engine", "agents"]),
    ("lockkeeper", &["core", "platform", "formats", "stages", "engine", "agents", "server"]),
    ("testing", &["core", "platform"]),
];

/// The only file outside of the store that names a backend.
const CHOOSES_THE_BACKEND: &str = "engine/src/open.rs";

/// A source file. Its path begins with the crate.
struct Source {
    path: String,
    text: String,
}

impl Source {
    /// Whether the file is compiled for tests only.
    fn is_test(&self) -> bool {
        self.path.contains("/conformance/")
            || self.path.ends_with("tests.rs")
            || self.path.contains("/tests/")
    }
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The files below a folder whose names have this ending.
fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        if path.is_dir() && !name.starts_with("target") {
            found.extend(files(&path, ending));
        } else if name.ends_with(ending) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The sources of one crate.
fn sources(package: &str) -> Vec<Source> {
    let crates = repository().join("crates");
    let read = |path: PathBuf| Source {
        path: path.strip_prefix(&crates).unwrap().to_str().unwrap().to_owned(),
        text: fs::read_to_string(&path).unwrap(),
    };
    let sources: Vec<Source> =
        files(&crates.join(package).join("src"), ".rs").into_iter().map(read).collect();
    assert!(sources.len() > 10, "{package}");
    sources
}

fn all_sources() -> Vec<Source> {
    MAY_USE.iter().flat_map(|(package, _)| sources(package)).collect()
}

/// The crates of the workspace that one table of a manifest names.
fn dependencies(package: &str, table: &str) -> BTreeSet<String> {
    let manifest = repository().join("crates").join(package).join("Cargo.toml");
    let text = fs::read_to_string(&manifest).unwrap();
    let lines =
        text.lines().skip_while(|line| *line != table).skip(1).take_while(|line| !line.starts_with('['));
    let names = lines.filter_map(|line| line.strip_prefix("lockkeeper-")?.split(['.', ' ']).next());
    names.map(str::to_owned).collect()
}

#[test]
fn crates_use_only_what_lies_below_them() {
    let folders = fs::read_dir(repository().join("crates")).unwrap();
    let mut known: Vec<String> =
        folders.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    known.sort();
    let mut listed = MAY_USE.map(|(package, _)| package);
    listed.sort();
    assert_eq!(known, listed, "give every crate its place in MAY_USE");
    for (package, may_use) in MAY_USE {
        for used in dependencies(package, "[dependencies]") {
            assert!(may_use.contains(&used.as_str()), "{package} depends on {used}");
        }
    }
}

#[test]
fn the_crate_for_tests_is_only_a_dev_dependency_and_is_not_published() {
    let mut users = 0;
    for (package, _) in MAY_USE {
        let manifest = repository().join("crates").join(package).join("Cargo.toml");
        let text = fs::read_to_string(&manifest).unwrap();
        let mut table = "";
        for line in text.lines() {
            if line.starts_with('[') {
                table = line;
            }
            let named = line.contains("lockkeeper-testing") && !line.starts_with("name =");
            assert!(!named || table == "[dev-dependencies]", "{package}: {table}: {line}");
            users += usize::from(named);
        }
        assert_eq!(text.contains("\npublish = false\n"), package == "testing", "{package}");
    }
    assert!(users > 0, "some crate uses it");
}

#[test]
fn one_place_chooses_the_backend() {
    let stores: BTreeSet<String> = concrete_stores().collect();
    assert!(stores.contains("SqliteStore") && stores.contains("MemoryStore"), "{stores:?}");
    for source in all_sources().iter().filter(|source| !source.path.starts_with("store/")) {
        let named = stores.iter().find(|store| source.text.contains(store.as_str()));
        assert!(named.is_none() || source.path == CHOOSES_THE_BACKEND, "{} names {named:?}", source.path);
    }
}

#[test]
fn front_ends_reach_stores_through_the_engine_only() {
    for package in ["agents", "server", "lockkeeper"] {
        assert!(!dependencies(package, "[dependencies]").contains("store"), "{package} depends on the store");
        for source in sources(package) {
            let named = [".store()", "lockkeeper_engine::LeaseStore", "lockkeeper_engine::RunStore"]
                .into_iter()
                .find(|name| source.text.contains(name));
            assert!(named.is_none(), "{} uses {named:?}", source.path);
        }
    }
}

/// The engine gives its lease store to nobody: no public function returns the store, a transaction or a waker of it.
#[test]
fn the_engine_keeps_its_lease_store_to_itself() {
    let secret = ["dyn LeaseStore", "dyn Transaction", "dyn Waker"];
    let mut functions = 0;
    for source in sources("engine") {
        for signature in source.text.split("    pub fn ").skip(1) {
            let signature = signature.split_once('{').map_or(signature, |(signature, _)| signature);
            let returned = signature.split_once("->").map_or("", |(_, returned)| returned);
            let named = secret.iter().find(|name| returned.contains(**name));
            assert!(named.is_none(), "{}: pub fn {signature}", source.path);
            functions += 1;
        }
    }
    assert!(functions > 50, "{functions} functions were read");
}

/// Every backend is held to the one contract.
#[test]
fn every_store_is_in_the_conformance_suite() {
    let suite = repository().join("crates/store/tests/conformance/backends.rs");
    let text = fs::read_to_string(&suite).unwrap();
    for store in concrete_stores() {
        assert!(text.contains(&store), "{store} is not held to the contract in {}", suite.display());
    }
}

fn concrete_stores() -> impl Iterator<Item = String> {
    let lines: Vec<String> =
        sources("store").iter().flat_map(|source| source.text.lines().map(str::to_owned)).collect();
    lines.into_iter().filter_map(|line| {
        Some(line.strip_prefix("impl LeaseStore for ")?.split([' ', '<']).next()?.to_owned())
    })
}

#[test]
fn what_depends_on_the_system_is_in_platform() {
    for source in all_sources() {
        let inside = source.path.starts_with("platform/");
        for line in source.text.lines().filter(|line| line.contains("cfg")) {
            let asks = ["target_os", "target_vendor", "target_family", "cfg(unix", "cfg(windows"];
            let asked = asks.iter().any(|question| line.contains(question));
            assert!(inside || !asked, "{}: {line}", source.path);
        }
    }
}

#[test]
fn the_rules_have_no_clock_file_process_or_environment() {
    let outside = [
        "std::fs",
        "std::env",
        "std::process",
        "std::net",
        "std::thread",
        "std::io",
        "Instant",
        "SystemTime",
        "println!",
        "eprintln!",
    ];
    for source in sources("core").iter().filter(|source| !source.is_test()) {
        for line in source.text.lines().filter(|line| !line.trim_start().starts_with("//")) {
            let found = outside.iter().find(|word| line.contains(**word));
            assert!(found.is_none(), "{}: {line}", source.path);
        }
    }
}

#[test]
fn no_file_is_too_long_and_none_is_for_everything() {
    let mut wrong = Vec::new();
    for path in files(&repository().join("crates"), ".rs") {
        let lines = fs::read_to_string(&path).unwrap().lines().count();
        if lines > 600 {
            wrong.push(format!("{} has {lines} lines", path.display()));
        }
        let vague = ["util", "utils", "common", "helper", "helpers", "manager", "misc"];
        let words = path.iter().filter_map(|part| part.to_str()).map(|part| part.trim_end_matches(".rs"));
        // What lies above the repository is not ours to name.
        let ours = words.skip_while(|word| *word != "crates");
        wrong.extend(
            ours.filter(|word| vague.contains(word)).map(|word| format!("{}: {word}", path.display())),
        );
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_module_says_its_job_in_its_first_line() {
    for source in all_sources() {
        let first = source.text.lines().next().unwrap_or_default();
        assert!(first.starts_with("//! ") && first.len() > 10, "{}: {first:?}", source.path);
    }
}

/// Every reason code of a report has a title, a summary and actions in the message tables.
#[test]
fn every_reason_code_has_a_message() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let messages = lockkeeper_engine::messages::Messages::load();
    let english = messages.table(lockkeeper_engine::messages::Language::En);
    let mut folders: Vec<PathBuf> =
        ["engine", "lockkeeper", "server"].map(|name| root.join("crates").join(name).join("src")).into();
    let mut missing = BTreeSet::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                folders.push(entry);
                continue;
            }
            let text = fs::read_to_string(&entry).unwrap_or_default();
            // `Exit::Refused, "CODE"`, also over two lines.
            for after in text.split("Exit::").skip(1) {
                let Some((_, after)) = after.split_once(',') else { continue };
                let Some(after) = after.trim_start().strip_prefix('"') else { continue };
                let code = after.split('"').next().unwrap_or_default();
                let is_code =
                    code.len() > 3 && code.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
                if is_code && !english.contains_key(code) {
                    missing.insert(code.to_owned());
                }
            }
        }
    }
    // Not codes: a part of a warning, and the heading of a table.
    missing.retain(|code| !["FALLBACK", "STATE"].contains(&code.as_str()));
    assert!(missing.is_empty(), "{missing:?}");
}
