//! Whole commands, process start included.

use std::process::Stdio;

use lockkeeper::Keeper;

use crate::measure::{Row, alternate, lockkeeper, median, quiet, run};

/// `exec NAME -- true` against `flock FILE true`.
pub fn exec_against_flock() -> Vec<Row> {
    let folder = tempfile::tempdir().expect("a folder");
    let (state, file) = (folder.path().join("state"), folder.path().join("flock"));
    let mut ours = || run(quiet(lockkeeper()).arg("--dir").arg(&state).args(["exec", "db", "--", "true"]));
    let mut bare = || run(quiet("flock").arg(&file).arg("true"));
    let mut nothing = || run(&mut quiet("true"));
    let [ours, bare, nothing] = alternate(300, [&mut ours, &mut bare, &mut nothing]);
    vec![
        Row::times("exec NAME -- true, against flock(1)", ours, bare, 1.5),
        Row { limit: None, ..Row::times("  (for scale: true alone)", nothing, bare, 0.0) },
    ]
}

/// `acquire` and `release`, 20,000 times one after the other: the last thousand pairs against the first of a new store.
pub fn twenty_thousand_pairs() -> Vec<Row> {
    let folder = tempfile::tempdir().expect("a folder");
    let pid = std::process::id().to_string();
    let pair = |state: &str| {
        let command = || {
            let mut command = quiet(lockkeeper());
            command.arg("--dir").arg(folder.path().join(state));
            command
        };
        let acquired = command().args(["acquire", "db", "--pid", &pid]).stdout(Stdio::piped()).output();
        let lease = String::from_utf8(acquired.expect("it starts").stdout).expect("the id of a lease");
        run(command().args(["release", lease.trim_end()]));
    };
    for _ in 0..19_000 {
        pair("old");
    }
    let [old, new] = alternate(1_000, [&mut || pair("old"), &mut || pair("new")]);
    vec![Row::times("acquire and release: the last 1,000 of 20,000 pairs", old, new, 1.5)]
}

/// `locks` with 10,000 leases in the store.
pub fn listing_of_ten_thousand() -> Vec<Row> {
    let folder = tempfile::tempdir().expect("a folder");
    let keeper = Keeper::open(folder.path()).expect("a store");
    let guards: Vec<_> = (0..10_000)
        .map(|number| keeper.lock(&format!("n{number}")).try_acquire().expect("it is free"))
        .collect();
    let samples = (0..10).map(|_| {
        let started = std::time::Instant::now();
        run(quiet(lockkeeper()).arg("--dir").arg(folder.path()).args(["--json", "locks"]));
        started.elapsed()
    });
    let listing = median(samples.collect());
    drop(guards);
    vec![Row::times(
        "locks over 10,000 leases, against 100 ms",
        listing,
        std::time::Duration::from_millis(100),
        1.0,
    )]
}
