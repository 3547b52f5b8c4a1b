//! The command `store migrate`: from a folder to a server and back, refusals, kills and breaks in the middle.

use std::fs;

use lockkeeper_platform::signal::Signal;
use lockkeeper_testing::processes::pid_in;
use lockkeeper_testing::{Break, Finished, Started, World, until};
use serde_json::{Value, json};

use super::runs::with_clone;
use super::server;
use super::team::{Machine, Team};

const FIRST: &str = "sqlite:first";
const LAST: &str = "sqlite:last";

/// The address of the store of a machine, as `--store` takes it.
pub(crate) fn address(machine: &Machine) -> String {
    server::url(machine.link.address())
}

/// Runs a command on a store.
fn on(world: &World, store: &str, args: &[&str]) -> Finished {
    world.run([&args[..1], &["--store", store], &args[1..]].concat())
}

/// Everything that a store shows about requests and runs.
fn shown(world: &World, store: &str) -> Vec<Value> {
    let list = |args: &[&str]| on(world, store, args).code(0).json();
    let mut shown =
        vec![list(&["requests", "--limit", "1000", "--json"]), list(&["runs", "--limit", "1000", "--json"])];
    for run in shown[1]["runs"].as_array().unwrap().clone() {
        shown.push(list(&["run", "show", run["id"].as_str().unwrap(), "--json"]));
    }
    shown
}

/// A folder with runs that have ended, and a queue.
fn fill(world: &World, store: &str) {
    let submit = |args: &[&str]| {
        on(world, store, &[&["submit"], args].concat()).code(0);
    };
    submit(&["--id", "good", "--key", "nightly", "--", "true"]);
    submit(&["--id", "bad", "--", "sh", "-c", "exit 3"]);
    submit(&["--id", "asks", "--", "sh", "-c", "exit 10"]);
    on(world, store, &["work", "--drain"]).code(1);
    submit(&["--id", "second", "--after", "good", "--lock", "db", "--", "true"]);
    submit(&["--id", "third", "--after", "second", "--priority", "9", "--queue-timeout", "1h", "--", "true"]);
    submit(&["--id", "first", "--priority", "5", "--env", "COLOR=blue", "--", "true"]);
    submit(&["--id", "no", "--", "true"]);
    on(world, store, &["run", "cancel", "no"]).code(0);
}

/// The token of a lease that is acquired and released.
fn token(world: &World, store: &str) -> u64 {
    let out = on(world, store, &["exec", "db", "--", "sh", "-c", "echo $LOCKKEEPER_TOKEN"]).code(0).stdout();
    out.trim().parse().unwrap()
}

/// Invariant 2. Requirement 157.
#[test]
fn records_go_to_a_server_and_back_as_they_were() {
    let Some(team) = Team::new() else { return };
    let machine = with_clone(team.machine());
    let (world, server) = (&machine.world, address(&machine));
    fill(world, FIRST);
    let before = shown(world, FIRST);
    let mut tokens = vec![token(world, FIRST)];
    let moved = world.run(["store", "migrate", FIRST, &server, "--json"]).code(0).json();
    assert_eq!(
        (&moved["requests"], &moved["runs"], &moved["moved_before"]),
        (&7.into(), &7.into(), &false.into())
    );
    tokens.push(token(world, &server));
    let there = shown(world, &server);
    let folder = fs::canonicalize(world.cwd()).unwrap().display().to_string();
    assert_eq!(there[0]["requests"][0]["cwd"], ".", "a folder of the project is relative there");
    on(world, &server, &["submit", "--id", "later", "--", "true"]).code(0);
    on(world, &server, &["run", "cancel", "later"]).code(0);
    let there = shown(world, &server);
    world.run(["store", "migrate", &server, LAST]).code(0).prints("8 requests, 8 runs");
    tokens.push(token(world, LAST));
    let after = shown(world, LAST);
    assert_eq!(after[0]["requests"][0]["cwd"], folder.as_str());
    assert_eq!(without(&after), without(&there));
    let earlier = |list: &Value| list.as_array().unwrap().iter().skip(1).cloned().collect::<Vec<_>>();
    let (after, before) = (without(&after), without(&before));
    assert_eq!(earlier(&after[0]["requests"]), before[0]["requests"].as_array().unwrap()[..]);
    assert_eq!(earlier(&after[1]["runs"]), before[1]["runs"].as_array().unwrap()[..]);
    assert_eq!(after[3..], before[2..], "each run with its request and its events");
    // The queue goes on in its order.
    on(world, LAST, &["work", "--drain"]).code(0);
    let ended = on(world, LAST, &["run", "show", "third", "--json"]).json();
    assert_eq!(ended["run"]["status"], "succeeded", "{ended}");
    assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
    // A folder that was moved refuses everything, and names the other one.
    for args in [&["runs"][..], &["exec", "db", "--", "true"], &["submit", "--", "true"], &["locks"]] {
        on(world, FIRST, args).code(69).says("was moved to postgres://");
        on(world, &server, args).code(69).says("was moved to").says("last");
    }
}

