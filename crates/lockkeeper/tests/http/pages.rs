//! The HTML pages.

use lockkeeper_engine::messages::Language;
use lockkeeper_server::Settings;
use lockkeeper_server::token::AccessToken;
use lockkeeper_testing::http::{Http, Response};
use serde_json::json;

use super::runs::{let_go, submit, until, wait_for};
use super::server::{Server, settings};

/// Asks as a browser does.
fn browse(server: &Server, path: &str) -> Response {
    server.request("GET", path).header("accept", "text/html,application/xhtml+xml").send()
}

/// Requirement 158.
#[test]
fn the_page_shows_who_holds_who_waits_and_why() {
    let server = Server::start();
    let wish = json!({ "names": ["db"], "owner": "test:holder", "reason": "migration" });
    server.post("/api/locks", &wish).expect(201);
    let wish = json!({ "names": ["db"], "owner": "test:waiter", "wait": true });
    server.post("/api/locks", &wish).expect(202);
    let page = browse(&server, "/locks");
    assert_eq!(page.status, 200);
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    let text = page.text();
    for expected in [
        "test:holder",
        "test:waiter",
        "migration",
        "Waits for <code>db</code>, held by <code>test:holder</code>",
        "<svg",
    ] {
        assert!(text.contains(expected), "{expected} is not in {text}");
    }
}

#[test]
fn an_empty_page_says_what_to_do_first() {
    let server = Server::start();
    let text = browse(&server, "/locks").text();
    assert!(text.contains("lockkeeper exec db"), "{text}");
    assert!(!text.contains("<svg"));
}

#[test]
fn what_others_wrote_is_never_markup() {
    let server = Server::start();
    let evil = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>";
    let wish = json!({ "names": [evil], "owner": format!("test:{evil}"), "reason": evil });
    server.post("/api/locks", &wish).expect(201);
    let wish = json!({ "names": [evil], "owner": "test:2", "wait": true, "reason": evil });
    server.post("/api/locks", &wish).expect(202);
    let text = browse(&server, "/locks").text();
    assert!(!text.contains("<script>alert") && !text.contains("<img src=x"), "{text}");
    assert!(text.contains("alert(1)"));
    let error = browse(&server, "/%3Cscript%3Ealert(1)%3C/script%3E");
    assert_eq!(error.status, 404);
    assert!(!error.text().contains("<script>alert"));
}

#[test]
fn nothing_is_inline_and_nothing_comes_from_elsewhere() {
    let server = Server::start();
    server.post("/api/locks", &json!({ "names": ["db"] })).expect(201);
    for path in ["/", "/locks", "/agents", "/runs", "/doctor", "/api", "/nowhere"] {
        let text = browse(&server, path).text();
        for forbidden in [" style=", "<style", " onclick", "javascript:", "http://", "https://"] {
            assert!(!text.contains(forbidden), "{path} has {forbidden}");
        }
        assert_eq!(
            text.matches("<script").count(),
            text.matches("<script type=\"module\" src=\"/assets/").count()
        );
    }
}

#[test]
fn the_page_speaks_three_languages() {
    let server = Server::start();
    for (language, word) in [
        (Language::En, "Nothing is held"),
        (Language::Ja, "保持中のロックはありません"),
        (Language::Zh, "当前没有持有任何锁"),
    ] {
        let text = browse(&server, &format!("/locks?lang={}", language.code())).text();
        assert!(
            text.contains(word) && text.contains(&format!("<html lang=\"{}\"", language.code())),
            "{text}"
        );
    }
    let accepted = server.request("GET", "/locks").header("accept-language", "zh-TW,zh;q=0.9").send().text();
    assert!(accepted.contains("<html lang=\"zh\""));
}

/// Checks that pass, and one that warns: both without English sentences.
#[test]
fn the_doctor_speaks_the_language_of_the_reader() {
    let server = Server::start();
    for (language, passed) in [("ja", "デッドロックがない"), ("zh", "没有死锁")] {
        let text = browse(&server, &format!("/doctor?lang={language}")).text();
        assert!(text.contains(passed), "{text}");
        for english in ["there is no deadlock", "every wait can end", "it could lock only after the release"]
        {
            assert!(!text.contains(english), "{language}: {english}");
        }
    }
    let english = browse(&server, "/doctor?lang=en").text();
    assert!(english.contains("there is no deadlock") && english.contains("every wait can end"), "{english}");
}

