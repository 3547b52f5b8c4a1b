//! The output of a run, read on machines that do not execute it.

use std::fs;
use std::time::Instant;

use lockkeeper_testing::processes::pid_in;
use lockkeeper_testing::until;

use super::team::Team;

/// The first and the last part that the store keeps.
const PART: usize = 256 * 1024;

#[test]
fn output_is_read_live_on_another_machine() {
    let Some(team) = Team::new() else { return };
    let (one, other) = (team.machine(), team.machine());
    let script = "echo first; echo $$ > pid; until [ -e go ]; do sleep 0.05; done; echo second; \
                  echo now > said; until [ -e end ]; do sleep 0.05; done; printf last; exit 3";
    other.world.run(["submit", "--id", "a", "--", "sh", "-c", script]).code(0);
    let _worker = other.world.start(["work"]);
    pid_in(&other.world.path("pid"));
    let follower = one.world.start(["run", "logs", "a", "--follow"]);
    let logs = || one.world.run(["run", "logs", "a"]).code(0).stdout();
    until("the first line is there", || logs() == "first\n");
    other.world.touch("go");
    until("it is said", || other.world.path("said").exists());
    let said_at = Instant::now();
    until("the second line is there", || logs() == "first\nsecond\n");
    // Within a second, on a machine that has nothing else to do.
    assert!(said_at.elapsed().as_secs() < 5, "{:?}", said_at.elapsed());
    other.world.touch("end");
    let followed = follower.wait().code(0);
    assert_eq!(followed.stdout(), "first\nsecond\nlast");
    one.world.run(["run", "logs", "a", "-n", "2"]).code(0).prints("second\nlast");
    let line = one.world.run(["run", "logs", "a", "--from", "6", "--json"]).code(0);
    assert_eq!(line.json()["text"], "second\nlast");
    one.world.run(["run", "show", "a"]).code(0).prints("last");
}

/// The last part is kept also if the machine of the worker cannot be asked any more.
#[test]
fn the_first_and_the_last_part_of_a_long_output_stay() {
    let Some(team) = Team::new() else { return };
    let (one, other) = (team.machine(), team.machine());
    let script = "echo begin; head -c 3000000 /dev/zero | tr '\\0' x; echo; echo end";
    one.world.run(["submit", "--id", "a", "--", "sh", "-c", script]).code(0);
    one.world.run(["submit", "--id", "silent", "--", "true"]).code(0);
    other.world.run(["work", "--drain"]).code(0);
    other.link.silence(true);
    let printed = one.world.run(["run", "logs", "a"]).code(0);
    let text = printed.stdout();
    assert!(text.starts_with("begin\nxxx") && text.ends_with("xxx\nend\n"));
    assert!((2 * PART..3 * PART).contains(&text.len()), "{}", text.len());
    let missing = 3_000_011 - text.len();
    let _ = printed
        .says(&format!("{missing} bytes were cut out of this very long output"))
        .says("has the whole output");
    assert_eq!(one.world.run(["run", "logs", "a", "-n", "1"]).code(0).stdout(), "end\n");
    assert_eq!(one.world.run(["run", "logs", "silent"]).code(0).stdout(), "");
    // The machine that has the file reads all of it.
    other.link.silence(false);
    assert_eq!(other.world.run(["run", "logs", "a"]).code(0).stdout().len(), 3_000_011);
    one.world.run(["runs", "prune", "--older-than", "0s"]).code(0);
    one.world.run(["run", "logs", "a"]).code(2);
}

/// Each machine has the output of the attempts that it made, and reads those of the others in the store.
#[test]
fn attempts_of_several_machines_have_their_own_output() {
    let Some(team) = Team::new() else { return };
    let (one, other) = (team.machine(), team.machine());
    let here = one.world.cwd().display();
    let script = format!(
        "echo attempt $LOCKKEEPER_ATTEMPT; echo $$ > {here}/began-$LOCKKEEPER_ATTEMPT; \
         until [ -e {here}/go-$LOCKKEEPER_ATTEMPT ]; do sleep 0.05; done; [ $LOCKKEEPER_ATTEMPT = 3 ]"
    );
    let submit = ["submit", "--id", "a", "--retries", "2", "--backoff", "0s", "--", "sh", "-c", &script];
    one.world.run(submit).code(0);
    for (machine, attempt) in [&one, &other, &one].into_iter().zip(1..) {
        let mut worker = machine.world.start(["work"]);
        pid_in(&one.world.path(&format!("began-{attempt}")));
        // Its guardian writes the end, and claims nothing.
        worker.kill();
        one.world.touch(&format!("go-{attempt}"));
    }
    one.world.run(["run", "wait", "a"]).code(0);
    for machine in [&one, &other] {
        for attempt in ["1", "2", "3"] {
            let printed = machine.world.run(["run", "logs", "a", "--attempt", attempt]).code(0);
            assert_eq!(printed.stdout(), format!("attempt {attempt}\n"));
        }
        assert_eq!(machine.world.run(["run", "logs", "a"]).code(0).stdout(), "attempt 3\n");
    }
}

/// The command neither waits nor ends because its output cannot be copied.
#[test]
fn a_command_goes_on_while_its_output_cannot_be_copied() {
    let Some(team) = Team::new() else { return };
    let (one, other) = (team.machine(), team.machine());
    let script = "echo $$ > pid; until [ -e go ]; do sleep 0.05; done; head -c 2000000 /dev/zero; echo; echo end; \
                  echo now > done";
    other.world.run(["submit", "--id", "a", "--", "sh", "-c", script]).code(0);
    let worker = other.world.start(["work", "--drain"]);
    pid_in(&other.world.path("pid"));
    other.link.silence(true);
    other.world.touch("go");
    until("the command has ended", || other.world.path("done").exists());
    other.link.silence(false);
    worker.wait().code(0);
    assert_eq!(one.world.run(["run", "logs", "a", "-n", "1"]).code(0).stdout(), "end\n");
}

/// The guardian goes on with the output of a worker that was killed.
#[test]
fn the_output_of_a_killed_worker_is_complete() {
    let Some(team) = Team::new() else { return };
    let (one, other) = (team.machine(), team.machine());
    let script = "echo first; echo $$ > pid; until [ -e go ]; do sleep 0.05; done; echo last";
    other.world.run(["submit", "--id", "a", "--", "sh", "-c", script]).code(0);
    let mut worker = other.world.start(["work"]);
    pid_in(&other.world.path("pid"));
    until("it is copied", || one.world.run(["run", "logs", "a"]).code(0).stdout() == "first\n");
    worker.kill();
    fs::write(other.world.path("go"), "").unwrap();
    one.world.run(["run", "wait", "a"]).code(0);
    assert_eq!(one.world.run(["run", "logs", "a"]).code(0).stdout(), "first\nlast\n");
}
