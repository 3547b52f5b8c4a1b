//! `acquire`: takes a lease that outlives the command.

use lockkeeper_testing::{Signal, Started, until, world};
use serde_json::Value;

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
    let world = world!();
    let args = [
        "acquire", "db", "--path", "src/**", "--ttl", "5m", "--owner", "worker:1", "--reason", "why",
        "--json",
    ];
    let answer = world.run(args).code(0).json();
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
    let world = world!();
    let done = world.run(["acquire", "db", "--ttl", "1m"]).code(0).says("acquired: db as L");
    let id = done.stdout();
    assert!(id.starts_with('L') && id.ends_with('\n') && id.lines().count() == 1, "{id:?}");
}

/// Invariant 1.
#[test]
fn the_blocked_are_told_who_what_and_how_to_go_on() {
    let world = world!();
    let lease = world.acquire(&["--path", "src/**/*.rs", "--owner", "worker:one"]);
    let answer = world.run(["acquire", "--path", "src/api/**", "--json"]).code(75).json();
    assert_eq!(keys(&answer), ANSWER_KEYS);
    assert_eq!(answer["status"], "blocked");
    assert_eq!((answer["holders"][0]["id"].as_str(), &answer["lease"]), (Some(lease.as_str()), &Value::Null));
    assert_eq!(keys(&answer["holders"][0]), LEASE_KEYS);
    let witness = answer["witness"].as_str().unwrap();
    assert!(witness.starts_with("src/api/") && witness.ends_with(".rs"), "{witness}");
    assert!(answer["message"].as_str().unwrap().contains("worker:one") && answer["hint"].is_string());
    world.run(["acquire", "--path", "src/api/**"]).code(75).says("worker:one").says(witness).says("hint: ");
}

#[test]
fn it_is_tied_to_a_process_that_outlives_the_command() {
    let world = world!();
    let done = world.run(["acquire", "db", "--json"]).code(0).json();
    assert_eq!(done["lease"]["pid"], std::process::id());
    assert!(done["message"].as_str().unwrap().contains("the nearest ancestor that outlives this command"));
    let mut other = world.hold(&["sleep"]);
    let pid = other.pid().to_string();
    world.run(["acquire", "log", "--pid", &pid]).code(0).says("given with --pid");
    let world = world.set("LOCKKEEPER_PID", &pid);
    world.run(["acquire", "cache"]).code(0).says("given by LOCKKEEPER_PID");
    other.kill();
}

/// Requirement 20. Invariant 4.
#[test]
fn the_end_of_its_process_frees_it_at_once() {
    let world = world!();
    let mut process = world.command("sleep").arg("600").spawn().unwrap();
    world.run(["acquire", "db", "--pid", &process.id().to_string()]).code(0);
    world.run(["acquire", "db"]).code(75);
    process.kill().unwrap();
    process.wait().unwrap();
    world.run(["acquire", "db"]).code(0);
}

#[test]
fn an_expired_ttl_is_free_for_the_next() {
    let world = world!();
    world.run(["acquire", "db", "--ttl", "20ms"]).code(0).says("until its TTL of 20ms ends");
    // The wait sleeps exactly until then.
    world.run(["acquire", "db", "--ttl", "1m", "--wait=30s"]).code(0);
}

#[test]
fn a_ticket_keeps_its_place_between_commands() {
    let world = world!();
    let lease = world.acquire(&["db", "--owner", "worker:holder"]);
    let blocked = world
        .run(["acquire", "db", "--ttl", "1m", "--wait=20ms", "--ticket", "my-turn", "--json"])
        .code(75)
        .json();
    assert_eq!(blocked["ticket"], "my-turn");
    let second = ["acquire", "db", "--ttl", "1m", "--wait=20ms", "--ticket", "second"];
    world.run(second).code(75).says("--ticket second");
    let number = world.json(&["locks"])["waiters"][1]["ticket"].as_str().unwrap().to_owned();
    world.run(["release", &lease]).code(0);
    world.run(["acquire", "--ticket", &number, "--wait=20ms"]).code(75).says("--ticket second");
    let first = world.run(["acquire", "--ticket", "my-turn"]).code(0).stdout();
    world.run(["release", first.trim_end()]).code(0);
    world.run(["acquire", "--ticket", &number]).code(0);
}

