//! `run` and `runs`: the bare compare-and-set, waiting, calling off, running again, forgetting.

use serde_json::{Value, json};

use crate::env::Env;

fn submit(env: &Env, id: &str) -> String {
    let done = env.run(["--json", "submit", "--id", id, "--", "true"]).code(0).json();
    done["run_id"].as_str().unwrap().to_owned()
}

fn run(env: &Env, id: &str) -> Value {
    env.run(["--json", "run", "show", id]).code(0).json()["run"].clone()
}

/// Requirements 73, 76, 82, 83, 84, 85, 87.
#[test]
fn an_executor_outside_moves_a_run_by_compare_and_set() {
    let env = Env::new();
    let id = submit(&env, "a");
    env.run(["run", "mark", &id, "succeeded", "--expect", "running"]).code(75).says("is queued");
    assert_eq!(env.run(["run", "claim", &id, "--worker", "w1"]).code(0).stdout(), "1\n");
    env.run(["run", "claim", &id, "--worker", "w2"]).code(75);
    env.run(["run", "mark", &id, "succeeded", "--claim", "2"]).code(75).says("claim 2 is over");
    let moved =
        env.run(["--json", "run", "mark", &id, "succeeded", "--expect", "running", "--exit-code", "0"]);
    assert_eq!(moved.code(0).json()["run"]["status"], "succeeded");
    let lost = env.run(["--json", "run", "mark", &id, "failed"]).code(75).json();
    assert_eq!(lost["error"]["reason_code"], "TRANSITION_REFUSED");
    assert_eq!(lost["error"]["context"]["status"], "succeeded");
    let shown = run(&env, "a");
    assert!(shown["started_at"].is_string() && shown["completed_at"].is_string());
    let kinds: Vec<&Value> = shown["events"].as_array().unwrap().iter().map(|event| &event["kind"]).collect();
    assert_eq!(kinds, ["submitted", "claimed", "ended"]);
    let lines = env.run(["--json", "run", "events", &id, "--after", "2"]).code(0).stdout();
    let event: Value = serde_json::from_str(lines.trim_end()).unwrap();
    assert_eq!(event["id"], format!("{id}:3"));
    env.run(["run", "mark", &id, "cancelled"]).code(2).says("canceled");
    env.run(["run", "show", "nothing"]).code(2).says("there is no run");
}

/// Requirements 74, 78, 80, 90.
#[test]
fn a_run_is_called_off_at_once_or_by_whoever_executes_it() {
    let env = Env::new();
    let queued = submit(&env, "a");
    env.run(["run", "cancel", "a", "--reason", "not needed"]).code(0).says("is canceled");
    assert_eq!(run(&env, &queued)["message"], "not needed");
    env.run(["run", "cancel", "a"]).code(75);
    env.run(["run", "wait", "a"]).code(75).says("was called off: not needed");
    submit(&env, "b");
    env.run(["run", "claim", "b", "--worker", "w"]).code(0);
    env.run(["run", "cancel", "b"]).code(0).says("is cancelling");
    env.run(["run", "mark", "b", "canceled", "--expect", "cancelling"]).code(0);
    assert_eq!(run(&env, "b")["status"], "canceled");
}

#[test]
fn a_request_is_run_again_once_its_run_has_ended() {
    let env = Env::new();
    let first = submit(&env, "a");
    let busy = env.run(["--json", "run", "retry", "a"]).code(75).json();
    assert_eq!(busy["error"]["reason_code"], "RUN_IN_PROGRESS");
    assert_eq!(busy["error"]["context"]["run_id"], first.as_str());
    env.run(["run", "cancel", "a"]).code(0);
    let again = env.run(["--json", "run", "retry", &first]).code(0).json();
    assert_ne!(again["run_id"], first.as_str());
    assert_eq!(run(&env, "a")["id"], again["run_id"]);
    let all = env.run(["--json", "runs", "--request", "a"]).code(0).json();
    let statuses: Vec<&Value> = all["runs"].as_array().unwrap().iter().map(|one| &one["status"]).collect();
    assert_eq!(statuses, ["queued", "canceled"]);
}

