//! Pages say why something waits, who must move, and what follows from a button.

use lockkeeper_engine::messages::Language;
use lockkeeper_testing::http::Http;
use lockkeeper_testing::stages::{GATED, execute};
use lockkeeper_testing::{Started, files, until};
use serde_json::{Value, json};

use super::hooks::collide;
use super::runs::{submit, wait_for};
use super::server::Server;

fn browse(server: &Server, path: &str) -> String {
    server.request("GET", path).header("accept", "text/html").send().text()
}

#[track_caller]
fn assert_has(text: &str, expected: &[&str]) {
    for expected in expected {
        assert!(text.contains(expected), "{expected} is not in {text}");
    }
}

/// The row of a table that has this id.
fn row<'t>(text: &'t str, id: &str) -> &'t str {
    let start = text.find(&format!("<tr id=\"{id}\"")).unwrap_or_else(|| panic!("{id} is not in {text}"));
    &text[start..start + text[start..].find("</tr>").unwrap()]
}

fn queue(server: &Server, body: &Value) -> String {
    server.post("/api/requests", body).expect(201)["run_id"].as_str().unwrap().to_owned()
}

#[test]
fn the_page_of_a_queued_run_says_why_it_is_queued_and_what_it_needs() {
    let server = Server::start();
    let mut stream = server.listen();
    let bad = submit(&server, "bad", &json!(["false"]));
    server.post("/api/requests/bad/run", &json!({})).expect(202);
    wait_for(&server, &mut stream, &bad, "failed");
    let held = json!({ "names": ["db"], "owner": "person:ada" });
    let lease = server.post("/api/locks", &held).expect(201)["lease"]["id"].as_str().unwrap().to_owned();
    let waits =
        queue(&server, &json!({ "id": "w", "command": ["true"], "locks": ["db"], "paths": ["src/**"] }));
    let page = browse(&server, &format!("/runs/{waits}"));
    assert_has(&page, &["Waits for db, held by person:ada for", &format!("href=\"/locks#lease-{lease}\"")]);
    assert_has(&page, &["no worker is running", "<dt>Wants</dt>", "src/**"]);
    assert!(!page.contains("<dt>Attempt</dt>"), "{page}");
    let after = queue(&server, &json!({ "id": "a", "command": ["true"], "after": ["bad"] }));
    let page = browse(&server, &format!("/runs/{after}"));
    assert_has(
        &page,
        &["Can never start: <a href=\"/requests/bad\"", "<span class=\"badge bad\">failed</span>"],
    );
    let gpu = queue(&server, &json!({ "id": "g", "command": ["true"], "needs": ["gpu"] }));
    let page = browse(&server, &format!("/runs/{gpu}"));
    assert_has(&page, &["<dt>Worker with label</dt>", "gpu"]);
    // A run that has ended waits for nothing.
    let page = browse(&server, &format!("/runs/{bad}"));
    assert!(!page.contains("id=\"whys\"") && !page.contains("<dt>Wants</dt>"), "{page}");
}

#[test]
fn a_run_that_needs_input_says_so_itself_and_its_buttons_say_what_they_do() {
    let server = Server::start();
    let run = submit(&server, "asks", &json!(["sh", "-c", "echo which one; exit 10"]));
    server.post("/api/requests/asks/run", &json!({})).expect(202);
    let status = || server.get("/api/requests/asks").expect(200)["request"]["status"].take();
    until("it asks", || status() == "NEEDS_INPUT");
    let page = browse(&server, &format!("/runs/{run}"));
    let head = &page[page.find("id=\"run-head\"").unwrap()..page.find("id=\"run-facts\"").unwrap()];
    assert_has(head, &["<span class=\"badge ask\">needs input</span>", "at once", "in its turn"]);
    assert!(!head.contains("badge bad"), "{head}");
    assert_has(&browse(&server, "/runs"), &["<span class=\"badge ask\">needs input</span>"]);
    // Answered, the old run is one that failed.
    server.post("/api/requests/asks/answer", &json!({ "answer": "this" })).expect(201);
    let page = browse(&server, &format!("/runs/{run}"));
    assert_has(&page, &["<span class=\"badge bad\">failed</span>"]);
}

