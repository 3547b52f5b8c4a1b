//! Executions and plans over HTTP.

use std::fs;
use std::os::unix::fs::symlink;

use lockkeeper_testing::http::{Events, Http};
use lockkeeper_testing::stages::{Execution, GATED, execute, let_end};
use serde_json::{Value, json};

use super::server::Server;

/// Looks at the latest execution now and after each event, until it is as wanted.
fn until(server: &Server, stream: &mut Events, wanted: impl Fn(&Value) -> bool) -> Value {
    stream.until_seen(|| server.get("/api/stages").expect(200)["latest"].take(), wanted)
}

fn status_of<'v>(execution: &'v Value, group: &str) -> &'v Value {
    let mut groups = execution["groups"].as_array().into_iter().flatten();
    groups.find(|one| one["group_id"] == group).map_or(&Value::Null, |one| &one["status"])
}

/// Every key of the first is in the second, with the same value.
fn assert_within(part: &Value, whole: &Value) {
    for (key, value) in part.as_object().unwrap() {
        assert_eq!(value, &whole[key], "{key} of {whole}");
    }
}

/// Requirement 138.
#[test]
fn executions_and_plans_have_the_keys_and_values_of_the_commands() {
    let server = Server::start();
    let empty = server.get("/api/stages").expect(200);
    assert_eq!((&empty["executions"], &empty["latest"]), (&json!([]), &Value::Null));
    execute(server.world(), GATED, "P3").code(0);
    let stages = server.get("/api/stages").expect(200);
    let report = server.world().json(&["stages", "report", "STAGES.yml"]);
    assert_within(&report["executions"][0], &stages["executions"][0]);
    for key in ["conflicts", "downgrades_last_hour", "alerts", "skipped_lines"] {
        assert_eq!(report[key], stages[key], "{key}");
    }
    assert_eq!(stages["files"], json!(["STAGES.yml"]));
    let plan = server.world().json(&["stages", "plan", "STAGES.yml", "P3", "--load", "0"]);
    let latest = &stages["latest"];
    assert_eq!(latest["plan"], plan);
    assert_eq!((&latest["status"], &latest["mode"]), (&json!("succeeded"), &json!("MUTEX")));
    assert_eq!(latest["plan"]["conflicts"][0]["witness"], "package.json");
    let run = &latest["groups"][0]["runs"][0];
    assert_eq!((&run["agent"], &run["status"]), (&json!("architect"), &json!("succeeded")));
    server.get(&format!("/api/runs/{}", run["run_id"].as_str().unwrap())).expect(200);
    let id = latest["execution_id"].as_str().unwrap();
    assert_eq!(&server.get(&format!("/api/stages/executions/{id}")).expect(200), latest);
    let planned = server.get("/api/stages/plan?file=STAGES.yml&phase=P3&load=0").expect(200);
    assert_eq!(planned, plan);
    let some = server.get("/api/stages/plan?file=STAGES.yml&phase=3&groups=api,docs&load=0").expect(200);
    assert_eq!((&some["mode"], some["groups"].as_array().unwrap().len()), (&json!("PARALLEL"), 2));
    // What was executed stays what it was, whatever the file says by now.
    fs::write(server.folder().join("STAGES.yml"), "parallel_groups: {}\n").unwrap();
    assert_eq!(server.get("/api/stages").expect(200)["latest"]["plan"], plan);
}

#[test]
fn an_execution_is_followed_from_its_beginning_to_its_end() {
    let server = Server::start();
    let mut stream = server.listen();
    let mut conducted = Execution::begin(server.world());
    let begun = until(&server, &mut stream, |latest| {
        status_of(latest, "docs") == "STARTED" && !latest["groups"][0]["runs"][0].is_null()
    });
    assert_eq!((&begun["status"], &begun["mode"]), (&json!("running"), &json!("MUTEX")));
    assert_eq!(status_of(&begun, "web"), "WAITING");
    assert_eq!(begun["wall_ms"], Value::Null);
    let_end(server.world(), "api");
    let later = until(&server, &mut stream, |latest| status_of(latest, "api") == "SUCCESS");
    assert_eq!(later["status"], "running");
    let_end(server.world(), "docs");
    let_end(server.world(), "web");
    let done = until(&server, &mut stream, |latest| latest["status"] == "succeeded");
    assert!(
        done["speed_up"].is_null() && done["serial_ms"].as_f64().is_some(),
        "never measured one by one: {done}"
    );
    assert!(conducted.end());
}

#[test]
fn the_stream_tells_of_executions() {
    let server = Server::start();
    let mut stream = server.listen();
    let mut conducted = Execution::begin(server.world());
    let mut next = || std::iter::repeat_with(|| stream.event()).find(|event| event.name == "stages").unwrap();
    let began = next().data;
    assert_eq!(began["type"], "stages.began");
    for group in ["api", "web", "docs"] {
        let_end(server.world(), group);
    }
    let changed = next().data;
    assert_eq!(changed["type"], "stages.changed");
    assert_eq!(changed["execution_id"], began["execution_id"]);
    assert!(conducted.end());
}

