//! The HTML pages of stages.

use lockkeeper_testing::http::{Http, Response};
use lockkeeper_testing::stages::{GATED, execute};
use serde_json::json;

use super::server::Server;

fn browse(server: &Server, path: &str) -> Response {
    server.request("GET", path).header("accept", "text/html").send()
}

#[test]
fn an_empty_page_says_what_to_run_first() {
    let server = Server::start();
    let page = browse(&server, "/stages");
    assert_eq!(page.status, 200);
    assert!(page.text().contains("lockkeeper stages run STAGES.yml P3"));
    assert_eq!(browse(&server, "/stages/EX-0").status, 404);
    assert_eq!(browse(&server, "/stages/plan?file=STAGES.yml").status, 404);
}

#[test]
fn a_page_shows_groups_runs_conflicts_with_witness_and_bars() {
    let server = Server::start();
    execute(server.world(), GATED, "P3").code(0);
    let latest = server.get("/api/stages").expect(200)["latest"].take();
    let (id, run) = (latest["execution_id"].as_str().unwrap(), &latest["groups"][0]["runs"][0]["run_id"]);
    let request = latest["groups"][0]["runs"][0]["request_id"].as_str().unwrap();
    let back = browse(&server, &format!("/requests/{request}")).text();
    assert!(back.contains(&format!("href=\"/stages/{id}\"")), "{back}");
    let list = browse(&server, "/stages").text();
    assert!(list.contains(&format!("/stages/{id}")) && list.contains("MUTEX"), "{list}");
    let page = browse(&server, &format!("/stages/{id}")).text();
    for expected in [
        &format!("/runs/{}", run.as_str().unwrap()),
        "<svg class=\"plan\"",
        "<svg class=\"gantt\"",
        "both match package.json",
        "<code>package.json</code>",
        "FATAL",
        "mutex_lock",
        "Backend",
    ] {
        assert!(page.contains(expected), "{expected} is not in {page}");
    }
    // The policy of the page allows neither.
    assert!(!page.contains("<style") && !page.contains(" style="), "{page}");
    for (language, expected) in [("ja", "競合グラフ"), ("zh", "冲突图"), ("ja", "両方に一致: package.json")]
    {
        let page = browse(&server, &format!("/stages/{id}?lang={language}")).text();
        assert!(page.contains(expected), "{expected} is not in {page}");
    }
    let plan = browse(&server, "/stages/plan?file=STAGES.yml&phase=P3").text();
    assert!(
        plan.contains("<svg class=\"plan\"") && plan.contains("MUTEX") && plan.contains("FATAL"),
        "{plan}"
    );
}

#[test]
fn whatever_a_file_says_is_never_markup_of_the_page() {
    let server = Server::start();
    let evil = r#"<script>alert(1)</script>"'><img src=x onerror=alert(1)>"#;
    let quoted = evil.replace('\'', "''");
    let stages = format!(
        "parallel_groups:\n  '{quoted}':\n    - {{group_id: a, name: '{quoted}', agents: ['{quoted}'], conflict_paths: ['{quoted}']}}\n\
         \x20   - {{group_id: b, agents: [x], conflict_paths: ['**']}}\n\
         conflict_detection:\n  rules: [{{name: '{quoted}', severity: FATAL, action: mutex_lock, paths: ['**']}}]\n"
    );
    execute(server.world(), &stages, evil).code(0);
    let id = server.get("/api/stages").expect(200)["latest"]["execution_id"].take();
    let paths = [
        "/stages".to_owned(),
        format!("/stages/{}", id.as_str().unwrap()),
        "/stages/plan?file=STAGES.yml".to_owned(),
    ];
    for path in paths {
        let text = browse(&server, &path).text();
        assert!(!text.contains("<script>alert") && !text.contains("<img src=x"), "{path}: {text}");
        assert!(text.contains("alert(1)"), "{path}");
    }
}

#[test]
fn open_requests_whose_paths_meet_are_drawn_and_those_that_share_are_not() {
    let server = Server::start();
    let submit = |id: &str, path: &str, shared: bool| {
        let body = json!({ "id": id, "command": ["true"], "paths": [path], "shared": shared });
        server.post("/api/requests", &body).expect(201);
    };
    submit("RQ-1", "src/**", false);
    submit("RQ-2", "docs/**", true);
    submit("RQ-3", "docs/a.md", true);
    let page = browse(&server, "/stages").text();
    assert!(!page.contains("<svg"), "{page}");
    submit("RQ-4", "src/api/x.rs", false);
    let page = browse(&server, "/stages").text();
    assert!(page.contains("<svg class=\"plan\"") && page.contains("both match src/api/x.rs"), "{page}");
    assert!(page.contains("href=\"/requests/RQ-4\"") && !page.contains("RQ-3"), "{page}");
}
