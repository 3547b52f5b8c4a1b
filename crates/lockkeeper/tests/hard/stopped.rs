//! A process that is stopped inside a write holds the write locks: nobody may hang for ever without a word.

use std::path::Path;
use std::process::Command;

use lockkeeper_testing::{Signal, Started};

use super::site::{Site, until};

/// A process that has a write lock, and is stopped.
fn stopped_with(lock: &Path) -> Started {
    let script = "exec 9<>\"$1\"; flock 9; kill -STOP $$; exec 9>&-; echo on; read -r line";
    let stopped = Started::of(Command::new("sh").args(["-c", script, "writer"]).arg(lock));
    let stat = format!("/proc/{}/stat", stopped.pid());
    until("it is stopped", || std::fs::read_to_string(&stat).unwrap().contains(") T "));
    stopped
}

/// What only reads works. What writes says which process is stopped, and does nothing. When it goes on, all do.
#[test]
fn a_process_that_is_stopped_inside_a_write_is_named() {
    let site = Site::new();
    let (lease, _) = site.acquire("db");
    site.run(&["submit", "--id", "job", "--", "true"]).code(0);
    for (lock, write) in
        [("gate", ["acquire", "log", "--ttl", "1m"]), ("runs.gate", ["submit", "--", "echo", "no"])]
    {
        let mut stopped = stopped_with(&site.store().join(lock));
        let way_out = format!("kill -CONT {}", stopped.pid());
        for read in
            [&["locks"][..], &["why", "db"], &["runs"], &["run", "show", "job"], &["queue", "list"], &[]]
        {
            site.run(read).code(0);
        }
        let diagnosis = site.run(&["doctor"]).code(1);
        assert!(diagnosis.stdout().contains(&way_out), "{diagnosis:?}");
        let refused = site.run(&write).code(69);
        let says = format!("error: process {} (sh -c exec 9<>", stopped.pid());
        assert!(refused.stderr().contains(&says) && refused.stderr().contains(&way_out), "{refused:?}");
        stopped.signal(Signal::CONT);
        assert_eq!(stopped.line(), "on");
        site.run(&write).code(0);
        site.run(&["doctor"]).code(0);
    }
    assert_eq!(site.json(&["runs"])["runs"].as_array().unwrap().len(), 2, "what was refused was not done");
    site.run(&["release", &lease]).code(0);
}
