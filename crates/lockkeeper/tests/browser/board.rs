//! The board of requests: what comes first, new requests, answers, pages of a list, and what every page says of it.

use std::fs;

use lockkeeper_testing::http::Http;
use lockkeeper_testing::until;
use serde_json::{Value, json};

use super::at;
use super::chromium::Browser;
use super::server::Server;

fn submit(server: &Server, id: &str, script: &str, more: &Value) -> String {
    let mut body = json!({ "id": id, "title": format!("title of {id}"), "command": ["sh", "-c", script] });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    server.post("/api/requests", &body).expect(201)["run_id"].as_str().unwrap().to_owned()
}

/// Submits a request and executes it until it has this status.
fn execute(server: &Server, id: &str, script: &str, more: &Value, status: &str) -> String {
    let run = submit(server, id, script, more);
    server.post(&format!("/api/requests/{id}/run"), &json!({})).expect(202);
    let now = || server.get(&format!("/api/requests/{id}")).expect(200)["request"]["status"].take();
    until(&format!("{id} is {status}"), || now() == status);
    run
}

const GATED: &str = "echo begun; while [ ! -e go ]; do sleep 0.02; done";

#[test]
fn what_needs_a_person_comes_first_and_every_row_says_why() {
    let (server, mut browser) = (Server::start(), Browser::start());
    execute(&server, "RQ-done", "true", &json!({}), "DONE");
    execute(&server, "RQ-failed", "echo no such table: users; exit 3", &json!({}), "FAILED");
    execute(&server, "RQ-asks", "echo which one; exit 10", &json!({}), "NEEDS_INPUT");
    let run = execute(&server, "RQ-runs", GATED, &json!({ "locks": ["db"] }), "RUNNING");
    submit(&server, "RQ-waits", "true", &json!({ "locks": ["db"] }));
    submit(&server, "RQ-after", "true", &json!({ "after": ["RQ-waits"] }));
    browser.open(&at(&server, "/"));
    browser.until_live();
    let order =
        "[...document.querySelectorAll('#board-requests tr[id]')].map((one) => one.id.slice(8)).join()";
    assert_eq!(browser.run(order), "RQ-asks,RQ-failed,RQ-runs,RQ-waits,RQ-after,RQ-done");
    let row = |browser: &mut Browser, id: &str| {
        let text = browser.run(&format!("document.getElementById('request-{id}').innerText"));
        text.as_str().unwrap().to_owned()
    };
    assert!(row(&mut browser, "RQ-failed").contains("Exit code 3: no such table: users"));
    let runs = row(&mut browser, "RQ-runs");
    assert!(runs.contains("LOCKED") && runs.contains("is alive"), "{runs}");
    assert!(row(&mut browser, "RQ-waits").contains("Waits for db, held by"));
    assert!(row(&mut browser, "RQ-after").contains("Comes after RQ-waits"));
    // From the request that waits to the run that it waits for, from there to the lease, and from the lease back.
    browser.press("#request-RQ-waits .reason a", &format!("location.pathname === '/runs/{run}'"));
    browser.press("#run-facts a[href^='/locks']", "location.pathname === '/locks'");
    browser.press(
        &format!("#locks-holders a[href='/runs/{run}']"),
        &format!("location.pathname === '/runs/{run}'"),
    );
    fs::write(server.folder().join("go"), "").unwrap();
    browser.wait("document.querySelector('#run-head').innerText.includes('succeeded')");
    assert_eq!(browser.complaints, [""; 0]);
}

#[test]
fn a_request_is_made_with_a_form_and_an_error_keeps_what_was_written() {
    let (server, mut browser) = (Server::start(), Browser::start());
    browser.open(&at(&server, "/"));
    browser.until_live();
    browser.press("#new-request", "document.querySelector('#new-request-dialog').open");
    browser.run(
        "{ const fields = document.querySelector('#new-request-form').elements;
           fields.command.value = 'echo <b>hello</b>'; fields.locks.value = 'db  cache'; fields.after.value = 'RQ-none';
           fields.priority.value = '7'; }",
    );
    browser
        .press("#new-request-send", "document.querySelector('#new-request-form .problem').innerText !== ''");
    assert_eq!(server.get("/api/requests").expect(200)["requests"], json!([]));
    browser.run("document.querySelector('#new-request-form').elements.after.value = ''");
    browser.press("#new-request-send", "!document.querySelector('#new-request-dialog').open");
    browser.wait("document.querySelector('#queued')?.innerText.includes('echo <b>hello</b>')");
    let made = server.get("/api/requests").expect(200)["requests"][0].take();
    assert_eq!(made["command"], json!(["sh", "-c", "echo <b>hello</b>"]));
    assert_eq!((&made["locks"], &made["priority"]), (&json!(["db", "cache"]), &json!(7)));
    assert_eq!(browser.complaints, [""; 0]);
}

