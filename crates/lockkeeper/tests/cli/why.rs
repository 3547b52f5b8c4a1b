//! `why`: the evidence for the verdict about a holder.

use lockkeeper_testing::{Signal, world};

#[test]
fn free_is_told_as_such() {
    let world = world!();
    world.run(["why", "db"]).code(0).prints("db is free").prints("acquire it");
    assert_eq!(world.run(["why", "db", "--json"]).code(0).json()["held"], false);
}

/// A waiter for two names comes first, also for the one that is free.
#[test]
fn what_is_free_but_waited_for_is_not_there_for_the_taking() {
    let world = world!();
    let holder = world.hold(&["log"]);
    let waiter = world.start(["exec", "db", "log", "--", "true"]);
    world.until_waiting(1);
    world.run(["exec", "db", "--no-wait", "--", "true"]).code(75);
    let told = world.run(["why", "db"]).code(0).prints("in line").prints("1 in line come before you");
    assert!(!told.stdout().contains(": acquire it"), "{}", told.stdout());
    holder.finish().code(0);
    waiter.wait().code(0);
}

#[test]
fn a_ticket_without_its_process_is_gone() {
    let world = world!().with_state();
    world.acquire(&["db", "--owner", "worker:1"]);
    let waiter = world.start(["exec", "db", "--owner", "worker:2", "--", "true"]);
    world.until_waiting(1);
    world.run(["why", "db"]).code(0).prints("waiting, position 1: T");
    waiter.signal(Signal::KILL);
    let _ = waiter.wait();
    world.run(["locks"]).code(0).prints("gone: it will be skipped");
    let shown = world.run(["why", "db"]).code(0).prints("gone: T").prints(": it will be skipped");
    assert!(!shown.stdout().contains("position"), "{}", shown.stdout());
}

#[test]
fn each_step_of_the_evidence_is_shown_with_what_to_do() {
    let world = world!();
    let holder = world.hold(&["db", "--owner", "worker:one", "--reason", "a migration"]);
    let told = world.run(["why", "db"]).code(0).prints("db is held").prints("a migration");
    told.prints("1. machine").prints("2. kernel lock: held").prints("verdict").prints("what to do:");
    let answer = world.run(["why", "db", "--name", "--json"]).code(0).json();
    let found = &answer["evidence"][0]["holders"][0];
    assert_eq!((&answer["held"], &found["verdict"]), (&true.into(), &"alive".into()));
    let questions: Vec<&str> =
        found["steps"].as_array().unwrap().iter().map(|step| step["question"].as_str().unwrap()).collect();
    assert_eq!(questions, ["machine", "kernel lock", "time", "verdict"]);
    holder.finish().code(0);
}

#[test]
fn a_path_is_held_by_the_patterns_that_match_it() {
    let world = world!();
    world.acquire(&["--path", "src/**"]);
    world.run(["why", "src/main.rs"]).code(0).prints("src/main.rs is held").prints("not tied to a process");
    world.run(["why", "docs/x"]).code(0).prints("is free");
    world.run(["why", "src/*.rs", "--name"]).code(2).says("--path");
}

/// Requirement 139. The alert about a long wait names this command.
#[test]
fn a_lock_of_another_format_is_shown_too() {
    let world = world!().with_state();
    let group = world.start([
        "group",
        "exec",
        "gg",
        "--",
        "sh",
        "-c",
        "touch held; until test -e go; do sleep 0.02; done",
    ]);
    lockkeeper_testing::until("the group is held", || world.path("held").exists());
    world
        .run(["why", "gg"])
        .code(0)
        .prints("gg is held")
        .prints("group lock")
        .prints("lockkeeper group status");
    let answer = world.run(["why", "gg", "--json"]).code(0).json();
    assert_eq!(
        (&answer["held"], &answer["foreign"][0]["format"]),
        (&true.into(), &"group".into()),
        "{answer}"
    );
    assert_eq!(world.run(["why", "other", "--json"]).code(0).json()["held"], false);
    world.run(["task", "lock", "t1", "--worker", "w1"]).code(0);
    world.run(["why", "t1"]).code(0).prints("t1 is held").prints("w1").prints("lockkeeper task show t1");
    world.touch("go");
    group.wait().code(0);
    world.run(["why", "gg"]).code(0).prints("gg is free");
}
