//! `acquire`: take a lease and leave it.

use serde_json::Value;

use crate::env::Env;

/// The keys of a lease that scripts rely on, and those that came later.
const LEASE_KEYS: [&str; 12] = [
    "id",
    "token",
    "owner",
    "resources",
    "acquired_at",
    "heartbeat_at",
    "expires_at",
    "pid",
    "host",
    "proof",
    "reason",
    "contract",
];
const ANSWER_KEYS: [&str; 7] = ["status", "lease", "holders", "witness", "ticket", "message", "hint"];

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn the_answer_has_the_keys_that_scripts_rely_on() {
    let env = Env::new();
    let args = [
        "acquire", "db", "--path", "src/**", "--ttl", "5m", "--owner", "worker:1", "--reason", "why",
        "--json",
    ];
    let answer = env.run(args).code(0).json();
    assert_eq!(keys(&answer), ANSWER_KEYS);
    assert_eq!(answer["status"], "acquired");
    let lease = &answer["lease"];
    assert_eq!(keys(lease), LEASE_KEYS);
    assert_eq!(
        (&lease["owner"], &lease["reason"], &lease["proof"]),
        (&"worker:1".into(), &"why".into(), &"ttl".into())
    );
    assert_eq!(lease["resources"][0], serde_json::json!({ "name": "db", "mode": "exclusive" }));
    assert_eq!(lease["resources"][1], serde_json::json!({ "path": "src/**", "mode": "exclusive" }));
    assert!(lease["acquired_at"].as_str().unwrap().ends_with('Z'));
    assert!(lease["expires_at"].is_string() && lease["pid"].is_null());
}

#[test]
fn the_lease_is_all_that_a_script_reads() {
    let env = Env::new();
    let done = env.run(["acquire", "db", "--ttl", "1m"]).code(0).says("acquired: db as L");
    let id = done.stdout();
    assert!(id.starts_with('L') && id.ends_with('\n') && id.lines().count() == 1, "{id:?}");
}

/// Invariant 1.
#[test]
fn the_blocked_are_told_who_what_and_how_to_go_on() {
    let env = Env::new();
    let lease = env.acquire(&["--path", "src/**/*.rs", "--owner", "worker:one"]);
    let answer = env.run(["acquire", "--path", "src/api/**", "--json"]).code(75).json();
    assert_eq!(keys(&answer), ANSWER_KEYS);
    assert_eq!(answer["status"], "blocked");
    assert_eq!((answer["holders"][0]["id"].as_str(), &answer["lease"]), (Some(lease.as_str()), &Value::Null));
    assert_eq!(keys(&answer["holders"][0]), LEASE_KEYS);
    let witness = answer["witness"].as_str().unwrap();
    assert!(witness.starts_with("src/api/") && witness.ends_with(".rs"), "{witness}");
    assert!(answer["message"].as_str().unwrap().contains("worker:one") && answer["hint"].is_string());
    env.run(["acquire", "--path", "src/api/**"]).code(75).says("worker:one").says(witness).says("hint: ");
}

#[test]
fn it_is_tied_to_a_process_that_outlives_the_command() {
    let env = Env::new();
    let done = env.run(["acquire", "db", "--json"]).code(0).json();
    assert_eq!(done["lease"]["pid"], std::process::id());
    assert!(done["message"].as_str().unwrap().contains("the nearest ancestor that outlives this command"));
    let mut other = env.hold(&["sleep"]);
    let pid = other.pid().to_string();
    env.run(["acquire", "log", "--pid", &pid]).code(0).says("given with --pid");
    let env = env.set("LOCKKEEPER_PID", &pid);
    env.run(["acquire", "cache"]).code(0).says("given by LOCKKEEPER_PID");
    other.kill();
}

/// Requirement 20. Invariant 4.
#[test]
fn the_end_of_its_process_frees_it_at_once() {
    let env = Env::new();
    let mut process = env.command("sleep").arg("600").spawn().unwrap();
    env.run(["acquire", "db", "--pid", &process.id().to_string()]).code(0);
    env.run(["acquire", "db"]).code(75);
    process.kill().unwrap();
    process.wait().unwrap();
    env.run(["acquire", "db"]).code(0);
}

#[test]
fn an_expired_ttl_is_free_for_the_next() {
    let env = Env::new();
    env.run(["acquire", "db", "--ttl", "20ms"]).code(0).says("until its TTL of 20ms ends");
    // The wait sleeps exactly until then.
    env.run(["acquire", "db", "--ttl", "1m", "--wait=30s"]).code(0);
}