/// What depends neither on where the project is nor on the clock of the store.
fn without(shown: &[Value]) -> Vec<Value> {
    let mut shown = shown.to_vec();
    for value in &mut shown {
        strip(value);
    }
    shown
}

fn strip(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|key, _| !["cwd", "log", "gives_up_at", "host"].contains(&key.as_str()));
            fields.values_mut().for_each(strip);
        }
        Value::Array(items) => items.iter_mut().for_each(strip),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Invariant 2. The records of the first store are older copies, and its tokens are smaller.
#[test]
fn one_can_go_back_to_the_first_store() {
    let Some(team) = Team::new() else { return };
    let machine = team.machine();
    let (world, server) = (&machine.world, address(&machine));
    fill(world, FIRST);
    world.run(["store", "migrate", FIRST, &server]).code(0);
    on(world, &server, &["work", "--drain"]).code(0);
    let (there, token_there) = (shown(world, &server), token(world, &server));
    world.run(["store", "migrate", &server, FIRST]).code(0);
    assert_eq!(without(&shown(world, FIRST)), without(&there));
    assert!(token(world, FIRST) > token_there);
    on(world, FIRST, &["submit", "--id", "new", "--", "true"]).code(0);
    // And there again.
    world.run(["store", "migrate", FIRST, &server]).code(0);
    on(world, &server, &["work", "--drain"]).code(0);
    assert_eq!(on(world, &server, &["run", "show", "new", "--json"]).json()["run"]["status"], "succeeded");
}

#[test]
fn a_store_in_use_is_not_moved() {
    let Some(team) = Team::new() else { return };
    let machine = team.machine();
    let server = address(&machine);
    let world = machine.world.set("LOCKKEEPER_STORE", FIRST);
    let migrate = || world.run(["store", "migrate", FIRST, &server]);
    let holder = world.hold(&["db", "--owner", "agent:ann"]);
    let waiter = world.start(["exec", "db", "--owner", "agent:ben", "--", "true"]);
    world.until_waiting(1);
    migrate().code(75).says("db is held by agent:ann").says("agent:ben waits for db").says("run it again");
    let report = world.run(["store", "migrate", FIRST, &server, "--json"]).code(75).json();
    assert_eq!(report["error"]["reason_code"], "STORE_IN_USE", "{report}");
    holder.finish().code(0);
    waiter.wait().code(0);
    world
        .run(["submit", "--id", "a", "--", "sh", "-c", "echo $$ > pid; until [ -e go ]; do sleep 0.05; done"])
        .code(0);
    let worker = world.start(["work"]);
    pid_in(&world.path("pid"));
    migrate().code(75).says("run RUN-").says("worker ");
    world.touch("go");
    world.run(["run", "wait", "a"]).code(0);
    migrate().code(75).says("worker ");
    worker.signal(Signal::TERM);
    worker.wait().code(0);
    // Nothing was changed by the refusals.
    world.run(["runs"]).code(0).prints("succeeded");
    migrate().code(0);
}

