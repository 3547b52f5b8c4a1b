//! `lockkeeper` and `lockkeeper status` alone: the overview.

use lockkeeper_testing::world;
use serde_json::{Value, json};

#[test]
fn a_folder_without_locks_gets_the_first_steps_and_nothing_else() {
    let world = world!();
    for words in [&[][..], &["status"]] {
        world.run(words).code(0).prints("lockkeeper demo").prints("lockkeeper exec");
        let view = world.run([words, &["--json"]].concat()).code(0).json();
        assert_eq!(
            (&view["is_used"], &view["leases"], &view["attention"]),
            (&json!(false), &json!([]), &json!([]))
        );
    }
    assert_eq!(std::fs::read_dir(world.cwd()).unwrap().count(), 0);
    world.run(["--help"]).code(0).prints("Usage: lockkeeper");
    world.run(["--nonsense"]).code(2).says("--nonsense");
}

#[test]
fn the_overview_tells_what_is_held_what_waits_what_failed_and_what_needs_a_person() {
    let world = world!();
    let holder = world.hold(&["db", "--owner", "worker:one", "--reason", "a migration"]);
    let waiter = world.start(["exec", "db", "--owner", "worker:two", "--", "true"]);
    world.until_waiting(1);
    for (id, script) in [("bad", "echo no such table; exit 3"), ("asks", "echo which region; exit 10")] {
        world.run(["submit", "--id", id, "--", "sh", "-c", script]).code(0);
    }
    world.run(["work", "--drain", "--quiet", "--status-dir", "swarm"]).code(1);
    world.run(["submit", "--id", "later", "--lock", "db", "--", "true"]).code(0);
    let shown = world.run([""; 0]).code(0);
    let text = shown.stdout();
    let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part} in {text}"));
    let titles = ["Held (1)", "Waiting (1)", "Queued (1)", "Failed (1)", "Needs a person (2)"];
    assert!(titles.map(at).is_sorted(), "{text}");
    shown
        .prints("a migration")
        .prints("`db` is held by worker:one")
        .prints("`lockkeeper run logs bad`  exit code 3: no such table")
        .prints("asks needs input")
        .prints("start a worker with `lockkeeper work`");
    let view = world.run(["status", "--json"]).code(0).json();
    assert_eq!(view["counts"], json!({ "needs_input": 1, "failed": 1, "running": 0, "queued": 1 }));
    assert_eq!(view["failed"][0]["last_line"], "no such table");
    assert_eq!(view["queued"][0]["blocked"]["holders"][0]["owner"], "worker:one");
    assert_eq!(view["waiters"][0]["waits_for"][0]["owner"], "worker:one");
    let codes: Vec<&Value> =
        view["attention"].as_array().unwrap().iter().map(|attention| &attention["code"]).collect();
    assert_eq!(codes, ["NEEDS_INPUT", "NO_WORKER"]);
    holder.finish().code(0);
    waiter.wait().code(0);
}

/// Requirement 192. A worker would not help these.
#[test]
fn what_can_never_start_needs_a_person() {
    let world = world!().with_state();
    world.run(["submit", "--id", "bad", "--", "false"]).code(0);
    world.run(["work", "--drain", "--quiet"]).code(1);
    world.run(["submit", "--id", "child", "--after", "bad", "--", "true"]).code(0);
    world.run(["submit", "--id", "gpu", "--needs", "gpu", "--", "true"]).code(0);
    let view = world.run(["status", "--json"]).code(0).json();
    let attention = view["attention"].as_array().unwrap();
    let codes: Vec<&Value> = attention.iter().map(|one| &one["code"]).collect();
    assert_eq!(codes, ["NEVER_STARTS", "NO_WORKER"], "{view}");
    assert_eq!(attention[0]["message"], "can never start: child (after bad)");
    assert_eq!(attention[0]["hint"], "`lockkeeper run retry bad` runs what failed again");
    assert_eq!(attention[1]["message"], "1 queued, and nobody works");
    assert_eq!(attention[1]["hint"], "start a worker with `lockkeeper work --label gpu`");
    let text = world.run(["status"]).code(0).stdout();
    assert!(text.contains("can never start: bad did not succeed"), "{text}");
    assert!(text.contains("Needs a person (2)"), "{text}");
}