#[test]
fn the_board_shows_the_ids_that_users_chose() {
    let server = Server::start();
    submit(&server, "after1", &json!(["true"]));
    let made = server.post("/api/requests", &json!({ "command": ["true"] })).expect(201);
    let made = made["request_id"].as_str().unwrap().to_owned();
    queue(&server, &json!({ "id": "q1", "title": "q", "command": ["true"], "after": ["after1", made] }));
    let board = browse(&server, "/");
    assert_has(row(&board, "request-after1"), &[">after1</a>"]);
    let short: String = made.rsplit('-').next().unwrap().chars().take(7).collect();
    let reason = format!(
        "Comes after <a href=\"/requests/after1\" title=\"after1\">after1</a>, <a href=\"/requests/{made}\" title=\"{made}\">{short}</a>"
    );
    assert_has(row(&board, "request-q1"), &[">q1</a>", &reason]);
    // Nobody types a generated id: the run has a shorter one.
    assert!(!row(&board, &format!("request-{made}")).contains(&format!(">{made}</a>")), "{board}");
}

#[test]
fn before_a_lease_is_broken_the_page_says_what_follows() {
    let server = Server::start();
    let take = |body: Value| {
        server.post("/api/locks", &body).expect(201)["lease"]["id"].as_str().unwrap().to_owned()
    };
    let cache = take(json!({ "names": ["cache"], "owner": "person:ada" }));
    server.post("/api/locks", &json!({ "names": ["cache"], "owner": "test:bob", "wait": true })).expect(202);
    let child = Started::of(&mut std::process::Command::new("cat"));
    let watched = take(json!({ "names": ["watched"], "owner": "test:cat", "pid": child.pid() }));
    let _guard = server.keeper.lock("told").owner("lib:told").try_acquire().unwrap();
    let page = browse(&server, "/locks");
    let one = row(&page, &format!("lease-{cache}"));
    assert_has(
        one,
        &["data-title=\"Break the lock on cache?\"", "person:ada has no process that is watched"],
    );
    assert_has(one, &["Next in line: test:bob.", "no process is watched, last heard of <time"]);
    let alive = format!("test:cat is alive (process {})", child.pid());
    assert_has(row(&page, &format!("lease-{watched}")), &[&alive, "Nobody waits."]);
    assert_has(&page, &["lib:told is alive. It is told to stop"]);
    child.finish().code(0);
    let gone = || {
        row(&browse(&server, "/locks"), &format!("lease-{watched}"))
            .contains("The process of test:cat has ended")
    };
    until("its process is seen to have ended", gone);
}

#[test]
fn a_ticket_whose_process_has_ended_does_not_count_as_a_waiter() {
    let server = Server::start();
    server.post("/api/locks", &json!({ "names": ["db"], "owner": "test:holder" })).expect(201);
    let child = Started::of(&mut std::process::Command::new("cat"));
    let wish = json!({ "names": ["db"], "owner": "test:gone", "wait": true, "pid": child.pid() });
    server.post("/api/locks", &wish).expect(202);
    server.post("/api/locks", &json!({ "names": ["db"], "owner": "test:waits", "wait": true })).expect(202);
    assert_has(&browse(&server, "/locks"), &["<dt>Waiting</dt><dd>2</dd>"]);
    child.finish().code(0);
    until("its ticket is shown as gone", || browse(&server, "/locks").contains("it is skipped"));
    let page = browse(&server, "/locks");
    assert_has(
        &page,
        &["<dt>Waiting</dt><dd>1</dd>", "<span class=\"badge bad\">gone</span>", "1 wait behind it"],
    );
}