#[test]
fn a_target_with_records_and_a_source_without_a_store_are_refused() {
    let Some(team) = Team::new() else { return };
    let machine = team.machine();
    let (world, server) = (&machine.world, address(&machine));
    on(world, FIRST, &["submit", "--", "true"]).code(0);
    on(world, &server, &["submit", "--id", "mine", "--", "true"]).code(0);
    world.run(["store", "migrate", FIRST, &server]).code(75).says("is not empty");
    world.run(["store", "migrate", &server, FIRST]).code(75).says("is not empty");
    world.run(["store", "migrate", FIRST, "sqlite:./first"]).code(2).says("the same store");
    world.run(["store", "migrate", "sqlite:nowhere", LAST]).code(69).says("there is no store");
    assert!(!world.path("nowhere").exists());
    world.run(["store", "migrate", "mysql:x", LAST]).code(2);
    on(world, FIRST, &["submit", "--", "true"]).code(0);
    world.run(["store", "migrate", FIRST, LAST]).code(0);
    world.run(["store", "migrate", FIRST, &server]).code(75).says("was moved to sqlite:");
    world.run(["store", "migrate", FIRST, LAST]).code(0).prints("nothing was left to do");
}

fn many(world: World) -> World {
    let jobs: Vec<Value> =
        (0..450).map(|number| json!({ "id": format!("j{number}"), "command": ["true"] })).collect();
    let world = world.write("jobs.json", &Value::from(jobs).to_string());
    on(&world, FIRST, &["submit", "--from", "jobs.json"]).code(0);
    world
}

/// Moves again after an interruption, and looks whether everything is there, once.
fn finish(machine: &Machine, before: &[Value]) {
    let (world, server) = (&machine.world, address(machine));
    world.run(["store", "migrate", FIRST, &server]).code(0);
    assert_eq!(without(&lists(world, &server)), without(before));
    on(world, FIRST, &["runs"]).code(69).says("was moved to");
}

fn lists(world: &World, store: &str) -> Vec<Value> {
    ["requests", "runs"]
        .map(|list| on(world, store, &[list, "--limit", "1000", "--json"]).code(0).json())
        .to_vec()
}

/// Invariant 6. Killed at message N of the conversation with the server, which also may be the commit: then it is made after the
/// process is gone.
#[test]
fn a_move_that_was_killed_is_made_again() {
    for number in [20, 40, 60, 80, 95, 110] {
        let Some(team) = Team::new() else { return };
        let machine = team.machine();
        let machine = Machine { world: many(machine.world), ..machine };
        let (world, server) = (&machine.world, address(&machine));
        let before = lists(world, FIRST);
        on(world, &server, &["runs"]).code(0);
        machine.link.break_at(number, Break::Silence);
        let mut command = world.lockkeeper(["store", "migrate", FIRST, &server]);
        let mut moving = Started::of(command.env("LOCKKEEPER_CONNECT_TIMEOUT", "5m"));
        until("the link is silent", || machine.link.breaks() > 0);
        moving.kill();
        machine.link.silence(false);
        machine.link.reset();
        finish(&machine, &before);
    }
}

/// Invariant 6. A link that breaks costs another try; a link that stays cut is told, and the first store goes on.
#[test]
fn a_move_over_a_link_that_breaks_is_whole_or_not_made() {
    let Some(team) = Team::new() else { return };
    for number in [10, 30, 50, 70, 90] {
        let team = Team::new().unwrap();
        let machine = team.machine();
        let machine = Machine { world: many(machine.world), ..machine };
        let before = lists(&machine.world, FIRST);
        on(&machine.world, &address(&machine), &["runs"]).code(0);
        machine.link.break_at(number, Break::After);
        let _ = machine.world.run(["store", "migrate", FIRST, &address(&machine)]);
        machine.link.reset();
        finish(&machine, &before);
    }
    let machine = team.machine();
    let machine = Machine { world: many(machine.world), ..machine };
    machine.link.break_at(60, Break::Silence);
    machine
        .world
        .run(["store", "migrate", FIRST, &address(&machine)])
        .code(69)
        .says("cannot reach the store");
    on(&machine.world, FIRST, &["submit", "--", "true"]).code(0);
    assert_eq!(machine.link.breaks(), 1);
}
