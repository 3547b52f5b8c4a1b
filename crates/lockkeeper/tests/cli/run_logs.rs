//! `run logs`: exact bytes, parts of a log, following.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use lockkeeper_testing::{World, world};

/// A run that an executor outside looks after, and its folder.
fn running(world: &World, id: &str) -> PathBuf {
    let done = world.run(["--json", "submit", "--id", id, "--", "true"]).code(0).json();
    world.run(["run", "claim", id, "--worker", "w"]).code(0);
    let folder = world.cwd().join(".lockkeeper/runs").join(done["run_id"].as_str().unwrap());
    fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn output_comes_as_it_was_written() {
    let world = world!();
    let folder = running(&world, "a");
    world.run(["run", "logs", "a"]).code(0).says("no output yet");
    let bytes = b"one\n\xff\x00\x1b[31mtwo\x1b[0m\nthree";
    fs::write(folder.join("output.log"), bytes).unwrap();
    assert_eq!(world.run(["run", "logs", "a"]).code(0).bytes(), bytes);
    assert_eq!(world.run(["run", "logs", "a", "-n", "1"]).code(0).bytes(), b"three");
    assert_eq!(world.run(["run", "logs", "a", "--tail", "5"]).code(0).bytes(), b"three");
    assert_eq!(
        world.run(["run", "logs", "a", "--from", "4", "--color", "never"]).code(0).bytes(),
        &bytes[4..]
    );
    assert_eq!(world.run(["run", "logs", "a", "--from", "999"]).code(0).bytes(), b"");
    let line = world.run(["--json", "run", "logs", "a", "--tail", "5"]).code(0).json();
    assert_eq!((line["text"].as_str(), line["from"].as_u64()), (Some("three"), Some(bytes.len() as u64 - 5)));
    fs::write(folder.join("output.1.log"), "first").unwrap();
    world.run(["run", "logs", "a", "--attempt", "9"]).code(0).says("no output of attempt 9");
}

#[test]
fn a_very_long_output_is_shown_without_what_was_cut_out() {
    let world = world!();
    let folder = running(&world, "a");
    let file = fs::File::create(folder.join("output.log")).unwrap();
    let (head, tail) = (b"the beginning\n", b"\nthe end\n");
    file.write_at(head, 0).unwrap();
    let size: u64 = 3 << 30;
    file.write_at(tail, size).unwrap();
    fs::write(folder.join("output.cut"), format!("{{\"cut_from\":14,\"cut_to\":{size}}}")).unwrap();
    let done = world.run(["run", "logs", "a"]).code(0).says("bytes were cut out");
    assert_eq!(done.bytes(), [&head[..], tail].concat());
    assert_eq!(world.run(["run", "logs", "a", "-n", "1"]).code(0).bytes(), b"the end\n");
}

#[test]
fn following_ends_with_the_run_and_misses_nothing() {
    let world = world!();
    let folder = running(&world, "a");
    fs::write(folder.join("output.log"), "one\n").unwrap();
    let mut follower = world.start(["run", "logs", "a", "-f"]);
    assert_eq!(follower.line(), "one");
    append(&folder, "two\n");
    assert_eq!(follower.line(), "two");
    append(&folder, "three\n");
    world.run(["run", "mark", "a", "succeeded"]).code(0);
    assert_eq!(follower.wait().code(0).stdout(), "three\n");
}

/// The second attempt was over before the follower looked again.
#[test]
fn following_goes_through_all_attempts() {
    let world = world!();
    let script =
        "echo $LOCKKEEPER_ATTEMPT; until [ -e go ]; do sleep 0.01; done; exit $((3 - LOCKKEEPER_ATTEMPT))";
    world
        .run(["submit", "--id", "a", "--retries", "2", "--backoff", "1ms", "--", "sh", "-c", script])
        .code(0);
    let worker = world.start(["work", "--drain", "--quiet", "--status-dir", "swarm"]);
    let mut follower = world.start(["run", "logs", "a", "-f"]);
    assert_eq!(follower.line(), "1");
    follower.signal(lockkeeper_testing::Signal::STOP);
    world.touch("go");
    worker.wait().code(0);
    follower.signal(lockkeeper_testing::Signal::CONT);
    assert_eq!(follower.wait().code(0).stdout(), "2\n3\n");
}

/// The folder and the file come after the follower.
#[test]
fn following_begins_before_the_run_does() {
    let world = world!();
    world
        .run([
            "submit",
            "--id",
            "a",
            "--retries",
            "1",
            "--backoff",
            "1ms",
            "--",
            "sh",
            "-c",
            "echo attempt $LOCKKEEPER_ATTEMPT; exit $((2 - LOCKKEEPER_ATTEMPT))",
        ])
        .code(0);
    let follower = world.start(["run", "logs", "a", "--follow"]);
    world.run(["work", "--drain", "--quiet", "--status-dir", "swarm"]).code(0);
    let done = follower.wait().code(0);
    assert!(done.stdout().ends_with("attempt 2\n"), "{}", done.stdout());
    assert_eq!(world.run(["run", "logs", "a", "--attempt", "1"]).code(0).stdout(), "attempt 1\n");
    assert_eq!(world.run(["run", "logs", "a", "--attempt", "2"]).code(0).stdout(), "attempt 2\n");
}

#[test]
fn a_reader_that_goes_away_ends_the_following() {
    let world = world!();
    let folder = running(&world, "a");
    fs::write(folder.join("output.log"), "one\n").unwrap();
    world.shell("lockkeeper run logs a -f | head -n 1").code(0).prints("one");
}

fn append(folder: &std::path::Path, text: &str) {
    use std::io::Write;
    let mut file = fs::OpenOptions::new().append(true).open(folder.join("output.log")).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}
