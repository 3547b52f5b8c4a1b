//! What people read and type: short ids, commands instead of generated owners, last lines of output, tables that fit.

use lockkeeper_testing::{Signal, World, until, world};
use serde_json::Value;

/// Submits a command without an id. Returns the ids of its request and of its run.
fn submit(world: &World, script: &str) -> (String, String) {
    let done = world.run(["--json", "submit", "--", "sh", "-c", script]).code(0).json();
    let text = |key: &str| done[key].as_str().unwrap().to_owned();
    (text("request_id"), text("run_id"))
}

/// The last part of an id.
fn short(id: &str) -> &str {
    id.rsplit_once('-').unwrap().1
}

#[test]
fn a_failed_run_tells_its_code_its_last_line_and_where_its_output_is() {
    let world = world!().with_state();
    let (request, run) = submit(&world, "echo begin; echo no such table; exit 3");
    world.run(["work", "--drain", "--quiet"]).code(1);
    let list = world.run(["runs"]).code(0).says("lockkeeper run logs RUN");
    let list = list.prints("exit code 3: no such table").prints(short(&run)).prints(short(&request));
    assert!(!list.stdout().contains(&run) && !list.stdout().contains(&request), "{}", list.stdout());
    let logs = format!("`lockkeeper run logs {}` prints it", short(&run));
    world.run(["run", "show", &run]).code(0).prints("last line  no such table").prints(&logs);
    for part in [&short(&run)[..6], &short(&run)[4..], short(&run), &short(&request)[..6], short(&request)] {
        world.run(["run", "show", part]).code(0).prints(&run);
        world.run(["run", "logs", part]).code(0).prints("no such table");
        world.run(["requests", "show", part]).code(0).prints(&request);
    }
    world.run(["requests", "show", "nothing"]).code(2).says("no request");
    world.run(["requests", "show", &short(&run)[..2]]).code(2).says("no request");
    world.run(["run", "show", &short(&run)[..2]]).code(2).says("no run");
    assert_eq!(world.run(["runs", "--json"]).code(0).json()["runs"][0]["id"], run.as_str());
}

#[test]
fn an_owner_that_nobody_chose_is_shown_as_its_command() {
    let world = world!().with_state();
    let holder = world.hold(&["db"]);
    let waiter = world.start(["exec", "db", "-c", "echo it is my turn"]);
    world.until_waiting(1);
    for words in [&["locks"][..], &["status"]] {
        let shown = world.run(words).code(0).prints("sh -c echo up;").prints("echo it is my turn");
        assert!(!shown.stdout().contains("exec:"), "{}", shown.stdout());
        let listing = world.run([words, &["--json"]].concat()).code(0).json();
        assert!(listing["leases"][0]["owner"].as_str().unwrap().starts_with("exec:"));
    }
    world.run(["submit", "--id", "later", "--lock", "db", "--", "true"]).code(0);
    for words in [&["requests"][..], &["requests", "show", "later"], &["run", "show", "later"]] {
        world.run(words).code(0).prints("`db` is held by sh -c echo up;");
    }
    holder.finish().code(0);
    waiter.wait().code(0);
    world.acquire(&["db", "--owner", "worker:1"]);
    world.run(["locks"]).code(0).prints("worker:1");
}

#[test]
fn runs_are_watched() {
    let world = world!().with_state();
    let (_, first) = submit(&world, "exit 0");
    let mut watch = world.start(["runs", "--watch", "--json"]);
    let mut next = || serde_json::from_str::<Value>(&watch.line()).unwrap()["runs"].take();
    assert_eq!(next()[0]["id"], first.as_str());
    let (_, second) = submit(&world, "exit 0");
    let shown = next();
    assert_eq!((shown.as_array().unwrap().len(), &shown[0]["id"]), (2, &Value::from(second)));
    watch.signal(Signal::INT);
    watch.wait().code(0);
    world.run(["runs", "--watch", "stats"]).code(2);
    let mut text = world.start(["runs", "--watch"]);
    let lines = [text.line(), text.line()].concat();
    assert!(lines.contains("queued") && !lines.contains('\x1b'), "a pipe gets no colours: {lines:?}");
    text.signal(Signal::INT);
    text.wait().code(0);
}

#[test]
fn a_run_that_holds_a_lock_is_shown_by_its_short_id_also_on_a_narrow_terminal() {
    let world = world!().with_state();
    let script = [
        "submit",
        "--lock",
        "db",
        "--json",
        "--",
        "sh",
        "-c",
        "touch up; while [ ! -e go ]; do sleep 0.02; done",
    ];
    let run = world.run(script).code(0).json()["run_id"].as_str().unwrap().to_owned();
    let worker = world.start(["work", "--drain", "--quiet"]);
    until("the command runs", || world.path("up").exists());
    let line = format!(
        "export NO_COLOR=1; stty rows 40 cols 80; '{0}' locks; '{0}' exec -n db -- true; echo end",
        world.program()
    );
    let mut terminal = world.terminal(&line);
    let shown = terminal.sees("end");
    let name = format!("run {}", short(&run));
    assert!(shown.contains(&name) && shown.contains(&format!("held by {name}")), "{shown}");
    assert!(!shown.contains(&run), "{shown}");
    terminal.wait().code(0);
    std::fs::write(world.path("go"), "").unwrap();
    worker.wait().code(0);
}