#[test]
fn a_ticket_keeps_its_place_between_commands() {
    let env = Env::new();
    let lease = env.acquire(&["db", "--owner", "worker:holder"]);
    let blocked = env
        .run(["acquire", "db", "--ttl", "1m", "--wait=20ms", "--ticket", "my-turn", "--json"])
        .code(75)
        .json();
    assert_eq!(blocked["ticket"], "my-turn");
    let unnamed = env.run(["acquire", "db", "--ttl", "1m", "--wait=20ms", "--json"]).code(75).json();
    let number = unnamed["ticket"].as_str().unwrap().to_owned();
    assert!(number.starts_with('T'), "{number}");
    env.run(["release", &lease]).code(0);
    env.run(["acquire", "--ticket", &number, "--wait=20ms"]).code(75).says(&format!("--ticket {number}"));
    let first = env.run(["acquire", "--ticket", "my-turn"]).code(0).stdout();
    env.run(["release", first.trim_end()]).code(0);
    env.run(["acquire", "--ticket", &number]).code(0);
}

#[test]
fn the_name_of_a_ticket_belongs_to_its_owner() {
    let env = Env::new();
    let lease = env.acquire(&["db", "--owner", "worker:holder"]);
    let ask = |owner: &str, more: &[&str]| {
        let all = [&["acquire", "--ttl", "1m", "--ticket", "mine", "--owner", owner], more].concat();
        env.run(all)
    };
    for owner in ["worker:a", "worker:b"] {
        ask(owner, &["db", "--wait=1ms"]).code(75).says("--ticket mine");
    }
    env.run(["acquire", "--ticket", "mine"]).code(75).says("several owners").says("--owner");
    env.run(["release", &lease]).code(0);
    ask("worker:b", &[]).code(75).says("held by worker:a");
    let first = ask("worker:a", &[]).code(0).stdout();
    env.run(["release", first.trim_end()]).code(0);
    ask("worker:b", &[]).code(0);
}

#[test]
fn a_ticket_is_not_good_for_other_names() {
    let env = Env::new();
    env.acquire(&["db"]);
    env.run(["acquire", "db", "--ttl", "1m", "--wait=1ms", "--ticket", "mine"]).code(75);
    env.run(["acquire", "log", "--ttl", "1m", "--ticket", "mine"]).code(2).says("is for db").says("hint: ");
}

#[test]
fn the_ticket_of_a_command_that_waits_itself_is_not_for_others() {
    let env = Env::new();
    let holder = env.hold(&["db"]);
    let waiter = env.start(["exec", "db", "--", "true"]);
    env.until_waiting(1);
    let ticket = env.run(["locks", "--json"]).json()["waiters"][0]["ticket"].as_str().unwrap().to_owned();
    env.run(["acquire", "--ticket", &ticket]).code(75).says("belongs to exec:");
    holder.finish().code(0);
    waiter.wait().code(0);
}

#[test]
fn a_named_ticket_whose_lease_is_over_begins_anew() {
    let env = Env::new();
    env.run(["acquire", "db", "--ttl", "1ms", "--ticket", "mine"]).code(0);
    env.run(["acquire", "db", "--ttl", "1m", "--ticket", "mine"]).code(0);
}

#[test]
fn an_unknown_ticket_is_refused_with_a_hint() {
    let env = Env::new();
    env.run(["acquire", "--ticket", "T99"]).code(75).says("there is no ticket").says("hint: ");
    let report = env.run(["acquire", "--ticket", "nobody", "--json"]).code(75).json();
    assert_eq!(report["error"]["reason_code"], "TICKET_UNKNOWN");
}

#[test]
fn one_owner_gets_the_lease_that_it_has() {
    let env = Env::new().set("LOCKKEEPER_OWNER", "claude:S1");
    let lease = env.acquire(&["db"]);
    let again = env.run(["acquire", "db", "--ttl", "1m"]).code(0).says("already yours");
    assert_eq!(again.stdout().trim_end(), lease);
    env.run(["acquire", "db", "--owner", "claude:S2"]).code(75).says("claude:S1");
}

#[test]
fn an_interrupted_wait_keeps_its_place() {
    let env = Env::new();
    let lease = env.acquire(&["db"]);
    let waiter = env.start(["acquire", "db", "--ttl", "1m", "--wait", "--ticket", "my-turn", "--json"]);
    env.until_waiting(1);
    waiter.signal("INT");
    assert_eq!(waiter.wait().code(75).json()["ticket"], "my-turn");
    env.run(["release", &lease]).code(0);
    env.run(["acquire", "--ticket", "my-turn"]).code(0);
}