/// Nobody could come back for it, and it would be granted to nobody.
#[test]
fn a_wait_in_vain_without_a_ticket_leaves_nothing_in_line() {
    let world = world!();
    let lease = world.acquire(&["db", "--owner", "worker:holder"]);
    let blocked = world.run(["acquire", "db", "--ttl", "1m", "--wait=20ms", "--json"]).code(75).json();
    assert_eq!(blocked["ticket"], Value::Null);
    assert_eq!(
        blocked["message"], "refused after 20ms: db, held by worker:holder",
        "it does not wait any more"
    );
    let waited = world.run(["acquire", "db", "--ttl", "1m", "--wait=20ms"]).code(75);
    waited
        .says("error: refused after 20ms: db, held by worker:holder\nhint: `lockkeeper why db` says more\n");
    let waited = world.run(["exec", "db", "--wait=20ms", "--", "true"]).code(75);
    waited
        .says("error: refused after 20ms: db, held by worker:holder\nhint: `lockkeeper why db` says more\n");
    let waiter = world.start(["acquire", "db", "--ttl", "1m", "--wait", "--json"]);
    world.until_waiting(1);
    waiter.signal(Signal::INT);
    assert_eq!(waiter.wait().code(130).json()["ticket"], Value::Null);
    assert_eq!(world.json(&["locks"])["waiters"], serde_json::json!([]));
    world.run(["release", &lease]).code(0);
    assert_eq!(world.json(&["locks"])["leases"], serde_json::json!([]));
    world.run(["acquire", "db", "--ttl", "1m"]).code(0);
}

/// The lease would belong to the process around the command, but nobody would know of it.
#[test]
fn a_wait_that_is_killed_is_not_granted() {
    let world = world!();
    let held = world.hold(&["db"]);
    let mut waiter = world.start(["acquire", "db", "--wait=1m"]);
    until("it waits", || world.json(&["locks"])["waiters"].as_array().unwrap().len() == 1);
    waiter.kill();
    world.run(["acquire", "db", "--ttl", "1m", "--wait=1ms", "--ticket", "stays"]).code(75);
    held.finish().code(0);
    // The one behind it, whose command has ended, is granted instead.
    let leases = world.json(&["locks"])["leases"].take();
    assert_eq!(leases.as_array().unwrap().len(), 1, "{leases}");
    world.run(["acquire", "--ticket", "stays"]).code(0);
}

#[test]
fn the_name_of_a_ticket_belongs_to_its_owner() {
    let world = world!();
    let lease = world.acquire(&["db", "--owner", "worker:holder"]);
    let ask = |owner: &str, more: &[&str]| {
        let all = [&["acquire", "--ttl", "1m", "--ticket", "mine", "--owner", owner], more].concat();
        world.run(all)
    };
    for owner in ["worker:a", "worker:b"] {
        ask(owner, &["db", "--wait=1ms"]).code(75).says("--ticket mine");
    }
    world.run(["acquire", "--ticket", "mine"]).code(75).says("several owners").says("--owner");
    world.run(["release", &lease]).code(0);
    ask("worker:b", &[]).code(75).says("held by worker:a");
    let first = ask("worker:a", &[]).code(0).stdout();
    world.run(["release", first.trim_end()]).code(0);
    ask("worker:b", &[]).code(0);
}

#[test]
fn a_ticket_is_not_good_for_other_names() {
    let world = world!();
    world.acquire(&["db"]);
    world.run(["acquire", "db", "--ttl", "1m", "--wait=1ms", "--ticket", "mine"]).code(75);
    world.run(["acquire", "log", "--ttl", "1m", "--ticket", "mine"]).code(2).says("is for db").says("hint: ");
}

#[test]
fn the_ticket_of_a_command_that_waits_itself_is_not_for_others() {
    let world = world!();
    let holder = world.hold(&["db"]);
    let waiter = world.start(["exec", "db", "--", "true"]);
    world.until_waiting(1);
    let ticket = world.run(["locks", "--json"]).json()["waiters"][0]["ticket"].as_str().unwrap().to_owned();
    world.run(["acquire", "--ticket", &ticket]).code(75).says("belongs to exec:");
    holder.finish().code(0);
    waiter.wait().code(0);
}

#[test]
fn a_named_ticket_whose_lease_is_over_begins_anew() {
    let world = world!();
    world.run(["acquire", "db", "--ttl", "1ms", "--ticket", "mine"]).code(0);
    world.run(["acquire", "db", "--ttl", "1m", "--ticket", "mine"]).code(0);
}

#[test]
fn an_unknown_ticket_is_refused_with_a_hint() {
    let world = world!();
    world.run(["acquire", "--ticket", "T99"]).code(75).says("there is no ticket").says("hint: ");
    let report = world.run(["acquire", "--ticket", "nobody", "--json"]).code(75).json();
    assert_eq!(report["error"]["reason_code"], "TICKET_UNKNOWN");
}

#[test]
fn one_owner_gets_the_lease_that_it_has() {
    let world = world!().set("LOCKKEEPER_OWNER", "claude:S1");
    let lease = world.acquire(&["db"]);
    let again = world.run(["acquire", "db", "--ttl", "1m"]).code(0).says("already yours");
    assert_eq!(again.stdout().trim_end(), lease);
    world.run(["acquire", "db", "--owner", "claude:S2"]).code(75).says("claude:S1");
}

