//! Access control: tokens, host names, origins.

use lockkeeper_engine::open::open_engine;
use lockkeeper_server::Settings;
use lockkeeper_server::token::AccessToken;
use lockkeeper_testing::http::{Events, Http};
use serde_json::json;

use super::server::{Server, settings};

fn wish() -> serde_json::Value {
    json!({ "names": ["db"] })
}

/// Checks that an attack changed nothing.
#[track_caller]
fn untouched(server: &Server) {
    let engine = open_engine(&server.folder().join("state")).unwrap();
    assert_eq!(engine.listing().unwrap().holders.len(), 0);
}

#[test]
fn a_page_of_another_origin_changes_nothing() {
    let server = Server::start();
    let port = server.address.port();
    for origin in [
        "http://evil.example".to_owned(),
        "null".to_owned(),
        format!("http://localhost:{}", port ^ 1),
        format!("http://localhost.evil.example:{port}"),
        format!("ftp://127.0.0.1:{port}"),
        String::new(),
    ] {
        let request = server.request("POST", "/api/locks").header("origin", &*origin).json(&wish());
        request.send().error(403, "FOREIGN_ORIGIN");
        server
            .request("DELETE", "/api/locks/L1")
            .header("origin", origin)
            .send()
            .error(403, "FOREIGN_ORIGIN");
    }
    for site in ["cross-site", "same-site"] {
        let request = server.request("POST", "/api/locks").header("sec-fetch-site", site).json(&wish());
        request.send().error(403, "FOREIGN_ORIGIN");
    }
    untouched(&server);
}

#[test]
fn our_own_page_and_programs_may_change_things() {
    let server = Server::start();
    let own = format!("http://{}", server.address);
    let request = server.request("POST", "/api/locks").header("origin", own).json(&wish());
    assert_eq!(request.header("sec-fetch-site", "same-origin").send().status, 201);
    assert_eq!(server.post("/api/locks", &json!({ "names": ["other"] })).status, 201);
}

#[test]
fn a_name_that_was_pointed_at_this_machine_is_not_answered() {
    let server = Server::start();
    let port = server.address.port();
    for host in [
        format!("evil.example:{port}"),
        "127.0.0.1.evil.example".to_owned(),
        format!("192.168.0.1:{port}"),
        "0.0.0.0".to_owned(),
        String::new(),
    ] {
        server.request("GET", "/api/locks").host(Some(&host)).send().error(403, "FOREIGN_HOST");
        server.request("GET", "/healthz").host(Some(&host)).send().error(403, "FOREIGN_HOST");
        let request = server.request("POST", "/api/locks").host(Some(&host)).json(&wish());
        request.header("origin", format!("http://{host}")).send().error(403, "FOREIGN_HOST");
    }
    server.request("GET", "/api/locks").host(None).send().error(403, "FOREIGN_HOST");
    let twice = server.request("GET", "/api/locks").header("host", "localhost");
    assert_ne!(twice.send().status, 200);
    for host in
        ["localhost".to_owned(), format!("localhost:{port}"), format!("[::1]:{port}"), "127.0.0.2".to_owned()]
    {
        assert_eq!(server.request("GET", "/api/locks").host(Some(&host)).send().status, 200, "{host}");
    }
    untouched(&server);
}

#[test]
fn another_name_is_answered_when_it_was_allowed() {
    let server = Server::with(Settings { allowed_hosts: vec!["Locks.example".to_owned()], ..settings() });
    assert_eq!(server.request("GET", "/healthz").host(Some("locks.example:80")).send().status, 200);
    assert_eq!(server.request("GET", "/healthz").host(Some("other.example")).send().status, 403);
}

#[test]
fn without_the_token_nothing_is_answered_but_that_the_server_lives() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    let token = AccessToken::load_or_create(&path).unwrap();
    let text = std::fs::read_to_string(&path).unwrap().trim().to_owned();
    let server = Server::with(Settings { token: Some(token), ..settings() });
    assert_eq!(server.get("/healthz").status, 200);
    for path in ["/api/locks", "/api/events", "/metrics", "/api/openapi.json", "/api/nowhere"] {
        let missing = server.get(path);
        assert_eq!(missing.header("www-authenticate"), Some("Bearer"), "{path}");
        missing.error(401, "TOKEN_REQUIRED");
    }
    let almost = format!("{}x", &text[..text.len() - 1]);
    for wrong in ["Bearer", "Bearer ", "Bearer wrong", "Basic YTpi", &text, &format!("Bearer {almost}")] {
        let request = server.request("POST", "/api/locks").header("authorization", wrong).json(&wish());
        request.send().error(401, "TOKEN_REQUIRED");
    }
    untouched(&server);
    let right = server.request("POST", "/api/locks").header("authorization", format!("Bearer {text}"));
    assert_eq!(right.json(&wish()).send().status, 201);
    for name in ["lockkeeper_token".to_owned(), format!("lockkeeper_session_{}", server.address.port())] {
        let cookie = server.request("GET", "/api/locks").header("cookie", format!("a=b; {name}={text}"));
        cookie.send().error(401, "TOKEN_REQUIRED");
    }
}

