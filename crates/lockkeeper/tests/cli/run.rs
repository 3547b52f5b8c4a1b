//! `run` and `runs`: compare-and-set moves, waiting, cancelling, retrying, pruning.

use lockkeeper_testing::{Signal, World, until_seen, world};
use serde_json::{Value, json};

fn submit(world: &World, id: &str) -> String {
    let done = world.run(["--json", "submit", "--id", id, "--", "true"]).code(0).json();
    done["run_id"].as_str().unwrap().to_owned()
}

fn run(world: &World, id: &str) -> Value {
    world.run(["--json", "run", "show", id]).code(0).json()["run"].clone()
}

/// Requirements 73, 76, 82, 83, 84, 85, 87.
#[test]
fn an_executor_outside_moves_a_run_by_compare_and_set() {
    let world = world!();
    let id = submit(&world, "a");
    world.run(["run", "mark", &id, "succeeded", "--expect", "running"]).code(75).says("is queued");
    assert_eq!(world.run(["run", "claim", &id, "--worker", "w1"]).code(0).stdout(), "1\n");
    world.run(["run", "claim", &id, "--worker", "w2"]).code(75);
    world.run(["run", "mark", &id, "succeeded", "--claim", "2"]).code(75).says("claim 2 does not count");
    let moved =
        world.run(["--json", "run", "mark", &id, "succeeded", "--expect", "running", "--exit-code", "0"]);
    assert_eq!(moved.code(0).json()["run"]["status"], "succeeded");
    let lost = world.run(["--json", "run", "mark", &id, "failed"]).code(75).json();
    assert_eq!(lost["error"]["reason_code"], "TRANSITION_REFUSED");
    assert_eq!(lost["error"]["context"]["status"], "succeeded");
    let shown = run(&world, "a");
    assert!(shown["started_at"].is_string() && shown["completed_at"].is_string());
    let kinds: Vec<&Value> = shown["events"].as_array().unwrap().iter().map(|event| &event["kind"]).collect();
    assert_eq!(kinds, ["submitted", "claimed", "ended"]);
    let lines = world.run(["--json", "run", "events", &id, "--after", "2"]).code(0).stdout();
    let event: Value = serde_json::from_str(lines.trim_end()).unwrap();
    assert_eq!(event["id"], format!("{id}:3"));
    world.run(["run", "mark", &id, "cancelled"]).code(2).says("canceled");
    world.run(["run", "show", "nothing"]).code(2).says("there is no run");
}

/// Requirements 74, 78, 80, 90.
#[test]
fn a_run_is_canceled_at_once_or_by_its_executor() {
    let world = world!();
    let queued = submit(&world, "a");
    world.run(["run", "cancel", "a", "--reason", "not needed"]).code(0).says("is canceled");
    assert_eq!(run(&world, &queued)["message"], "not needed");
    world.run(["run", "cancel", "a"]).code(75);
    world.run(["run", "wait", "a"]).code(75).says("was canceled: not needed");
    submit(&world, "b");
    world.run(["run", "claim", "b", "--worker", "w"]).code(0);
    world
        .run(["run", "cancel", "b"])
        .code(0)
        .says("is cancelling")
        .says("if w is gone: `lockkeeper run mark");
    world.run(["run", "mark", "b", "canceled", "--expect", "cancelling"]).code(0);
    assert_eq!(run(&world, "b")["status"], "canceled");
}

#[test]
fn a_request_is_run_again_once_its_run_has_ended() {
    let world = world!();
    let first = submit(&world, "a");
    let busy = world.run(["--json", "run", "retry", "a"]).code(75).json();
    assert_eq!(busy["error"]["reason_code"], "RUN_IN_PROGRESS");
    assert_eq!(busy["error"]["context"]["run_id"], first.as_str());
    world.run(["run", "cancel", "a"]).code(0);
    let again = world.run(["--json", "run", "retry", &first]).code(0).json();
    assert_ne!(again["run_id"], first.as_str());
    assert_eq!(run(&world, "a")["id"], again["run_id"]);
    let all = world.run(["--json", "runs", "--request", "a"]).code(0).json();
    let statuses: Vec<&Value> = all["runs"].as_array().unwrap().iter().map(|one| &one["status"]).collect();
    assert_eq!(statuses, ["queued", "canceled"]);
}