/// The longer TTL counts, and the answer says the one that counts.
#[test]
fn acquiring_again_with_a_longer_ttl_extends_the_lease() {
    let world = world!().set("LOCKKEEPER_OWNER", "claude:S1");
    let lease = world.run(["acquire", "db", "--ttl", "1m"]).code(0).stdout();
    let ttl = |answer: &Value| {
        let time = |key: &str| answer["lease"][key].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
        time("expires_at").duration_since(time("heartbeat_at")).as_secs()
    };
    let longer = world.run(["acquire", "db", "--ttl", "1h", "--json"]).code(0).json();
    assert_eq!((longer["lease"]["id"].as_str(), ttl(&longer)), (Some(lease.trim_end()), 3600));
    assert!(longer["message"].as_str().unwrap().ends_with("held until its TTL of 1h 0m ends"), "{longer}");
    let shorter = world.run(["acquire", "db", "--ttl", "1s", "--json"]).code(0).json();
    assert_eq!(ttl(&shorter), 3600);
    assert!(shorter["message"].as_str().unwrap().ends_with("held until its TTL of 1h 0m ends"), "{shorter}");
    world.run(["acquire", "db"]).code(0).says("held until its TTL of 1h 0m ends");
}

#[test]
fn the_time_to_wait_may_follow_a_space() {
    let world = world!();
    let lease = world.acquire(&["db"]);
    world.run(["acquire", "db", "--ttl", "1m", "--wait", "20ms"]).code(75);
    world.run(["exec", "--wait", "20ms", "db", "--", "true"]).code(75);
    world.run(["release", &lease]).code(0);
    let taken = world.run(["acquire", "db", "--ttl", "1m", "--wait", "5m", "--json"]).code(0).json();
    assert_eq!(taken["lease"]["resources"], serde_json::json!([{ "name": "db", "mode": "exclusive" }]));
}

/// As `exec` does. At a terminal the process ends by the signal, so that a script ends, too.
#[test]
fn a_wait_that_is_interrupted_ends_as_by_the_signal() {
    let world = world!().with_state();
    let holder = world.acquire(&["db", "--owner", "worker:holder"]);
    let waiter = world.start(["acquire", "db", "--ttl", "1m", "--wait", "--quiet"]);
    world.until_waiting(1);
    waiter.signal(Signal::INT);
    waiter.wait().code(130).silent();
    world.run(["release", &holder]).code(0);
    let leases = ["worker:1", "worker:2"].map(|owner| world.acquire(&["db", "--shared", "--owner", owner]));
    let waiter = world.start(["upgrade", &leases[0], "--wait", "--owner", "worker:1"]);
    world.until_waiting(1);
    waiter.signal(Signal::TERM);
    let ended = waiter.wait().code(143);
    assert!(!ended.stderr().contains("refused"), "{ended:?}");
}

#[test]
fn an_interrupted_wait_keeps_its_place() {
    let world = world!();
    let lease = world.acquire(&["db"]);
    let waiter = world.start(["acquire", "db", "--ttl", "1m", "--wait", "--ticket", "my-turn", "--json"]);
    world.until_waiting(1);
    waiter.signal(Signal::INT);
    assert_eq!(waiter.wait().code(130).json()["ticket"], "my-turn");
    let waiter = world.start(["acquire", "--ticket", "my-turn", "--wait", "--quiet"]);
    world.until_waiting(1);
    waiter.signal(Signal::INT);
    let said = waiter.wait().code(130).stderr();
    assert_eq!(said, "your place is kept for a while: call again with --ticket my-turn --wait\n");
    world.run(["release", &lease]).code(0);
    world.run(["acquire", "--ticket", "my-turn"]).code(0);
}

/// Two programs may choose the same name for a ticket. Each has a lease of its own, one after the other.
#[test]
fn the_name_of_a_ticket_gives_nobody_the_lease_of_another() {
    let script = r#""$1" acquire db --ticket build $2; echo $?; read -r line"#;
    let world = world!().with_state().write("build.sh", script);
    let begin = |wait: &str| Started::of(world.command("sh").args(["build.sh", world.program(), wait]));
    let mut holder = begin("");
    let lease = holder.line();
    assert_eq!(holder.line(), "0");
    assert_eq!(begin("").line(), "75", "the lease of the first one");
    // While one waits, another one waits with a ticket of its own.
    let waiters = [1, 2].map(|count| {
        let waiter = begin("--wait=60s");
        world.until_waiting(count);
        waiter
    });
    holder.finish().code(0);
    let mut leases = vec![lease];
    for mut waiter in waiters {
        let lease = waiter.line();
        assert_eq!(waiter.line(), "0");
        assert!(!leases.contains(&lease), "{lease} was given twice");
        leases.push(lease);
        waiter.finish().code(0);
    }
}