#[test]
fn a_browser_is_told_of_failures_by_a_page() {
    let server = Server::start();
    let page = browse(&server, "/nowhere?lang=ja");
    assert_eq!(page.status, 404);
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    assert!(page.text().contains("見つかりません"));
    server.get("/nowhere").error(404, "NOT_FOUND");
}

/// Requirements 187, 189 and 198.
#[test]
fn the_board_shows_at_a_glance_what_is_locked_and_leads_to_its_run() {
    let server = Server::start();
    let mut stream = server.listen();
    let run = submit(&server, "RQ-1", &until("go"));
    submit(&server, "RQ-2", &json!(["true"]));
    assert!(!browse(&server, "/").text().contains("LOCKED"));
    server.post("/api/requests/RQ-1/run", &json!({})).expect(202);
    wait_for(&server, &mut stream, &run, "running");
    let board = browse(&server, "/").text();
    assert_eq!(board.matches(">LOCKED<").count(), 1, "{board}");
    assert!(board.contains(&format!("/runs/{run}")) && board.contains("title of RQ-2"), "{board}");
    let_go(&server, "go");
    wait_for(&server, &mut stream, &run, "succeeded");
    let page = browse(&server, &format!("/runs/{run}")).text();
    assert!(page.contains("begun") && page.contains("over") && page.contains("succeeded"), "{page}");
    for path in ["/requests/RQ-1", "/runs", "/doctor"] {
        assert_eq!(browse(&server, path).status, 200, "{path}");
    }
    assert_eq!(browse(&server, "/runs/RUN-9").status, 404);
}

#[test]
fn output_and_titles_are_never_markup() {
    let server = Server::start();
    let mut stream = server.listen();
    let evil = "<script>alert(1)</script>";
    let body = json!({ "id": "RQ-1", "title": evil, "command": ["printf", format!("{evil}\\033[31m\\377")] });
    let run = server.post("/api/requests", &body).expect(201)["run_id"].as_str().unwrap().to_owned();
    server.post("/api/requests/RQ-1/run", &json!({})).expect(202);
    wait_for(&server, &mut stream, &run, "succeeded");
    for path in ["/", "/runs", "/requests/RQ-1", &format!("/runs/{run}")] {
        let text = browse(&server, path).text();
        assert!(!text.contains("<script>alert") && text.contains("alert(1)"), "{path}: {text}");
    }
}

#[test]
fn the_description_of_the_api_can_be_read_without_any_other_tool() {
    let server = Server::start();
    let text = browse(&server, "/api").text();
    for expected in [
        "/api/locks/{id}/renew",
        "Idempotency-Key",
        "LOCK_HELD",
        "How long the lease lasts without being renewed",
    ] {
        assert!(text.contains(expected), "{expected} is not in {text}");
    }
}

#[test]
fn files_of_the_page_are_sent_once() {
    let server = Server::start();
    for (name, kind) in
        [("page.css", "text/css"), ("page.mjs", "text/javascript"), ("icon.svg", "image/svg+xml")]
    {
        let first = server.get(&format!("/assets/{name}"));
        assert!(first.header("content-type").unwrap().starts_with(kind));
        let tag = first.header("etag").unwrap().to_owned();
        let again = server.request("GET", &format!("/assets/{name}")).header("if-none-match", tag).send();
        assert_eq!((again.status, again.body.len()), (304, 0));
    }
    assert_eq!(server.get("/assets/none.css").status, 404);
}

#[test]
fn a_browser_logs_in_with_the_token_and_keeps_it_where_no_script_reads_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    let token = AccessToken::load_or_create(&path).unwrap();
    let text = std::fs::read_to_string(&path).unwrap().trim().to_owned();
    let server = Server::with(Settings { token: Some(token), ..settings() });
    let asked = browse(&server, "/locks");
    assert_eq!(asked.status, 401);
    assert!(asked.text().contains("action=\"/login\""));
    let log_in = |token: &str| {
        let form =
            server.request("POST", "/login").header("content-type", "application/x-www-form-urlencoded");
        form.header("accept", "text/html").raw_body(format!("token={token}")).send()
    };
    assert_eq!(log_in("wrong").status, 401);
    let entered = log_in(&text);
    assert_eq!((entered.status, entered.header("location")), (303, Some("/")));
    let cookie = entered.header("set-cookie").unwrap();
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
    let cookie = cookie.split(';').next().unwrap();
    assert_eq!(server.request("GET", "/locks").header("cookie", cookie).send().status, 200);
}