/// Logs in with the token, and returns the cookie of the session.
fn log_in(server: &Server, token: &str) -> String {
    let form = server.request("POST", "/login").header("content-type", "application/x-www-form-urlencoded");
    let entered = form.raw_body(format!("token={token}")).send();
    assert_eq!(entered.status, 303);
    entered.header("set-cookie").unwrap().split(';').next().unwrap().to_owned()
}

#[test]
fn a_session_ends_with_log_out_and_with_its_token() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    // A character that forms do not send as it is.
    std::fs::write(&path, "a+token/of=16&characters").unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let token = AccessToken::load_or_create(&path).unwrap();
    let server = Server::with(Settings { token: Some(token), ..settings() });
    let ask = |cookie: &str| server.request("GET", "/api/locks").header("cookie", cookie).send();
    let token = "a%2Btoken%2Fof%3D16%26characters";
    let (one, two) = (log_in(&server, token), log_in(&server, token));
    assert!(one != two && !one.contains("token"), "{one}");
    assert_eq!((ask(&one).status, ask(&two).status), (200, 200));
    let left = server.request("POST", "/logout").header("cookie", &*one).send();
    assert_eq!((left.status, left.header("location")), (303, Some("/login")));
    ask(&one).error(401, "TOKEN_REQUIRED");
    let mut stream = Events::open_as(server.address, "/api/events", None, &[("cookie", &two)]);
    assert_eq!(stream.event().name, "hello");
    let link = server.login_path();
    std::fs::remove_file(&path).unwrap();
    let code = link.strip_prefix("/login#").unwrap();
    let form = server.request("POST", "/login").header("content-type", "application/x-www-form-urlencoded");
    form.raw_body(code).send().error(401, "TOKEN_REQUIRED");
    ask(&two).error(401, "TOKEN_REQUIRED");
    let fresh = std::fs::read_to_string(&path).unwrap();
    assert_eq!(ask(&log_in(&server, fresh.trim())).status, 200);
    // The open stream says nothing more.
    let _held = server.keeper.lock("db").acquire().unwrap();
    assert_eq!(stream.try_event(), None);
}

#[test]
fn a_session_cannot_be_begun_or_ended_by_a_page_of_another_origin() {
    let server = Server::start();
    for path in ["/login", "/logout"] {
        let request = server.request("POST", path).header("origin", "http://evil.example");
        request.send().error(403, "FOREIGN_ORIGIN");
    }
}

/// An image of a foreign page is a GET without an origin.
#[test]
fn a_get_never_repairs_however_it_is_spelled() {
    let server = Server::start();
    for query in ["mode=full", "mode=%66ull", "mode=f%75ll", "%6dode=full", "mode=quick&mode=full"] {
        let answer = server.get(&format!("/api/doctor?{query}"));
        assert!(matches!(answer.status, 400 | 405), "{query}: {}", answer.text());
    }
    server.get("/api/doctor?mode=quick").expect(200);
    let foreign = server.request("POST", "/api/doctor").header("sec-fetch-site", "cross-site");
    foreign.json(&json!({ "mode": "full" })).send().error(403, "FOREIGN_ORIGIN");
    assert_eq!(server.post("/api/doctor", &json!({ "mode": "full" })).expect(200)["mode"], "full");
    assert_eq!(server.post("/api/doctor", &json!({})).expect(200)["mode"], "quick");
    server.post("/api/doctor", &json!({ "mode": "other" })).error(400, "BAD_INPUT");
}

/// Requirement 204.
#[test]
fn no_id_leads_out_of_its_place() {
    let server = Server::start();
    for id in [
        "..%2f..%2fetc%2fpasswd",
        "%2e%2e",
        "..%5c..",
        "L1%00",
        "L1%0a",
        "%ff%fe",
        "L99999999999999999999999",
        "-1",
        "L0",
        &"x".repeat(5_000),
    ] {
        for (method, path) in [
            ("GET", format!("/api/locks/{id}")),
            ("DELETE", format!("/api/locks/{id}")),
            ("POST", format!("/api/locks/{id}/renew")),
        ] {
            server.request(method, &path).send().error(400, "BAD_INPUT");
        }
    }
    for path in ["/../../etc/passwd", "/api/../../etc/passwd", "/assets/../../Cargo.toml", "//etc/passwd"] {
        assert_eq!(server.get(path).status, 404, "{path}");
    }
}

#[test]
fn a_form_of_a_foreign_page_cannot_pass_for_a_body() {
    let server = Server::start();
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"] {
        let request = server.request("POST", "/api/locks").header("content-type", kind);
        request.raw_body(wish().to_string()).send().error(415, "UNSUPPORTED_MEDIA_TYPE");
    }
    untouched(&server);
}

#[test]
fn every_answer_forbids_what_a_page_does_not_need() {
    let server = Server::start();
    for path in ["/api/locks", "/healthz", "/nowhere", "/api/openapi.json"] {
        let answer = server.get(path);
        let policy = answer.header("content-security-policy").unwrap();
        assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{path}: {policy}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{path}");
        assert_eq!(answer.header("access-control-allow-origin"), None, "{path}");
    }
    let asked = server.request("OPTIONS", "/api/locks").header("origin", "http://evil.example");
    let answer = asked.header("access-control-request-method", "POST").send();
    assert_eq!((answer.status, answer.header("access-control-allow-origin")), (405, None));
}
