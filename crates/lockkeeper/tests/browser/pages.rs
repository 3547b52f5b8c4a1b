//! Locks, requests and the queue on the page.

use std::fs;

use lockkeeper_testing::http::Http;
use serde_json::json;

use super::at;
use super::chromium::Browser;
use super::hooks::collide;
use super::server::Server;

/// Requirement 158.
#[test]
fn the_page_follows_what_happens_without_being_loaded_again() {
    let (server, mut browser) = (Server::start(), Browser::start());
    browser.open(&at(&server, "/locks"));
    browser.until_live();
    browser.run("window.sameDocument = true");
    let guard = server.keeper.lock("db").owner("lib:holder").try_acquire().unwrap();
    browser.wait("document.body.innerText.includes('lib:holder')");
    server.post("/api/locks", &json!({ "names": ["db"], "owner": "test:waiter", "wait": true })).expect(202);
    browser.wait("document.querySelector('#locks-graph svg') !== null");
    assert!(browser.text().contains("Waits for db, held by lib:holder"), "{}", browser.text());
    drop(guard);
    browser.wait("!document.body.innerText.includes('lib:holder')");
    assert_eq!(browser.run("window.sameDocument"), json!(true));
    assert_eq!(browser.complaints, [""; 0]);
}

#[test]
fn a_lease_is_broken_only_after_a_second_word() {
    let (server, mut browser) = (Server::start(), Browser::start());
    let lease = server.post("/api/locks", &json!({ "names": ["db"] })).expect(201)["lease"].take();
    let id = lease["id"].as_str().unwrap();
    browser.open(&at(&server, "/locks"));
    browser.until_live();
    browser.press(&format!("#break-{id}"), "document.querySelector('#confirm').open");
    browser.press("#confirm button[value=no]", "!document.querySelector('#confirm').open");
    server.get(&format!("/api/locks/{id}")).expect(200);
    browser.press(&format!("#break-{id}"), "document.querySelector('#confirm').open");
    browser.press("#confirm button[value=yes]", "!document.querySelector('#confirm').open");
    browser.wait("document.body.innerText.includes('Nothing is held')");
    server.get(&format!("/api/locks/{id}")).error(404, "NOT_CURRENT");
}

/// The `close` event of a dialog comes late. It must not answer the next question.
#[test]
fn an_answer_counts_for_its_own_question_alone() {
    let (server, mut browser) = (Server::start(), Browser::start());
    let lease = server.post("/api/locks", &json!({ "names": ["db"] })).expect(201)["lease"].take();
    browser.open(&at(&server, "/locks"));
    browser.until_live();
    let button = format!("document.querySelector('#break-{}')", lease["id"].as_str().unwrap());
    let dialog = "document.querySelector('#confirm')";
    browser.run(&format!("{button}.click(); {dialog}.close('no'); {button}.click()"));
    browser.press("#confirm button[value=yes]", "!document.querySelector('#confirm').open");
    browser.wait("document.body.innerText.includes('Nothing is held')");
}

/// Requirements 187, 188 and 198.
#[test]
fn the_queue_is_run_and_stopped_with_buttons_and_what_runs_is_locked() {
    let (server, mut browser) = (Server::start(), Browser::start());
    let command = json!(["sh", "-c", "while [ ! -e go ]; do sleep 0.02; done"]);
    server.post("/api/requests", &json!({ "id": "RQ-1", "title": "first", "command": command })).expect(201);
    server
        .post("/api/requests", &json!({ "id": "RQ-2", "title": "second", "command": ["true"] }))
        .expect(201);
    browser.open(&at(&server, "/"));
    browser.until_live();
    browser.press("#auto-run", "document.querySelector('#queue-banner').innerText.includes('Queue running')");
    browser.wait("document.querySelector('#board-requests').innerText.includes('LOCKED')");
    let stops = "document.querySelector('#queue-banner').innerText.includes('stops after the present run')";
    browser.press("#queue-stop", stops);
    fs::write(server.folder().join("go"), "").unwrap();
    browser.wait("document.querySelector('#queue-banner').innerText.trim() === ''");
    let requests = server.get("/api/requests").expect(200);
    assert_eq!(
        (&requests["requests"][0]["status"], &requests["requests"][1]["status"]),
        (&json!("QUEUED"), &json!("DONE"))
    );
    assert_eq!(browser.complaints, [""; 0]);
}

/// Requirements 177 and 189. The buttons are those of a page that does not know yet what runs.
#[test]
fn a_refusal_leads_to_the_run_in_progress_and_says_that_another_queue_runs() {
    let (server, mut browser) = (Server::start(), Browser::start());
    let command = json!(["sh", "-c", "while [ ! -e go ]; do sleep 0.02; done"]);
    server.post("/api/requests", &json!({ "id": "RQ-1", "command": command })).expect(201);
    server.post("/api/queue/run-next", &json!({ "auto": true })).expect(202);
    browser.open(&at(&server, "/?lang=ja"));
    browser.until_live();
    browser.wait("document.body.innerText.includes('LOCKED')");
    let press = |call: &str| {
        format!(
            "const late = document.createElement('button'); late.dataset.call = {call:?};
             late.dataset.body = '{{}}'; document.body.append(late); late.click();"
        )
    };
    browser.run(&format!("{{ {} }}", press("POST /api/queue/run-next")));
    browser.wait("document.querySelector('#said').innerText.includes('別のキュー実行が動作中')");
    browser.run(&format!("{{ {} }}", press("POST /api/requests/RQ-1/run")));
    browser.wait("location.pathname.startsWith('/runs/RUN-')");
    fs::write(server.folder().join("go"), "").unwrap();
    browser.wait("document.querySelector('#run-head').innerText.includes('succeeded')");
}

