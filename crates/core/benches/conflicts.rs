//! Benchmark of conflict detection with many groups, compared with a sort of their literal prefixes.
//!
//! `scripts/bench conflicts` runs it and exits 1 when a limit is missed. Numbers are CPU time, and the best of
//! several rounds in which all variants take turns, because other load on the machine only adds to them.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    clippy::expect_used,
    reason = "core reads no clock and prints nothing, a measurement does"
)]

use std::hint::black_box;
use std::process::ExitCode;
use std::time::Duration;

use lockkeeper_core::conflict::{Action, Group, Rule, Severity, detect};
use lockkeeper_core::overlap::overlap;
use lockkeeper_core::pattern::Pattern;
use rustix::time::{ClockId, clock_gettime};

const FEW: usize = 1_000;
const MANY: usize = 10_000;
const ROUNDS: usize = 15;

/// The limit of the time of the detection, as a multiple of the time of the sort.
const MOST_SORTS: f64 = 20.0;

/// The limit of the time for ten times as many groups, as a multiple. Linear growth is 10, n log n is 13.
const MOST_GROWTH: f64 = 20.0;

/// What the bare sort sorts patterns by.
type Key = fn(&Pattern) -> &str;

fn main() -> ExitCode {
    // `cargo test --benches` only wants to know that it starts.
    if std::env::args().any(|argument| argument == "--test") {
        return ExitCode::SUCCESS;
    }
    let mut kept = true;
    let start: Key = Pattern::literal_prefix;
    // Where all literal prefixes are equal, sorting them costs nothing. So these patterns are sorted by their whole text.
    let text: Key = Pattern::as_str;
    kept &= growth("own folders, some reach into another's", folders, start);
    kept &= growth("one kind of file in each folder", kinds, start);
    kept &= growth("files by name, in any folder", names, text);
    kept &= growth("folders by name, behind a wildcard", features, text);
    wide();
    all_pairs();
    if kept { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints how long the detection takes, compared with the sort and with a tenth of the groups. Says whether both limits are met.
fn growth(name: &str, make: fn(usize) -> Vec<Group>, key: Key) -> bool {
    let (few, many, rules) = (make(FEW), make(MANY), rules());
    let found = detect(&many, &rules, Action::DowngradeToSerial).conflicts.len();
    let [small, large, sort] = alternate([
        &mut || drop(black_box(detect(&few, &rules, Action::DowngradeToSerial))),
        &mut || drop(black_box(detect(&many, &rules, Action::DowngradeToSerial))),
        &mut || {
            let mut keys: Vec<&str> = many.iter().flat_map(|group| &group.paths).map(key).collect();
            keys.sort_unstable();
            black_box(keys);
        },
    ]);
    let sorts = large.as_secs_f64() / sort.as_secs_f64();
    let growth = large.as_secs_f64() / small.as_secs_f64();
    let kept = sorts <= MOST_SORTS && growth <= MOST_GROWTH;
    println!(
        "{name}: {MANY} groups, {found} conflicts in {large:.2?}; sort {sort:.2?}, ratio {sorts:.1} (≤ {MOST_SORTS}); \
         {FEW} groups {small:.2?}, growth {growth:.1} (≤ {MOST_GROWTH}){}",
        if kept { "" } else { "  MISSED" }
    );
    kept
}

/// Patterns that overlap everything: prints the time for each conflict.
fn wide() {
    let mut groups = folders(MANY);
    groups.extend((0..20).map(|number| group(number, &[&format!("**/*.kind{number}")])));
    let begin = worked();
    let findings = detect(&groups, &rules(), Action::DowngradeToSerial);
    let taken = worked() - begin;
    let each = taken / u32::try_from(findings.conflicts.len()).expect("the number of conflicts is small");
    println!(
        "with 20 patterns that overlap all: {} conflicts in {taken:.2?}, {each:.2?} each",
        findings.conflicts.len()
    );
}

/// Every two groups compared, as it would be without the index.
fn all_pairs() {
    let groups = folders(MANY);
    let begin = worked();
    let mut found = 0;
    for (place, a) in groups.iter().enumerate() {
        for b in &groups[place + 1..] {
            let meets = |one: &Pattern| b.paths.iter().any(|other| overlap(one, other).is_some());
            found += usize::from(a.paths.iter().any(meets));
        }
    }
    println!("all pairs of {MANY} groups: {found} conflicts in {:.2?}", worked() - begin);
}

/// Each group has a folder; one in fifty reaches into that of another.
fn folders(count: usize) -> Vec<Group> {
    let folder = |number: usize| format!("packages/team{}/part{}", number % 97, number / 97);
    (0..count)
        .map(|number| {
            // A step that visits all numbers, so that the input is not sorted.
            let own = number * 7919 % count;
            let path =
                if number % 50 == 7 { folder((own + 1) % count) + "/src/*.rs" } else { folder(own) + "/**" };
            group(number, &[&path])
        })
        .collect()
}

/// Patterns without a literal prefix: only their suffixes differ.
fn names(count: usize) -> Vec<Group> {
    (0..count).map(|number| group(number, &[&format!("**/unit{}.test.ts", number * 7919 % count)])).collect()
}

/// Many patterns in one folder, with a few different suffixes.
fn kinds(count: usize) -> Vec<Group> {
    (0..count)
        .map(|number| {
            let own = number * 7919 % count;
            group(number, &[&format!("packages/part{}/**/*.kind{}", own / 20, own % 20)])
        })
        .collect()
}

/// Patterns that differ only in a component after a wildcard.
fn features(count: usize) -> Vec<Group> {
    (0..count)
        .map(|number| group(number, &[&format!("packages/*/src/feature{}/**", number * 7919 % count)]))
        .collect()
}

fn group(number: usize, paths: &[&str]) -> Group {
    let paths = paths.iter().map(|path| path.parse().expect("a pattern")).collect();
    Group { id: format!("group-{number}"), paths }
}

fn rules() -> Vec<Rule> {
    let rule = |name: &str, action, paths: &[&str]| Rule {
        name: name.to_owned(),
        severity: Severity::Fatal,
        action,
        priority: Rule::DEFAULT_PRIORITY,
        paths: paths.iter().map(|path| path.parse().expect("a pattern")).collect(),
    };
    vec![
        rule("same_file_write", Action::DowngradeToSerial, &["**/*.ts", "**/*.js"]),
        rule("shared_config", Action::MutexLock, &["package.json", "tsconfig.json", ".workflow/*.yml"]),
        rule("sources", Action::QueueExecution, &["**/*.rs"]),
    ]
}

/// Runs the functions in turns, and returns the best time of each.
fn alternate<const N: usize>(mut things: [&mut dyn FnMut(); N]) -> [Duration; N] {
    let mut best = [Duration::MAX; N];
    for _ in 0..ROUNDS {
        for (thing, best) in things.iter_mut().zip(&mut best) {
            let begin = worked();
            thing();
            *best = (worked() - begin).min(*best);
        }
    }
    best
}

/// The CPU time of this thread so far.
fn worked() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).expect("it grows from zero")
}
