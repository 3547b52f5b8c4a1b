//! `why`: the chain of evidence.

use crate::env::Env;

#[test]
fn free_is_told_as_such() {
    let env = Env::new();
    env.run(["why", "db"]).code(0).prints("db is free").prints("just take it");
    assert_eq!(env.run(["why", "db", "--json"]).code(0).json()["held"], false);
}

#[test]
fn each_step_of_the_evidence_is_shown_with_what_to_do() {
    let env = Env::new();
    let holder = env.hold(&["db", "--owner", "worker:one", "--reason", "a migration"]);
    let told = env.run(["why", "db"]).code(0).prints("db is held").prints("a migration");
    told.prints("1. machine").prints("2. kernel lock: held").prints("verdict").prints("what to do:");
    let answer = env.run(["why", "db", "--name", "--json"]).code(0).json();
    let found = &answer["evidence"][0]["holders"][0];
    assert_eq!((&answer["held"], &found["verdict"]), (&true.into(), &"alive".into()));
    let questions: Vec<&str> =
        found["steps"].as_array().unwrap().iter().map(|step| step["question"].as_str().unwrap()).collect();
    assert_eq!(questions, ["machine", "kernel lock", "time", "verdict"]);
    holder.finish().code(0);
}

#[test]
fn a_path_is_held_by_the_patterns_that_match_it() {
    let env = Env::new();
    env.acquire(&["--path", "src/**"]);
    env.run(["why", "src/main.rs"]).code(0).prints("src/main.rs is held").prints("none stands for it");
    env.run(["why", "docs/x"]).code(0).prints("is free");
    env.run(["why", "src/*.rs", "--name"]).code(2).says("--path");
}