#[test]
fn a_group_says_what_it_waits_for() {
    let server = Server::start();
    let mut stream = server.listen();
    let guard = server.keeper.lock("docs").owner("lib:holder").try_acquire().unwrap();
    let _conducted = Execution::begin(server.world());
    let waits = until(&server, &mut stream, |latest| latest["groups"][2]["waits_for"].is_string());
    let why = waits["groups"][2]["waits_for"].as_str().unwrap();
    assert!(why.contains("docs is held by lib:holder"), "{why}");
    drop(guard);
}

#[test]
fn an_execution_whose_conductor_died_is_interrupted() {
    let server = Server::start();
    let mut stream = server.listen();
    let mut conducted = Execution::begin(server.world());
    until(&server, &mut stream, |latest| !latest["groups"][0]["runs"][0].is_null());
    conducted.kill();
    let left = until(&server, &mut stream, |latest| latest["status"] == "interrupted");
    assert_eq!(status_of(&left, "api"), "INTERRUPTED");
    for group in ["api", "web", "docs"] {
        let_end(server.world(), group);
    }
    let resume = ["stages", "run", "STAGES.yml", "P3", "--load", "0", "--agent-command", "true", "--resume"];
    // The exit codes of agents that ended meanwhile may be unknown. Then the second resume runs them again.
    let succeeds = || server.world().run(resume).succeeded();
    assert!(succeeds() || succeeds());
    let done = server.get("/api/stages").expect(200)["latest"].take();
    assert_eq!(done["status"], "succeeded");
    // The group began more than once, and the answer has all attempts.
    let all = done["groups"].as_array().unwrap().iter().filter(|group| group["group_id"] == "api");
    let all: Vec<&Value> = all.map(|group| &group["status"]).collect();
    assert_eq!((all[0], all[all.len() - 1]), (&json!("INTERRUPTED"), &json!("SUCCESS")), "{done}");
}

#[test]
fn executions_come_in_pages_and_unknown_ones_are_refused() {
    let server = Server::start();
    for _ in 0..3 {
        execute(server.world(), GATED, "P3").code(0);
    }
    let first = server.get("/api/stages?limit=2").expect(200);
    let next = first["next"].as_str().unwrap();
    let second = server.get(&format!("/api/stages?limit=2&after={next}")).expect(200);
    let ids = |page: &Value| -> Vec<String> {
        let all = page["executions"].as_array().unwrap().iter();
        all.map(|one| one["execution_id"].as_str().unwrap().to_owned()).collect()
    };
    let all = [ids(&first), ids(&second)].concat();
    assert_eq!((all.len(), &second["next"]), (3, &Value::Null));
    assert_eq!(ids(&server.get("/api/stages").expect(200)), all);
    server.get("/api/stages?after=EX-0").error(404, "NO_SUCH_EXECUTION");
    server.get("/api/stages/executions/EX-0").error(404, "NO_SUCH_EXECUTION");
    server.get("/api/stages/executions/..%2F..%2Fx").error(404, "NO_SUCH_EXECUTION");
}

#[test]
fn only_stages_files_of_the_project_are_planned_wherever_names_and_links_lead() {
    let server = Server::start();
    let folder = server.folder();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret.yml"), "password: x\n").unwrap();
    fs::write(folder.join("STAGES.yml"), GATED).unwrap();
    fs::write(folder.join("notes.txt"), GATED).unwrap();
    fs::write(folder.join("state/inside.yml"), GATED).unwrap();
    fs::create_dir_all(folder.join(".git")).unwrap();
    fs::write(folder.join(".git/inside.yml"), GATED).unwrap();
    symlink(outside.path().join("secret.yml"), folder.join("link.yml")).unwrap();
    symlink(outside.path(), folder.join("door")).unwrap();
    symlink("STAGES.yml", folder.join("alias.yml")).unwrap();
    let ask = |file: &str| server.get(&format!("/api/stages/plan?phase=P3&file={file}"));
    let absolute = outside.path().join("secret.yml");
    for file in [
        "../secret.yml",
        "a/../../secret.yml",
        absolute.to_str().unwrap(),
        "%2e%2e%2fsecret.yml",
        "link.yml",
        "door/secret.yml",
        "state/inside.yml",
        ".git/inside.yml",
        "notes.txt",
        "STAGES.yml%00.txt",
        "x%00.yml",
        "",
    ] {
        let error = ask(file).error(400, "BAD_INPUT");
        assert!(!error.to_string().contains("password"), "{error}");
    }
    for file in ["nothing.yml", "notes.txt/x.yml", &format!("{}.yml", "x".repeat(300))] {
        ask(file).error(404, "NO_SUCH_FILE");
    }
    fs::create_dir(folder.join("folder.yml")).unwrap();
    ask("folder.yml").error(404, "NO_SUCH_FILE");
    server.get("/api/stages/plan").error(400, "BAD_INPUT");
    assert_eq!(ask("alias.yml").expect(200)["mode"], "MUTEX");
}

