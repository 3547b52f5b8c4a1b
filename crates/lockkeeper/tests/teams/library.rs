//! A program that uses the library on a store of several machines.

use std::io::{BufRead, BufReader, Read, stdin};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::Duration;

use lockkeeper::{Keeper, Loss};
use lockkeeper_testing::{World, this_test};

use super::team::Team;

/// A test of this file that runs as a program of its own, in the folder and with the settings of a machine.
struct Program {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Program {
    fn start(world: &World, name: &str) -> Self {
        let this = this_test(&format!("library::{name}"));
        let mut command = world.command(this.get_program());
        command.args(this.get_args()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, input, output }
    }

    /// Reads up to the line that begins with this word. Returns the rest of it.
    fn says(&mut self, word: &str) -> String {
        for line in self.output.by_ref().lines() {
            if let Some(rest) = line.unwrap().strip_prefix(word) {
                return rest.trim().to_owned();
            }
        }
        panic!("it ended without {word}");
    }

    /// Closes its input, on which it waits, and waits for its end.
    fn end(mut self) {
        drop(self.input.take());
        assert!(self.child.wait().unwrap().success());
    }
}

/// Says something to the test that has started this program.
fn say(line: &str) {
    println!("\n{line}");
}

fn wait_for_the_end_of_input() {
    stdin().read_to_end(&mut Vec::new()).unwrap();
}

/// Requirement 157. A program and the command never choose two different stores.
#[test]
fn a_program_uses_the_store_that_the_settings_name() {
    let Some(team) = Team::new() else { return };
    let (one, other) = (team.machine(), team.machine());
    let mut program = Program::start(&one.world, "hold_and_submit");
    let token: u64 = program.says("token").parse().unwrap();
    other.world.run(["exec", "db", "--no-wait", "--", "true"]).code(75).says("lib:");
    program.end();
    let next =
        other.world.run(["exec", "db", "--no-wait", "--", "sh", "-c", "echo $LOCKKEEPER_TOKEN"]).code(0);
    assert!(next.stdout().trim().parse::<u64>().unwrap() > token);
    // The run of the library is in the same queue, and its folder is looked up in the clone of the worker.
    other.world.run(["work", "--drain"]).code(0);
    other.world.run(["run", "wait", "of-the-library"]).code(0);
    assert!(other.world.path("made").exists() && !one.world.path("made").exists());
}

#[test]
#[ignore = "is started by a_program_uses_the_store_that_the_settings_name"]
fn hold_and_submit() {
    let keeper = Keeper::discover().unwrap();
    let guard = keeper.lock("db").acquire().unwrap();
    keeper.submit(["touch", "made"]).id("of-the-library").enqueue().unwrap();
    say(&format!("token {}", guard.token()));
    wait_for_the_end_of_input();
    assert!(!guard.is_lost().unwrap());
    guard.release().unwrap();
}

/// Invariant 1. A program that cannot reach the server is told while its session still lasts.
#[test]
fn a_program_that_is_cut_off_is_told_before_another_machine_gets_the_lock() {
    let Some(team) = Team::with_session("6s") else { return };
    let (one, other) = (team.machine(), team.machine());
    let mut program = Program::start(&one.world, "hold_until_lost");
    program.says("held");
    let next = other.world.start(["exec", "db", "--", "true"]);
    other.world.until_waiting(1);
    one.link.silence(true);
    program.says("lost");
    other.world.until_waiting(1);
    next.wait().code(0);
    program.end();
}

#[test]
#[ignore = "is started by a_program_that_is_cut_off_is_told_before_another_machine_gets_the_lock"]
fn hold_until_lost() {
    let keeper = Keeper::discover().unwrap();
    let guard = keeper.lock("db").acquire().unwrap();
    guard
        .on_lost(|loss| {
            assert_eq!(loss, Loss::Expired);
            say("lost");
        })
        .unwrap();
    say("held");
    assert!(guard.wait_until_lost(Duration::from_secs(60)).unwrap());
    wait_for_the_end_of_input();
}

/// A setting that cannot be used is an error, and never another store.
#[test]
fn a_program_refuses_settings_that_name_no_store() {
    let world = World::new(env!("CARGO_BIN_EXE_lockkeeper"))
        .write("lockkeeper.toml", "store = \"postgres://me@localhost/locks\"\n");
    let mut program = Program::start(&world, "say_why_there_is_no_store");
    let said = program.says("refused");
    assert!(said.contains("name of a project") && said.contains("project = "), "{said}");
    program.end();
    assert!(!world.path(".lockkeeper").exists());
}

#[test]
#[ignore = "is started by a_program_refuses_settings_that_name_no_store"]
fn say_why_there_is_no_store() {
    say(&format!("refused {}", Keeper::discover().unwrap_err()));
}
