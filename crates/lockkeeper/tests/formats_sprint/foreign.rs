//! Other programs write the lock in their own ways.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

use lockkeeper_formats::sprint::Record;
use lockkeeper_testing::{Finished, Started};

use crate::project::{FILE, Project, Reply, utc};

/// What each of them writes: a whole record.
const RECORD: &str =
    r#"printf 'pid: %s\nsession_id: "%s"\nstarted_at: "%s"\nepic_spec: "e"\nlock_version: 1\n' "#;

fn foreign(project: &Project, script: &str, session: &str) -> Started {
    let (pid, now) = (std::process::id().to_string(), utc(std::time::Duration::ZERO));
    Started::of(project.world.command("sh").args(["-c", script, "sh", &pid, session, &now]))
}

/// Requirements 51, 151.
#[test]
fn a_program_that_creates_exclusively_and_ours_never_both_win() {
    let script = format!(
        "{RECORD} \"$1\" \"$2\" \"$3\" > \"$2.new\" && ln \"$2.new\" {FILE}; code=$?; rm \"$2.new\"; exit $code"
    );
    let project = Project::new();
    for round in 0..50 {
        let mut theirs = Vec::new();
        let mut ours = Vec::new();
        for number in 0..3 {
            theirs.push(foreign(&project, &script, &format!("f{number}")));
            ours.push(project.start_acquire(&format!("o{number}"), &[]));
        }
        // For a moment the file of the other program has two names, and our program cannot tell who holds it.
        let replies = ours.into_iter().map(|child| Reply::of(&child.wait()));
        let ours = replies.filter(|reply| reply.status() == "acquired").count();
        let theirs = theirs.into_iter().map(Started::wait).filter(Finished::succeeded).count();
        assert_eq!(ours + theirs, 1, "round {round}: {ours} of ours, {theirs} of theirs");
        assert_eq!(project.names(), [FILE]);
        fs::remove_file(project.file()).unwrap();
    }
}

/// The procedure of the seed's own document can rename its record over ours when it looked before we wrote: that
/// cannot be prevented. What can: ours is never put over theirs, and nobody ever reads half a record.
///
/// Requirements 34, 201.
#[test]
fn the_procedure_of_the_seed_and_ours_never_tear_a_record_nor_does_ours_replace_theirs() {
    let script = format!(
        "test -e {FILE} && exit 75; {RECORD} \"$1\" \"$2\" \"$3\" > \"{FILE}.$2.tmp\" && mv \"{FILE}.$2.tmp\" {FILE} && \
         grep -q \"\\\"$2\\\"\" {FILE}"
    );
    let project = Project::new();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut whole = 0;
            while !done.load(Ordering::Relaxed) {
                if let Ok(text) = fs::read(project.file()) {
                    Record::parse(&text).unwrap_or_else(|error| panic!("{error}: {text:?}"));
                    whole += 1;
                }
                std::thread::yield_now();
            }
            whole
        });
        for round in 0..50 {
            let theirs = foreign(&project, &script, "theirs");
            let ours = project.start_acquire("ours", &[]);
            let reply = Reply::of(&ours.wait());
            let they_have_it = theirs.wait().succeeded();
            let record = Record::parse(project.lock().unwrap().as_bytes()).unwrap();
            let expected = if they_have_it { "theirs" } else { "ours" };
            assert_eq!(record.session_id.as_deref(), Some(expected), "round {round}: {reply:?}");
            assert!(they_have_it || reply.status() == "acquired", "round {round}: {reply:?}");
            assert_eq!(project.names(), [FILE]);
            fs::remove_file(project.file()).unwrap();
        }
        done.store(true, Ordering::Relaxed);
        assert!(reader.join().unwrap() > 0);
    });
}

/// Requirements 42, 46, 50. A failure does not say that a file exists that is not there.
#[test]
fn a_folder_that_somebody_keeps_locked_is_a_failure_after_ten_seconds() {
    let project = Project::new();
    let mut flock = project.world.command("flock");
    let mut stranger = Started::of(flock.arg(project.path()).args(["-c", "echo locked; read x"]));
    assert_eq!(stranger.line(), "locked");
    let begun = std::time::Instant::now();
    let acquire = project.start_acquire("s", &[]);
    let reply = project.run("release", &[]);
    assert_eq!(
        (reply.code, reply.status(), reply.info("exists")),
        (1, "failure", &false.into()),
        "{reply:?}"
    );
    let reply = Reply::of(&acquire.wait());
    assert_eq!((reply.code, reply.errors()), (1, vec!["Failed to write lock file"]));
    assert!(begun.elapsed().as_secs() >= 10, "{:?}", begun.elapsed());
    assert!(project.names().is_empty());
    stranger.finish().code(0);
    assert_eq!(project.acquire("s", &[]).status(), "acquired");
}