#[test]
fn what_is_wrong_with_a_file_is_told_with_its_place() {
    let server = Server::start();
    let text = "parallel_groups:\n  P1:\n    - group_id: a\n      conflict_paths: [\"src/{a\"]\n";
    fs::write(server.folder().join("STAGES.yml"), text).unwrap();
    let error = server.get("/api/stages/plan?file=STAGES.yml").error(400, "BAD_STAGES");
    let context = &error["context"];
    assert_eq!((&context["file"], &context["line"]), (&json!("STAGES.yml"), &json!(4)));
    assert!(context["column"].as_u64().is_some_and(|column| column > 1), "{error}");
    let problems = context["problems"].as_array().unwrap();
    assert!(problems.iter().any(|problem| problem["line"] == 4 && problem["severity"] == "error"), "{error}");
    // The list of problems is limited, even for a long file with many of them.
    let group = "{group_id: a, conflict_paths: ['[']}, ";
    let text = format!("parallel_groups: {{P1: [{}]}}\n", group.repeat(2_000));
    fs::write(server.folder().join("STAGES.yml"), text).unwrap();
    let refused = server.get("/api/stages/plan?file=STAGES.yml");
    assert!(refused.body.len() < 200_000, "{}", refused.body.len());
    refused.error(400, "BAD_STAGES");
    fs::write(server.folder().join("STAGES.yml"), GATED).unwrap();
    let error = server.get("/api/stages/plan?file=STAGES.yml&phase=P9").error(400, "BAD_INPUT");
    assert!(error["hint"].as_str().unwrap().contains("P3"), "{error}");
    server.get("/api/stages/plan?file=STAGES.yml&load=-1").error(400, "BAD_INPUT");
    server.get("/api/stages/plan?file=STAGES.yml&load=NaN").error(400, "BAD_INPUT");
}

/// Only the phases that need what does not exist are refused.
#[test]
fn a_dependency_that_points_nowhere_refuses_only_its_phase() {
    let server = Server::start();
    let text = "parallel_groups:\n  P1: [{group_id: a}]\n  P2: [{group_id: b, depends_on: [nowhere]}]\n  \
        P3: [{group_id: c}]\n";
    fs::write(server.folder().join("STAGES.yml"), text).unwrap();
    let planned = server.get("/api/stages/plan?file=STAGES.yml&load=0").expect(200);
    let phases: Vec<&Value> = planned["phases"].as_array().unwrap().iter().map(|one| &one["phase"]).collect();
    assert_eq!(phases, ["P1", "P3"], "{planned}");
    assert_eq!(planned["refused"][0]["phase"], "P2", "{planned}");
    assert!(planned["refused"][0]["message"].as_str().unwrap().contains("nowhere"), "{planned}");
    let page = server.get("/stages/plan?file=STAGES.yml&load=0");
    let page = String::from_utf8_lossy(&page.body);
    assert!(page.contains("P3") && page.contains("nowhere"), "{page}");
    server.get("/api/stages/plan?file=STAGES.yml&load=0&phase=P2").error(400, "BAD_INPUT");
    let mut command = server.world().lockkeeper(["--json", "stages", "plan", "STAGES.yml", "--load", "0"]);
    let same = lockkeeper_testing::Finished::of(&mut command).code(2).json();
    assert_eq!(same, planned);
}

/// Requirement 142.
#[test]
fn many_downgrades_within_an_hour_are_an_alert_of_the_page_and_the_doctor() {
    let server = Server::start();
    execute(server.world(), GATED, "P3").code(0);
    let log = server.folder().join("logs/parallel_execution.log");
    let mut text = fs::read_to_string(&log).unwrap();
    let first: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    // With the rule for package.json, which two groups of the phase share.
    for _ in 0..10 {
        let line = json!({ "timestamp": first["timestamp"], "session": first["session"], "status": "DOWNGRADED",
                           "rule": "load", "to": "serial" });
        text.push_str(&format!("{line}\n"));
    }
    fs::write(&log, text).unwrap();
    let stages = server.get("/api/stages").expect(200);
    assert_eq!(
        (&stages["downgrades_last_hour"], &stages["alerts"][0]["code"]),
        (&json!(11), &json!("DOWNGRADES"))
    );
    let doctor = server.get("/api/doctor?mode=quick").expect(200).to_string();
    assert!(doctor.contains("downgrade"), "{doctor}");
    let page = server.request("GET", "/stages").header("accept", "text/html").send().text();
    assert!(page.contains("Parallel work often falls back"), "{page}");
}