#[test]
fn a_run_is_named_by_as_much_as_is_needed() {
    let env = Env::new();
    let ids: Vec<String> = (0..40).map(|number| submit(&env, &format!("r{number}"))).collect();
    // Of forty runs two end with the same of thirty-two letters.
    let last = |id: &str| id[id.len() - 1..].to_owned();
    let shared =
        ids.iter().find(|id| ids.iter().filter(|other| last(other) == last(id)).count() > 1).unwrap();
    env.run(["run", "show", &last(shared)]).code(2).says("the end of several runs").says("write more");
    env.run(["run", "show", &shared[10..]]).code(0).prints(shared);
}

#[test]
fn waiting_ends_with_the_run_or_its_time_or_a_signal() {
    let env = Env::new();
    let id = submit(&env, "a");
    env.run(["run", "wait", "a", "--timeout", "10ms"]).code(75).says("has not ended: it is queued");
    let waiter = env.start(["run", "wait", "a"]);
    env.run(["run", "claim", &id, "--worker", "w"]).code(0);
    env.run(["run", "mark", &id, "failed", "--exit-code", "9"]).code(0);
    drop(waiter.wait().code(9));
    submit(&env, "b");
    let waiter = env.start(["submit", "--id", "c", "--wait", "--", "true"]);
    let mut waiter = waiter;
    assert!(waiter.line().starts_with("c\t"));
    // It may not listen to signals yet: then it ends by the signal itself.
    waiter.signal("INT");
    let ended = waiter.wait();
    assert!(ended.is_interrupted(), "Ctrl-C ends the waiting");
    assert_eq!(run(&env, "c")["status"], "queued");
}

/// Requirements 75, 94.
#[test]
fn a_run_that_waited_too_long_is_given_up_by_whoever_looks() {
    let env = Env::new();
    env.run(["submit", "--id", "a", "--queue-timeout", "1ms", "--", "true"]).code(0);
    env.run(["run", "wait", "a"]).code(75).says("took too long: it waited for");
    let shown = run(&env, "a");
    assert_eq!((&shown["status"], &shown["reason_code"]), (&json!("timedOut"), &json!("QUEUE_TIMEOUT")));
    env.run(["submit", "--id", "b", "--queue-timeout", "1ms", "--", "true"]).code(0);
    env.run(["run", "wait", "b"]).code(75);
    let listed = env.run(["--json", "runs", "--status", "timedOut"]).code(0).json();
    assert_eq!(listed["runs"].as_array().unwrap().len(), 2);
    env.run(["run", "claim", "b", "--worker", "w"]).code(75);
}

#[test]
fn a_list_says_who_holds_what_a_run_waits_for() {
    let env = Env::new();
    let mut holder = env.hold(&["db", "--owner", "worker:w1"]);
    env.run(["submit", "--id", "a", "--lock", "db", "--", "true"]).code(0);
    env.run(["runs"]).code(0).prints("`db` is held by worker:w1 for");
    let listed = env.run(["--json", "requests"]).code(0).json();
    let blocked = &listed["requests"][0]["blocked"];
    assert_eq!(
        (&blocked["holders"][0]["owner"], &blocked["because"]),
        (&json!("worker:w1"), &json!("no_worker"))
    );
    holder.kill();
    let listed = env.run(["--json", "runs"]).code(0).json();
    assert_eq!(listed["runs"][0]["blocked"]["holders"], json!([]));
}

#[test]
fn what_ended_is_counted_and_forgotten() {
    let env = Env::new();
    for id in ["a", "b"] {
        submit(&env, id);
        env.run(["run", "claim", id, "--worker", "w"]).code(0);
        env.run(["run", "mark", id, "succeeded"]).code(0);
    }
    submit(&env, "c");
    let stats = env.run(["--json", "runs", "stats", "--since", "1h"]).code(0).json();
    assert_eq!((&stats["counts"]["succeeded"], &stats["counts"]["queued"]), (&json!(2), &json!(1)));
    assert_eq!((&stats["waits"]["count"], &stats["by_title"][0]["runs"]), (&json!(2), &json!(3)));
    env.run(["runs", "stats"]).code(0).prints("P99");
    env.run(["runs", "prune", "--older-than", "1h"]).code(0).says("0 requests forgotten");
    let would = env.run(["--json", "runs", "prune", "--older-than", "0", "--dry-run"]).code(0).json();
    assert_eq!(would["pruned"], json!(["a", "b"]));
    env.run(["runs", "prune", "--older-than", "0"]).code(0).prints("a\nb").says("2 requests forgotten");
    env.run(["requests", "show", "a"]).code(2);
    env.run(["requests", "show", "c"]).code(0);
}