/// What other parts report is English. A line says so, and is in one language otherwise.
#[test]
fn english_texts_on_translated_pages_stand_behind_a_label() {
    let server = Server::start();
    let mut stream = server.listen();
    execute(server.world(), GATED, "P3").code(0);
    let id = server.get("/api/stages").expect(200)["latest"]["execution_id"].take();
    let execution = format!("/stages/{}?", id.as_str().unwrap());
    let body = json!({ "id": "again", "command": ["false"], "retries": 1, "backoff": 0.01 });
    let run = queue(&server, &body);
    server.post("/api/requests/again/run", &json!({})).expect(202);
    wait_for(&server, &mut stream, &run, "failed");
    let words = [
        (Language::Ja, "詳細:", "試行 1/2: ", "英語", ">キュー</h2>"),
        (Language::Zh, "详情:", "第 1 次尝试，共 2 次：", "英文", ">队列</h2>"),
    ];
    for (language, label, attempt, english, heading) in words {
        let page = |path: &str| browse(&server, &format!("{path}lang={}", language.code()));
        let plan = page("/stages/plan?file=STAGES.yml&");
        assert_has(&plan, &[&format!("{label} <span lang=\"en\">`api` and `web` both match")]);
        let runs = page("/runs?");
        assert!(!runs.contains("the next in"), "{runs}");
        assert_has(&runs, &[attempt, &format!("{label} worker ")]);
        let execution = page(&execution);
        assert_has(&execution, &["<time class=\"soft small\" data-at=\""]);
        assert_has(&page("/nowhere?"), &[&format!("{label} <span lang=\"en\">there is no such address")]);
        let api = page("/api?");
        assert_has(
            &api,
            &[english, heading, "<span lang=\"en\">How long the lease lasts without being renewed"],
        );
    }
    assert!(!browse(&server, "/api?lang=en").contains("id=\"in-english\""));
}

/// Everything is relative and local on the page, also what was read from the files of others.
#[test]
fn a_lock_of_another_format_has_a_time_that_the_page_counts() {
    let server = Server::start();
    let created = "2026-01-31T12:00:00.000Z";
    let record = json!({
        "version": "1.0", "lock_type": "request", "request_id": "RQ-9", "run_id": "RUN-THEIRS", "pid": 1,
        "host": "127.0.0.1", "created_at": created, "expires_at": "2999-01-31T12:00:00.000Z",
    });
    let file = server.folder().join(".aiflow/locks/request.RQ-9.lock.json");
    files::write(&file, record.to_string());
    let page = browse(&server, "/locks");
    assert_has(&page, &["RUN-THEIRS", "<time data-since=\"1769860800000\">"]);
    assert!(!page.contains("2026-01-31T"), "{page}");
}

#[test]
fn the_page_of_agents_shows_their_waits_alone_with_all_that_they_want() {
    let server = Server::start();
    collide(&server, "split the parser");
    let wait = |owner: &str, names: Value, paths: Value| {
        let body = json!({ "names": names, "paths": paths, "owner": owner, "wait": true });
        server.post("/api/locks", &body).expect(202);
    };
    server.post("/api/locks", &json!({ "names": ["cache"], "owner": "person:ada" })).expect(201);
    wait("run:RUN-20260131-120000-k3x9f2m7qd", json!(["cache"]), json!([]));
    wait("claude:two", json!(["cache"]), json!(["a.rs", "lib/**"]));
    wait("run:RUN-20260131-120000-r6t8f98xrt", json!([]), json!(["a.rs"]));
    let page = browse(&server, "/agents");
    let table = &page[page.find("id=\"agents-waiting\"").unwrap()..];
    assert_has(
        table,
        &["<th scope=\"col\">File or name</th>", ">cache</span>", ">a.rs</span>", ">lib/**</span>"],
    );
    assert_has(table, &[">run r6t8f98xrt</span>"]);
    assert!(!table.contains("k3x9f2m7qd"), "{table}");
    let row = &page[page.find("id=\"agents-list\"").unwrap()..page.find("id=\"agents-waiting\"").unwrap()];
    assert_has(row, &["<code>cache</code>, <code>a.rs</code>, <code>lib/**</code>"]);
}
