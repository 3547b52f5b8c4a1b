//! Metrics for a monitoring system.

use lockkeeper_testing::http::Http;
use lockkeeper_testing::{Started, until};
use serde_json::json;

use super::server::Server;

#[track_caller]
fn value(text: &str, name: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{name} is not in {text}")).parse().unwrap()
}

#[test]
fn every_metric_has_a_help_line_and_a_type() {
    let server = Server::start();
    let answer = server.get("/metrics");
    assert!(answer.header("content-type").unwrap().starts_with("application/openmetrics-text"));
    let text = answer.text();
    assert!(text.ends_with("# EOF\n"));
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().unwrap();
        let known = |kind: &str| {
            text.lines().filter_map(|line| line.strip_prefix(kind)?.split(' ').next()).any(|family| {
                let rest = name.strip_prefix(family);
                rest.is_some_and(|rest| ["", "_total", "_sum", "_count", "_bucket", "_info"].contains(&rest))
            })
        };
        assert!(known("# HELP ") && known("# TYPE "), "{line}");
    }
}

/// Requirements 139, 140 and 141.
#[test]
fn the_alerts_on_locks_are_metrics() {
    let server = Server::start();
    let quiet = server.get("/metrics").text();
    for alert in ["LOCK_WAIT", "DEADLOCKS", "ORPHAN_LOCKS", "DOWNGRADES"] {
        assert_eq!(value(&quiet, &format!("lockkeeper_alert{{alert=\"{alert}\"}}")), 0.0);
    }
    assert_eq!(value(&quiet, "lockkeeper_longest_wait_seconds"), 0.0);
    assert_eq!(value(&quiet, "lockkeeper_deadlocks"), 0.0);
    let child = Started::of(&mut std::process::Command::new("cat"));
    for number in 0..6 {
        let wish = json!({ "names": [format!("n{number}")], "pid": child.pid() });
        server.post("/api/locks", &wish).expect(201);
    }
    server.post("/api/locks", &json!({ "names": ["n0"], "wait": true })).expect(202);
    let busy = server.get("/metrics").text();
    assert_eq!(value(&busy, "lockkeeper_leases{state=\"alive\"}"), 6.0);
    assert_eq!(value(&busy, "lockkeeper_waiters"), 1.0);
    assert!(value(&busy, "lockkeeper_longest_wait_seconds") > 0.0);
    child.finish().code(0);
    let orphaned = server.get("/metrics").text();
    assert_eq!(value(&orphaned, "lockkeeper_orphan_locks"), 6.0);
    assert_eq!(value(&orphaned, "lockkeeper_alert{alert=\"ORPHAN_LOCKS\"}"), 1.0);
}

#[test]
fn requests_are_counted_by_address_and_never_by_what_strangers_make_up() {
    let server = Server::start();
    server.get("/api/locks/L1");
    server.get("/api/made-up-1");
    server.request("MADEUP", "/api/locks").send();
    let text = server.get("/metrics").text();
    let count = "lockkeeper_http_requests_total{method=\"GET\",route=\"/api/locks/{id}\",status=\"404\"}";
    assert_eq!(value(&text, count), 1.0);
    assert!(!text.contains("made-up") && !text.contains("MADEUP"), "{text}");
}

/// Requirement 142. Real executions of a STAGES.yml, each of which falls back once.
#[test]
fn downgrades_of_the_last_hour_are_a_metric_and_more_than_ten_an_alert() {
    let server = Server::start();
    let stages = "parallel_groups:\n  P1:\n    - {group_id: a, command: 'true'}\n    - {group_id: b, command: 'true'}\n\
                  downgrade_rules: [{name: memory, condition: \"memory_usage > 0.01%\", action: reduce_parallelism}]\n";
    std::fs::write(server.folder().join("STAGES.yml"), stages).unwrap();
    let execute = || server.world().run(["stages", "run", "STAGES.yml", "P1", "--load", "0"]).code(0);
    let alert = "lockkeeper_alert{alert=\"DOWNGRADES\"}";
    execute();
    let once = server.get("/metrics").text();
    assert_eq!((value(&once, "lockkeeper_downgrades"), value(&once, alert)), (1.0, 0.0));
    for _ in 0..10 {
        execute();
    }
    let often = server.get("/metrics").text();
    assert_eq!((value(&often, "lockkeeper_downgrades"), value(&often, alert)), (11.0, 1.0));
    assert!(server.get("/api/locks").expect(200)["alerts"].to_string().contains("DOWNGRADES"));
    assert!(server.get("/locks").text().contains("Parallel work often falls back"));
    assert!(server.get("/api/doctor").expect(200).to_string().contains("DOWNGRADES"));
}

#[test]
fn requests_runs_and_the_queue_are_metrics() {
    let server = Server::start();
    let quiet = server.get("/metrics").text();
    assert_eq!(value(&quiet, "lockkeeper_requests{status=\"NEEDS_INPUT\"}"), 0.0);
    assert_eq!(value(&quiet, "lockkeeper_runs{status=\"timedOut\"}"), 0.0);
    assert_eq!(value(&quiet, "lockkeeper_queue_oldest_seconds"), 0.0);
    for id in ["RQ-1", "RQ-2", "RQ-3"] {
        server.post("/api/requests", &json!({ "id": id, "command": ["false"] })).expect(201);
    }
    server.post("/api/requests/RQ-1/run", &json!({})).expect(202);
    let failed = "lockkeeper_runs{status=\"failed\"}";
    until("the run has failed", || value(&server.get("/metrics").text(), failed) == 1.0);
    let busy = server.get("/metrics").text();
    assert_eq!(value(&busy, "lockkeeper_requests{status=\"FAILED\"}"), 1.0);
    assert_eq!(value(&busy, "lockkeeper_queue_depth"), 2.0);
    assert!(value(&busy, "lockkeeper_queue_oldest_seconds") > 0.0);
}