#[test]
fn a_status_has_its_colour_on_a_terminal_only() {
    let env = Env::new().set("TERM", "xterm");
    submit(&env, "a");
    let program = crate::env::PROGRAM;
    for list in ["runs", "requests"] {
        env.on_terminal(&format!("'{program}' {list}")).code(0).prints("\u{1b}[36m");
        assert!(!env.run([list]).code(0).stdout().contains('\u{1b}'));
    }
}

#[test]
fn who_only_looks_makes_no_store() {
    let env = Env::new();
    let before = env.tree();
    env.run(["runs"]).code(0).says("no runs");
    env.run(["requests", "--json"]).code(0).prints(r#"{"requests":[]}"#);
    env.run(["run", "show", "x"]).code(2);
    env.run(["runs", "prune", "--older-than", "1d"]).code(0);
    assert_eq!(env.tree(), before);
}

/// Requirement 170.
#[test]
fn what_a_run_holds_is_free_at_done_needs_input_and_failed() {
    let env = Env::new();
    for (id, script, status) in
        [("done", "exit 0", "DONE"), ("asks", "exit 10", "NEEDS_INPUT"), ("bad", "exit 1", "FAILED")]
    {
        let script = format!("{} --json locks >held; {script}", crate::env::PROGRAM);
        env.run(["submit", "--id", id, "--lock", "db", "--", "sh", "-c", &script]).code(0);
        env.run(["work", "--drain", "--quiet", "--status-dir", "swarm"]).code(0);
        let held = std::fs::read_to_string(env.cwd().join("held")).unwrap();
        assert!(held.contains(r#""name":"db""#), "{held}");
        assert_eq!(env.run(["--json", "locks"]).code(0).json()["leases"], json!([]));
        assert_eq!(run(&env, id)["request"]["status"], status);
    }
}

/// A HELP line within a run makes its request NEEDS_INPUT, whatever the exit code.
#[test]
fn a_command_that_asks_for_help_needs_input() {
    let env = Env::new();
    let script = format!(
        "'{}' status emit HELP --task t --swarm-dir swarm --message 'which one?'",
        crate::env::PROGRAM
    );
    env.run(["submit", "--id", "a", "--", "sh", "-c", &script]).code(0);
    env.run(["work", "--drain", "--quiet", "--status-dir", "swarm"]).code(0);
    let shown = run(&env, "a");
    assert_eq!((&shown["status"], &shown["reason_code"]), (&json!("failed"), &json!("NEEDS_INPUT")));
    assert_eq!(
        (&shown["message"], &shown["request"]["status"]),
        (&json!("which one?"), &json!("NEEDS_INPUT"))
    );
    env.run(["run", "wait", "a"]).code(10);
    let lone = Env::new().set("LOCKKEEPER_RUN_ID", "RUN-gone");
    lone.run(["status", "emit", "HELP", "--task", "t", "--swarm-dir", "swarm"]).code(0).says("was not told");
}

#[test]
fn many_are_called_off_or_run_again_only_after_a_word() {
    let env = Env::new();
    for id in ["apple-1", "apple-2", "pear"] {
        submit(&env, id);
    }
    env.run(["runs", "cancel"]).code(2);
    env.run(["runs", "cancel", "--all", "--text", "apple"]).code(2);
    env.run(["runs", "cancel", "--text", "apple"]).code(2).says("2 requests match").says("--yes");
    let forecast = env.run(["--json", "runs", "cancel", "--text", "apple", "--dry-run"]).code(0).json();
    assert_eq!((&forecast["matched"], &forecast["moved"]), (&json!(2), &json!(2)));
    assert_eq!(run(&env, "apple-1")["status"], "queued");
    let done = env.run(["runs", "cancel", "--text", "apple", "--reason", "late", "--yes"]).code(0);
    assert_eq!(done.says("2 changed").stdout().lines().count(), 2);
    assert_eq!(run(&env, "apple-1")["message"], "late");
    assert_eq!(run(&env, "pear")["status"], "queued");
    let again = env.run(["--json", "runs", "retry", "--all", "--yes"]).code(0).json();
    assert_eq!((&again["moved"], &again["refused"]), (&json!(2), &json!(1)));
    assert_eq!(again["refusals"][0]["request_id"], "pear");
    assert_eq!(run(&env, "apple-2")["status"], "queued");
    let none = env.run(["--json", "runs", "retry", "--status", "failed", "--yes"]).code(0).json();
    assert_eq!(none["matched"], 0);
}