#[test]
fn an_answer_runs_the_request_again_and_its_command_gets_it() {
    let (server, mut browser) = (Server::start(), Browser::start());
    let script = "if [ -z \"$LOCKKEEPER_ANSWER\" ]; then echo 'skip or stop?'; exit 10; fi; printf '%s' \"$LOCKKEEPER_ANSWER\" > answer";
    execute(&server, "RQ-1", script, &json!({}), "NEEDS_INPUT");
    browser.open(&at(&server, "/"));
    browser.until_live();
    browser.wait("document.title.startsWith('(1) ')");
    browser.press("#answer-RQ-1", "document.querySelector('#answer').open");
    assert!(browser.text().contains("skip or stop?"), "{}", browser.text());
    browser.run("document.querySelector('#answer-text').value = 'skip \"them\" ✓'");
    browser.press("#answer-send", "!document.querySelector('#answer').open");
    browser.wait("document.querySelector('#request-RQ-1')?.innerText.includes('queued')");
    server.post("/api/requests/RQ-1/answer", &json!({ "answer": "twice" })).error(409, "NOT_ASKED");
    server.post("/api/queue/run-next", &json!({})).expect(202);
    browser.wait("document.querySelector('#done tr') !== null");
    assert_eq!(fs::read_to_string(server.folder().join("answer")).unwrap(), "skip \"them\" ✓");
    browser.wait("!document.title.startsWith('(')");
    assert_eq!(browser.complaints, [""; 0]);
}

#[test]
fn a_list_has_an_order_and_pages() {
    let (server, mut browser) = (Server::start(), Browser::start());
    for number in 0..60 {
        submit(&server, &format!("RQ-{number:02}"), "true", &json!({}));
    }
    browser.open(&at(&server, "/?status=QUEUED&sort=title"));
    browser.until_live();
    let first = "document.querySelector('#list tr[id]').id";
    assert_eq!(browser.run(first), "request-RQ-00");
    browser.press("#later", "location.search.includes('page=2')");
    browser.wait("document.querySelectorAll('#list tr[id]').length === 10");
    assert_eq!(browser.run(first), "request-RQ-50");
    browser.press("#earlier", "location.search.includes('page=1')");
    browser.open(&at(&server, "/?status=QUEUED"));
    assert_eq!(browser.run(first), "request-RQ-59");
}

/// An alert appears on pages that have nothing to do with it, without being loaded again.
#[test]
fn alerts_are_on_every_page_and_the_title_counts_them() {
    let (server, mut browser) = (Server::start(), Browser::start());
    browser.open(&at(&server, "/doctor"));
    browser.until_live();
    let child = lockkeeper_testing::Started::of(&mut std::process::Command::new("cat"));
    for number in 0..6 {
        let wish = json!({ "names": [format!("n{number}")], "pid": child.pid() });
        server.post("/api/locks", &wish).expect(201);
    }
    assert_eq!(browser.run("document.querySelector('#alerts').innerText"), "");
    child.finish().code(0);
    browser
        .wait("document.querySelector('#alert-ORPHAN_LOCKS') !== null && document.title.startsWith('(1) ')");
    assert_eq!(browser.complaints, [""; 0]);
}

#[test]
fn a_priority_is_changed_on_the_page_of_a_request() {
    let (server, mut browser) = (Server::start(), Browser::start());
    for id in ["RQ-1", "RQ-2"] {
        submit(&server, id, "true", &json!({}));
    }
    server.post("/api/requests/RQ-2/priority", &json!({ "priority": 101 })).error(400, "BAD_INPUT");
    server.post("/api/requests/RQ-9/priority", &json!({ "priority": 1 })).error(404, "NO_SUCH_REQUEST");
    browser.open(&at(&server, "/requests/RQ-2"));
    browser.until_live();
    browser.run("document.querySelector('#priority').value = '9'");
    browser.press("#priority-save", "document.querySelector('#said').innerText.includes('Done')");
    let changed = server.get("/api/requests/RQ-2").expect(200)["request"].take();
    assert_eq!((&changed["priority"], &changed["blocked"]["because"]), (&json!(9), &json!("no_worker")));
    assert_eq!(server.get("/api/queue").expect(200)["next"], "RQ-2");
    assert_eq!(browser.complaints, [""; 0]);
}