#[test]
fn tables_fit_the_terminal_and_pipes_get_all() {
    let world = world!().with_state();
    let long = "a reason that is much longer than any terminal in which it could be shown by a command";
    world.acquire(&["db", "--owner", "worker:1", "--reason", long]);
    world.run(["locks"]).code(0).prints(long);
    let line = format!(
        "export NO_COLOR=1; stty rows 40 cols 80; '{0}' locks; '{0}' status; echo end",
        world.program()
    );
    let mut terminal = world.terminal(&line);
    let shown = terminal.sees("end");
    assert!(shown.contains("worker:1") && shown.contains("a rea") && !shown.contains(long), "{shown}");
    for line in shown.lines() {
        assert!(line.trim_end().chars().count() <= 80, "{line:?}");
    }
    terminal.wait().code(0);
}

/// Nobody knows who `exec:1039.5f910fbb3c2a7d44` is: everything that a person reads about a holder names its command.
#[test]
fn refusals_waits_and_evidence_name_the_command_of_the_holder() {
    let world = world!();
    let holder = world.start(["exec", "db", "--", "sleep", "1000"]);
    until("`db` is held", || world.run(["locks"]).code(0).stdout().contains("sleep 1000"));
    world
        .run(["exec", "-n", "db", "--", "true"])
        .code(75)
        .says("db, held by sleep 1000")
        .says("waits as long as it takes");
    world.run(["acquire", "db"]).code(75).says("db, held by sleep 1000");
    world
        .run(["exec", "--wait=1100ms", "db", "--", "true"])
        .code(75)
        .says("waiting for db, held by sleep 1000");
    world.run(["why", "db"]).code(0).prints("of sleep 1000, token").prints("ask sleep 1000 to release it");
    world.run(["--json", "why", "db"]).code(0).prints("\"exec:");
    holder.signal(Signal::TERM);
    holder.wait().code(143);
}

/// Ids that a person can read and type, everywhere but in data for scripts.
#[test]
fn lines_of_the_queue_have_short_ids_and_sentences() {
    let world = world!().with_state();
    let (request, run) = submit(&world, "echo no such table; exit 3");
    world.run(["submit", "--id", "ask", "--", "sh", "-c", "echo which one?; exit 10"]).code(0);
    world.run(["submit", "--id", "child", "--after", "ask", "--", "true"]).code(0);
    let flaky = ["submit", "--id", "flaky", "--retries", "1", "--backoff", "1ms", "--", "sh", "-c", "exit 5"];
    world.run(flaky).code(0);
    let said = world.run(["work", "--drain"]).code(1).stderr();
    assert!(said.contains("flaky: failed (exit code 5), will be retried\n"), "{said}");
    let logs = format!("(exit code 3): no such table (`lockkeeper run logs {}`)", short(&run));
    assert!(said.contains(&logs) && said.contains("(`lockkeeper run logs ask`)"), "{said}");
    assert!(said.contains(&format!("{}: started", short(&run))), "{said}");
    let listed = world.run(["queue", "list"]).code(0).prints("ask  it waits for input");
    let listed = listed.prints("child  can never start: ask did not succeed");
    let waited = world.run(["run", "wait", &run]).code(3).stderr();
    let failed = format!("{} failed: exit code 3: no such table (`lockkeeper run logs {0}`)\n", short(&run));
    assert_eq!(waited, failed);
    let events = world.run(["run", "events", "ask"]).code(0).prints("worker ");
    for text in [said, listed.stdout(), waited, events.stdout()] {
        for part in ["RUN-", "RQ-", "W-", "NOT_DONE", "NOT_READY"] {
            assert!(!text.contains(part), "{part} in {text}");
        }
    }
    let submitted = world.run(["submit", "--", "true"]).code(0).stdout();
    assert!(submitted.starts_with("RQ-") && submitted.contains("\tRUN-"), "scripts read it: {submitted}");
    let json = world.run(["queue", "list", "--json"]).code(0).json();
    let passed = json["passed_over"].as_array().unwrap();
    assert!(passed.iter().any(|one| one["request_id"] == request.as_str()), "{json}");
}

#[test]
fn waits_of_a_worker_name_the_holder_by_its_short_id() {
    let world = world!().with_state();
    let script = "touch up; while [ ! -e go ]; do sleep 0.02; done";
    let job = ["submit", "--lock", "db", "--json", "--", "sh", "-c", script];
    let first = world.run(job).code(0).json()["run_id"].as_str().unwrap().to_owned();
    world.run(job).code(0);
    let mut worker = world.start(["work", "--drain", "--jobs", "2"]);
    let said = worker.until_stderr(&format!("waits, db is held by run {}", short(&first)));
    assert!(!said.contains("RUN-"), "{said}");
    std::fs::write(world.path("go"), "").unwrap();
    worker.wait().code(0);
}

#[test]
fn plans_and_events_fit_eighty_columns() {
    let plan = "parallel_groups:\n  P1:\n    - group_id: api\n      agents: [one]\n      command: [\"true\"]\n      conflict_paths: [\"packages/one_long_name/**\"]\n    \
                - group_id: web\n      agents: [two]\n      command: [\"true\"]\n      conflict_paths: [\"packages/**/package.json\"]\n";
    let world = world!().git().write("STAGES.yml", plan);
    world.run(["submit", "--id", "a", "--", "sh", "-c", "exit 3"]).code(0);
    world.run(["work", "--drain", "--quiet"]).code(1);
    let piped = world.run(["run", "events", "a"]).code(0).stdout();
    assert!(piped.lines().any(|line| line.contains("claimed") && line.contains("attempt 1")), "{piped}");
    let line = format!(
        "export NO_COLOR=1; stty rows 40 cols 80; '{0}' run events a; '{0}' stages plan STAGES.yml P1; echo that is all",
        world.program()
    );
    let mut terminal = world.terminal(&line);
    let shown = terminal.sees("that is all");
    assert!(shown.contains("GROUP") && shown.contains("claimed"), "{shown}");
    for line in shown.lines() {
        assert!(line.trim_end().chars().count() <= 80, "{line:?}");
    }
    terminal.wait().code(0);
}
