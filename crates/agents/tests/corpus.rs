//! Commands that agents run, judged by strace: what the shell reader says is compared with what a command really writes.
#![expect(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

#[path = "corpus/cases.rs"]
mod cases;
#[path = "corpus/judge.rs"]
mod judge;

use std::path::{Path, PathBuf};

use cases::{Case, Expect};
use judge::{Scratch, Written};
use lockkeeper_agents::{Entry, Place, Target, Writes, shell_writes};

const COMMANDS: &str = include_str!("data/corpus.txt");

fn read(case: &Case, scratch: &Scratch) -> Writes {
    let entry = |path: &Path| match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => Some(Entry::Folder),
        Ok(_) => Some(Entry::File),
        Err(_) => None,
    };
    let home = scratch.home();
    let names = |folder: &Path| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    };
    let place = Place {
        cwd: scratch.repository(),
        home: Some(&home),
        entry: &entry,
        names: &names,
        text: &|path: &Path| std::fs::read_to_string(path).ok(),
    };
    shell_writes(&case.command, &place)
}

/// What is wrong with the reader's answer, in the light of what was written.
fn faults(case: &Case, writes: &Writes, written: &Written, repository: &Path) -> Vec<String> {
    let mut faults = Vec::new();
    let covered = |path: &PathBuf| writes.paths.iter().any(|target| target.covers(path));
    let everything = || written.kept.iter().chain(&written.temporary);
    let idle = |target: &&Target| !everything().any(|path| target.covers(path));
    let inside = |target: &&Target| match target {
        Target::File(path) | Target::Below(path) => path.starts_with(repository),
        Target::Pattern(pattern) => pattern.starts_with(repository.to_str().unwrap()),
    };
    let missed =
        written.kept.iter().filter(|path| !covered(path)).map(|path| format!("misses {}", path.display()));
    let claimed = writes.paths.iter().filter(inside).filter(idle).map(|target| format!("claims {target:?}"));
    match case.expect {
        Expect::Reads => {
            faults
                .extend(written.kept.iter().map(|path| format!("is no reading command: {}", path.display())));
            if !writes.is_nothing() {
                faults.push(format!("is a reading command, but: {writes:?}"));
            }
        }
        Expect::Writes | Expect::Maybe => {
            faults.extend(missed);
            if case.expect == Expect::Writes {
                faults.extend(claimed);
            }
            if !writes.unknown.is_empty() || writes.paths.is_empty() {
                faults.push(format!("is a plain write, but: {writes:?}"));
            }
        }
        Expect::Unknown => {
            faults.extend(claimed);
            if writes.unknown.is_empty() {
                faults.push(format!("cannot be known before, but: {writes:?}"));
            }
        }
        Expect::Tree => {
            if !writes.git.iter().any(|used| used.whole_tree) {
                faults.push(format!("changes the whole tree, but: {writes:?}"));
            }
        }
        Expect::Index => {
            faults.extend(missed.chain(claimed));
            if writes.git.is_empty()
                || writes.git.iter().any(|used| used.whole_tree)
                || !writes.unknown.is_empty()
            {
                faults.push(format!("changes what git shares and no tree, but: {writes:?}"));
            }
        }
        Expect::Formats => {
            if writes.formats.is_empty() {
                faults.push(format!("formats what it finds, but: {writes:?}"));
            }
        }
    }
    faults
}

#[test]
fn the_reader_agrees_with_strace() {
    let cases = cases::parse(COMMANDS);
    assert!(cases.len() >= 150, "{} cases", cases.len());
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let halves = cases.chunks(cases.len().div_ceil(4));
        let workers: Vec<_> =
            halves.map(|part| scope.spawn(|| part.iter().flat_map(judged).collect::<Vec<_>>())).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    assert!(wrong.is_empty(), "{} faults:\n{}", wrong.len(), wrong.join("\n"));
}

fn judged(case: &Case) -> Vec<String> {
    let scratch = Scratch::new();
    let writes = read(case, &scratch);
    let written = scratch.written_by(&case.command);
    let faults = faults(case, &writes, &written, scratch.repository());
    faults.into_iter().map(|fault| format!("line {}: {}\n    {fault}", case.line, case.command)).collect()
}

/// The judge itself is right: it sees relative names, other folders, renames and temporary files.
#[test]
fn strace_sees_what_a_command_writes() {
    let scratch = Scratch::new();
    let written = scratch.written_by(
        "cd src && (cd ../docs; echo x > new.md) && mv a.rs c.rs; sed -i s/a/b/ lib.rs; cat b.rs",
    );
    let names: Vec<_> =
        written.kept.iter().map(|path| path.strip_prefix(scratch.repository()).unwrap()).collect();
    let expected = ["docs/new.md", "src/a.rs", "src/c.rs", "src/lib.rs"].map(Path::new);
    assert_eq!(names, expected);
}