/// A note changes no lease, so no event tells of it.
#[test]
fn the_agents_page_shows_what_changes_by_itself() {
    let (server, mut browser) = (Server::start(), Browser::start());
    browser.open(&at(&server, "/agents"));
    browser.until_live();
    collide(&server, "split the parser");
    browser.wait("document.querySelector('#agents-waiting')?.innerText.includes('claude:two')");
    server.world().run(["note", "--owner", "claude:one", "now the lexer"]).code(0);
    browser.wait("document.querySelector('#agents-list').innerText.includes('“now the lexer”')");
}

#[test]
fn what_others_wrote_never_runs() {
    let (server, mut browser) = (Server::start(), Browser::start());
    let evil = "<img src=x onerror='window.owned=1'><script>window.owned=1</script>";
    let wish = json!({ "names": [evil], "owner": format!("test:{evil}"), "reason": evil });
    server.post("/api/locks", &wish).expect(201);
    server
        .post("/api/requests", &json!({ "id": "RQ-1", "title": evil, "command": ["echo", evil] }))
        .expect(201);
    for path in ["/locks", "/", "/requests/RQ-1", "/runs"] {
        browser.open(&at(&server, path));
        browser.until_live();
        assert!(browser.text().contains("window.owned=1"), "{path}");
        assert_eq!(browser.run("window.owned === undefined"), json!(true), "{path}");
    }
}

#[test]
fn the_page_is_used_with_the_keyboard_alone() {
    let (server, mut browser) = (Server::start(), Browser::start());
    browser.open(&at(&server, "/"));
    browser.until_live();
    browser.run("document.dispatchEvent(new KeyboardEvent('keydown', { key: 'l', bubbles: true }))");
    browser.wait("location.pathname === '/locks'");
    browser.until_live();
    // Every control has a name for screen readers.
    let nameless = "[...document.querySelectorAll('button, a, select, input')].filter((one) =>
        !(one.innerText || one.labels?.[0]?.innerText || one.getAttribute('aria-label') || one.title || one.closest('dialog')))
        .map((one) => one.outerHTML)";
    assert_eq!(browser.run(nameless), json!([]));
}

#[test]
fn the_page_fits_onto_a_telephone() {
    let (server, mut browser) = (Server::start(), Browser::start());
    let wish =
        json!({ "names": ["db"], "paths": ["src/a/very/long/path/that/goes/on/**"], "owner": "test:1" });
    server.post("/api/locks", &wish).expect(201);
    browser.resize(360, 740);
    for path in ["/locks", "/agents", "/", "/runs", "/doctor", "/api"] {
        browser.open(&at(&server, path));
        browser.until_live();
        assert_eq!(
            browser.run("document.documentElement.scrollWidth <= window.innerWidth"),
            json!(true),
            "{path}"
        );
    }
}

/// A title that nobody chose is the command, which is long.
#[test]
fn a_dialog_fits_into_the_window_whatever_the_title_is() {
    let (server, mut browser) = (Server::start(), Browser::start());
    for (id, title) in [("RQ-1", "a title of some words ".repeat(7)), ("RQ-2", "x".repeat(140))] {
        let body = json!({ "id": id, "title": title, "command": ["true"] });
        server.post("/api/requests", &body).expect(201);
    }
    let runs = server.get("/api/runs").expect(200)["runs"].take();
    let run = format!("/runs/{}", runs[0]["id"].as_str().unwrap());
    let dialogs = [("/?lang=ja", "#cancel-RQ-2"), ("/", "#cancel-RQ-1"), (&run, "#cancel")];
    for (width, height) in [(1440, 900), (390, 740)] {
        browser.resize(width, height);
        for (address, button) in dialogs {
            browser.open(&at(&server, address));
            browser.until_live();
            browser.press(button, "document.querySelector('#confirm').open");
            let outside = "(() => { const of = (one) => one.getBoundingClientRect(); const dialog = document.querySelector('#confirm');
                const frame = of(dialog);
                return [...dialog.querySelectorAll('h2, p, button')].filter((one) => of(one).left < frame.left || of(one).right > frame.right)
                    .map((one) => one.innerText).concat(frame.left < 0 || frame.right > innerWidth ? ['the dialog'] : []); })()";
            assert_eq!(browser.run(outside), json!([]), "{address} at {width}");
        }
    }
    assert_eq!(browser.run("document.querySelector('#confirm-yes').innerText"), "Cancel run");
}

/// A person copies an owner while the page is drawn again, again and again.
#[test]
fn a_redraw_keeps_the_selection_and_the_focus() {
    let (server, mut browser) = (Server::start(), Browser::start());
    let _first = server.keeper.lock("db").owner("lib:first").try_acquire().unwrap();
    let second = server.keeper.lock("docs").owner("lib:second").try_acquire().unwrap();
    browser.open(&at(&server, "/locks"));
    browser.until_live();
    browser.run(
        "window.cell = [...document.querySelectorAll('#locks-holders .mono')].find((one) => one.innerText === 'lib:first');
         getSelection().selectAllChildren(window.cell); document.querySelector('[id^=break-]').focus(); undefined",
    );
    assert_eq!(browser.run("getSelection().toString()"), "lib:first");
    let focused = browser.run("document.activeElement.id");
    let _third = server.keeper.lock("api").owner("lib:third").try_acquire().unwrap();
    browser.wait("document.querySelector('#locks-holders').innerText.includes('lib:third')");
    drop(second);
    browser.wait("!document.querySelector('#locks-holders').innerText.includes('lib:second')");
    assert_eq!(browser.run("getSelection().toString()"), "lib:first");
    assert_eq!(browser.run("document.activeElement.id"), focused);
    assert_eq!(browser.complaints, [""; 0]);
}
