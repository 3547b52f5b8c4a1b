//! How the code is laid out, read from the code itself.
#![expect(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The modules of the crate from the ground up: each may use those of the layers below it.
const LAYERS: [&[&str]; 9] = [
    &["platform"],
    &["clock", "config", "encoding", "location", "messages"],
    &["conflicts", "exec", "history", "lockfile", "stages", "status", "store"],
    &["engine"],
    &["keeper"],
    &["report"],
    &["shape"],
    &["server"],
    &["agent", "cli", "lib", "main", "mcp"],
];

/// The only ones that name a store by its engine, besides the stores themselves.
const CHOOSE_THE_STORE: [&str; 3] = ["keeper/mod.rs", "config.rs", "main.rs"];

/// A file of source, known by its path below `src`.
struct Source {
    path: String,
    text: String,
}

impl Source {
    /// `store` for `store/sqlite/mod.rs`.
    fn module(&self) -> &str {
        self.path.split(['/', '.']).next().unwrap_or_default()
    }

    /// Whether it is only there for tests.
    fn is_test(&self) -> bool {
        self.path.contains("/conformance/")
            || self.path.ends_with("tests.rs")
            || self.path.contains("/tests/")
    }

    /// The modules of this crate that it names; the binary calls it `lockkeeper`.
    fn uses(&self) -> BTreeSet<String> {
        let mut used = BTreeSet::new();
        for line in self.text.lines().filter(|line| !line.trim_start().starts_with("//")) {
            for root in ["crate::", "lockkeeper::"] {
                for (place, _) in line.match_indices(root) {
                    let begins = !line[..place].ends_with(|c: char| c.is_alphanumeric() || c == '_');
                    let rest = &line[place + root.len()..];
                    let name: String =
                        rest.chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect();
                    if begins && !name.is_empty() {
                        used.insert(name);
                    }
                }
            }
        }
        used
    }
}

fn layer(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&module))
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All files below a folder whose name ends like this.
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

fn sources(package: &str) -> Vec<Source> {
    let root = repository().join("crates").join(package).join("src");
    let read = |path: PathBuf| Source {
        path: path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned(),
        text: fs::read_to_string(&path).unwrap(),
    };
    let sources: Vec<Source> = files(&root, ".rs").into_iter().map(read).collect();
    assert!(sources.len() > 10, "{}", root.display());
    sources
}

#[test]
fn modules_use_only_what_lies_below_them() {
    let mut wrong = Vec::new();
    for source in sources("lockkeeper").iter().filter(|source| !source.is_test()) {
        let own = source.module();
        let height = layer(own).unwrap_or_else(|| panic!("{own} has no layer: give it one in LAYERS"));
        for used in source.uses() {
            // What is no module is a function or type at the root, which is made for front ends.
            let below = match layer(&used) {
                Some(other) => other < height || used == own,
                None => height == LAYERS.len() - 1 || used == "core",
            };
            if !below {
                wrong.push(format!("{} uses {used}", source.path));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn only_the_opening_names_a_store_by_its_engine() {
    let sources = sources("lockkeeper");
    let stores: BTreeSet<String> = concrete_stores(&sources).collect();
    assert!(stores.contains("SqliteStore") && stores.contains("MemoryStore"), "{stores:?}");
    for source in sources.iter().filter(|source| source.module() != "store") {
        for store in &stores {
            let named = source.text.contains(store.as_str());
            assert!(
                !named || CHOOSE_THE_STORE.contains(&source.path.as_str()),
                "{} names {store}",
                source.path
            );
        }
    }
}

/// Every engine is held to the one contract.
#[test]
fn every_store_is_in_the_conformance_suite() {
    let sources = sources("lockkeeper");
    let suite = sources.iter().find(|source| source.path == "store/conformance/engines.rs").unwrap();
    for store in concrete_stores(&sources) {
        assert!(suite.text.contains(&store), "{store} is not held to the contract in {}", suite.path);
    }
}

fn concrete_stores(sources: &[Source]) -> impl Iterator<Item = String> {
    let stores = sources.iter().filter(|source| source.module() == "store" && !source.is_test());
    let lines = stores.flat_map(|source| source.text.lines());
    lines
        .filter_map(|line| line.strip_prefix("impl LeaseStore for ")?.split([' ', '<']).next())
        .map(str::to_owned)
}

#[test]
fn what_depends_on_the_system_is_in_platform() {
    for source in sources("lockkeeper").iter().chain(&sources("core")) {
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
    for source in sources("lockkeeper").iter().chain(&sources("core")) {
        let first = source.text.lines().next().unwrap_or_default();
        assert!(first.starts_with("//! ") && first.len() > 10, "{}: {first:?}", source.path);
    }
}