#[test]
fn a_run_is_named_by_as_much_as_is_needed() {
    let world = world!();
    let ids: Vec<String> = (0..40).map(|number| submit(&world, &format!("r{number}"))).collect();
    // Of forty runs two end with the same of thirty-two letters.
    let last = |id: &str| id[id.len() - 1..].to_owned();
    let shared =
        ids.iter().find(|id| ids.iter().filter(|other| last(other) == last(id)).count() > 1).unwrap();
    world
        .run(["run", "show", &last(shared)])
        .code(2)
        .says("the beginning or end of several ids")
        .says("write more");
    let said = world.run(["run", "show", &last(shared)]).code(2).stderr();
    assert!(!said.contains("RUN-") && said.contains(&shared[shared.len() - 10..]), "{said}");
    world.run(["run", "show", &shared[10..]]).code(0).prints(shared);
}

#[test]
fn waiting_ends_with_the_run_or_its_time_or_a_signal() {
    let world = world!();
    let id = submit(&world, "a");
    world.run(["run", "wait", "a", "--timeout", "10ms"]).code(75).says("has not ended: it is queued");
    let waiter = world.start(["run", "wait", "a"]);
    world.run(["run", "claim", &id, "--worker", "w"]).code(0);
    world.run(["run", "mark", &id, "failed", "--exit-code", "9"]).code(0);
    drop(waiter.wait().code(9));
    submit(&world, "b");
    let mut waiter = world.start(["submit", "--id", "c", "--wait", "--", "true"]);
    assert!(waiter.line().starts_with("c\t"));
    // The process may not catch signals yet. Then the signal itself ends it.
    waiter.signal(Signal::INT);
    waiter.wait().shell_code(130);
    assert_eq!(run(&world, "c")["status"], "queued");
}

/// Requirements 75, 94.
#[test]
fn any_command_times_out_a_run_that_waited_too_long() {
    let world = world!();
    world.run(["submit", "--id", "a", "--queue-timeout", "1ms", "--", "true"]).code(0);
    world.run(["run", "wait", "a"]).code(75).says("took too long: it waited for");
    let shown = run(&world, "a");
    assert_eq!((&shown["status"], &shown["reason_code"]), (&json!("timedOut"), &json!("QUEUE_TIMEOUT")));
    world.run(["submit", "--id", "b", "--queue-timeout", "1ms", "--", "true"]).code(0);
    world.run(["run", "wait", "b"]).code(75);
    let listed = world.run(["--json", "runs", "--status", "timedOut"]).code(0).json();
    assert_eq!(listed["runs"].as_array().unwrap().len(), 2);
    world.run(["run", "claim", "b", "--worker", "w"]).code(75);
}

#[test]
fn a_list_says_who_holds_what_a_run_waits_for() {
    let world = world!();
    let mut holder = world.hold(&["db", "--owner", "worker:w1"]);
    world.run(["submit", "--id", "a", "--lock", "db", "--", "true"]).code(0);
    world.run(["runs"]).code(0).prints("`db` is held by worker:w1 for");
    let listed = world.run(["--json", "requests"]).code(0).json();
    let blocked = &listed["requests"][0]["blocked"];
    assert_eq!(
        (&blocked["holders"][0]["owner"], &blocked["because"]),
        (&json!("worker:w1"), &json!("no_worker"))
    );
    holder.kill();
    // The command of the holder still runs for a moment, until it has read the end of its input.
    let holders = || world.json(&["runs"])["runs"][0]["blocked"]["holders"].clone();
    until_seen("nobody holds it", holders, |holders| *holders == json!([]));
}

#[test]
fn what_ended_is_counted_and_forgotten() {
    let world = world!();
    for id in ["a", "b"] {
        submit(&world, id);
        world.run(["run", "claim", id, "--worker", "w"]).code(0);
        world.run(["run", "mark", id, "succeeded"]).code(0);
    }
    submit(&world, "c");
    let stats = world.run(["--json", "runs", "stats", "--since", "1h"]).code(0).json();
    assert_eq!((&stats["counts"]["succeeded"], &stats["counts"]["queued"]), (&json!(2), &json!(1)));
    assert_eq!((&stats["waits"]["count"], &stats["by_title"][0]["runs"]), (&json!(2), &json!(3)));
    world.run(["runs", "stats"]).code(0).prints("P99");
    world.run(["runs", "prune", "--older-than", "1h"]).code(0).says("0 requests forgotten");
    let would = world.run(["--json", "runs", "prune", "--older-than", "0", "--dry-run"]).code(0).json();
    assert_eq!(would["pruned"], json!(["a", "b"]));
    world.run(["runs", "prune", "--older-than", "0"]).code(0).prints("a\nb").says("2 requests forgotten");
    world.run(["requests", "show", "a"]).code(2);
    world.run(["requests", "show", "c"]).code(0);
}

#[test]
fn a_priority_changes_the_place_in_the_queue() {
    let world = world!();
    for id in ["first", "second"] {
        submit(&world, id);
    }
    let next = || world.run(["queue", "list", "--json"]).code(0).json()["next"].clone();
    assert_eq!(next(), json!("first"));
    world.run(["requests", "priority", "second", "10"]).code(0).prints("priority      10");
    assert_eq!(next(), json!("second"));
    world.run(["requests", "priority", "second", "-10"]).code(0);
    assert_eq!(next(), json!("first"));
    world.run(["requests", "priority", "second", "101"]).code(2);
    world.run(["requests", "priority", "third", "1"]).code(2).says("no request");
    assert_eq!(world.json(&["requests", "show", "second"])["request"]["priority"], json!(-10));
}

#[test]
fn a_status_has_its_colour_on_a_terminal_only() {
    let world = world!().set("TERM", "xterm");
    submit(&world, "a");
    let program = world.program();
    for list in ["runs", "requests"] {
        world.on_terminal(&format!("'{program}' {list}")).code(0).prints("\u{1b}[36m");
        assert!(!world.run([list]).code(0).stdout().contains('\u{1b}'));
    }
}

#[test]
fn who_only_looks_makes_no_store() {
    let world = world!();
    let before = world.tree();
    world.run(["runs"]).code(0).says("no runs");
    world.run(["requests", "--json"]).code(0).prints(r#"{"requests":[]}"#);
    world.run(["run", "show", "x"]).code(2);
    world.run(["runs", "prune", "--older-than", "1d"]).code(0);
    assert_eq!(world.tree(), before);
}

/// Requirement 170.
#[test]
fn what_a_run_holds_is_free_at_done_needs_input_and_failed() {
    let world = world!();
    for (id, script, status, code) in
        [("done", "exit 0", "DONE", 0), ("asks", "exit 10", "NEEDS_INPUT", 1), ("bad", "exit 1", "FAILED", 1)]
    {
        let script = format!("{} --json locks >held; {script}", world.program());
        world.run(["submit", "--id", id, "--lock", "db", "--", "sh", "-c", &script]).code(0);
        world.run(["work", "--drain", "--quiet", "--status-dir", "swarm"]).code(code);
        let held = std::fs::read_to_string(world.cwd().join("held")).unwrap();
        assert!(held.contains(r#""name":"db""#), "{held}");
        assert_eq!(world.run(["--json", "locks"]).code(0).json()["leases"], json!([]));
        assert_eq!(run(&world, id)["request"]["status"], status);
    }
}

/// A HELP line within a run makes its request NEEDS_INPUT, whatever the exit code.
#[test]
fn a_command_that_asks_for_help_needs_input() {
    let world = world!();
    let script =
        format!("'{}' status emit HELP --task t --swarm-dir swarm --message 'which one?'", world.program());
    world.run(["submit", "--id", "a", "--", "sh", "-c", &script]).code(0);
    world.run(["work", "--drain", "--quiet", "--status-dir", "swarm"]).code(1);
    let shown = run(&world, "a");
    assert_eq!((&shown["status"], &shown["reason_code"]), (&json!("failed"), &json!("NEEDS_INPUT")));
    assert_eq!(
        (&shown["message"], &shown["request"]["status"]),
        (&json!("which one?"), &json!("NEEDS_INPUT"))
    );
    world.run(["run", "wait", "a"]).code(10);
    let lone = world!().set("LOCKKEEPER_RUN_ID", "RUN-gone");
    lone.run(["status", "emit", "HELP", "--task", "t", "--swarm-dir", "swarm"])
        .code(0)
        .says("was not marked as NEEDS_INPUT");
}

#[test]
fn many_are_called_off_or_run_again_only_after_a_word() {
    let world = world!();
    for id in ["apple-1", "apple-2", "pear"] {
        submit(&world, id);
    }
    world.run(["runs", "cancel"]).code(2);
    world.run(["runs", "cancel", "--all", "--text", "apple"]).code(2);
    world.run(["runs", "cancel", "--text", "apple"]).code(2).says("2 requests match").says("--yes");
    let forecast = world.run(["--json", "runs", "cancel", "--text", "apple", "--dry-run"]).code(0).json();
    assert_eq!((&forecast["matched"], &forecast["moved"]), (&json!(2), &json!(2)));
    assert_eq!(run(&world, "apple-1")["status"], "queued");
    let done = world.run(["runs", "cancel", "--text", "apple", "--reason", "late", "--yes"]).code(0);
    assert_eq!(done.says("2 changed").stdout().lines().count(), 2);
    assert_eq!(run(&world, "apple-1")["message"], "late");
    assert_eq!(run(&world, "pear")["status"], "queued");
    let again = world.run(["--json", "runs", "retry", "--all", "--yes"]).code(0).json();
    assert_eq!((&again["moved"], &again["refused"]), (&json!(2), &json!(1)));
    assert_eq!(again["refusals"][0]["request_id"], "pear");
    assert_eq!(run(&world, "apple-2")["status"], "queued");
    let none = world.run(["--json", "runs", "retry", "--status", "failed", "--yes"]).code(0).json();
    assert_eq!(none["matched"], 0);
}

/// A worker that drains ends when only requests are left whose labels no worker has, and names them.
#[test]
fn a_request_whose_label_no_worker_has_does_not_keep_a_worker_from_ending() {
    let world = world!();
    world.run(["submit", "--id", "train", "--needs", "gpu", "--", "true"]).code(0);
    world.run(["submit", "--id", "a", "--", "true"]).code(0);
    let drained =
        world.run(["work", "--drain"]).code(1).says("no worker has the labels of: train (needs gpu)");
    drained.says("`lockkeeper work --drain --label gpu`");
    assert_eq!(run(&world, "a")["status"], "succeeded");
    // A worker that has the label will execute the next one.
    let other = world.start(["work", "--label", "gpu"]);
    world.run(["run", "wait", "train"]).code(0);
    world.run(["submit", "--id", "again", "--needs", "gpu", "--", "true"]).code(0);
    world.run(["work", "--drain"]).code(0);
    world.run(["run", "wait", "again"]).code(0);
    other.signal(Signal::TERM);
    other.wait().code(0);
}

/// A queue that was worked through with failures says so, and names what can never start.
#[test]
fn a_drained_queue_with_failures_is_no_success() {
    let world = world!();
    world.run(["submit", "--id", "a", "--", "false"]).code(0);
    world.run(["submit", "--id", "b", "--after", "a", "--", "true"]).code(0);
    world.run(["submit", "--id", "c", "--after", "b", "--", "true"]).code(0);
    let drain = ["work", "--drain", "--quiet", "--status-dir", "swarm"];
    let drained = world.run(drain).code(1);
    drained.says("can never start").says("b (after a)").says("c (after a)").says("`lockkeeper run retry a`");
    world.run(drain).code(1).says("can never start");
    // A command that waits for them ends at once.
    world.run(["run", "wait", "c"]).code(1).says("can never start: it comes after a").says("run retry a");
    world.run(["run", "cancel", "b"]).code(0);
    world.run(["run", "cancel", "c"]).code(0);
    world.run(drain).code(0);
}

/// A wait for a dependent ends when the request before it fails.
#[test]
fn a_wait_ends_when_the_run_can_no_longer_start() {
    let world = world!();
    world.run(["submit", "--id", "a", "--", "false"]).code(0);
    world.run(["submit", "--id", "b", "--after", "a", "--", "true"]).code(0);
    let wait = world.start(["run", "wait", "b"]);
    world.run(["work", "--drain", "--quiet", "--status-dir", "swarm"]).code(1);
    wait.wait().code(1).says("can never start");
}

/// A compare-and-set that finds another status names both.
#[test]
fn a_wrong_expectation_is_named() {
    let world = world!();
    world.run(["submit", "--id", "a", "--", "true"]).code(0);
    let refused = world.run(["run", "mark", "a", "running", "--expect", "cancelling"]).code(75);
    refused.says("expected to be cancelling, and is queued");
}
