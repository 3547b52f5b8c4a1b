//! The board of agents: as JSON and as a page.

use lockkeeper_engine::messages::Language;
use lockkeeper_testing::http::Http;
use serde_json::json;

use super::hooks::{collide, edit};
use super::server::Server;

fn page(server: &Server, path: &str) -> String {
    let page = server.request("GET", path).header("accept", "text/html").send();
    assert_eq!(page.status, 200);
    page.text()
}

#[test]
fn the_api_has_what_the_command_prints() {
    let server = Server::start();
    let empty =
        json!({ "takes_part": false, "agents": [], "waiting": [], "incidents": [], "failed_open": [] });
    assert_eq!(server.get("/api/agents").expect(200), empty);
    collide(&server, "split the parser");
    let board = server.get("/api/agents").expect(200);
    assert_eq!(board, server.world().json(&["board"]));
    let agent = |owner: &str| {
        let agents = board["agents"].as_array().unwrap();
        agents.iter().find(|agent| agent["owner"] == owner).unwrap()
    };
    let (one, two) = (agent("claude:one"), agent("claude:two"));
    assert_eq!((&one["state"], &one["claims"]), (&json!("works"), &json!(["a.rs"])));
    assert_eq!(one["note"], "split the parser");
    assert_eq!((&two["state"], &two["waits_for"]), (&json!("waits"), &json!(["a.rs"])));
    assert_eq!(two["denied"], json!({ "a.rs": 1 }));
    let waiting = &board["waiting"][0];
    assert_eq!((&waiting["owner"], &waiting["held_by"]), (&json!("claude:two"), &json!("claude:one")));
    assert_eq!((&waiting["path"], &waiting["position"]), (&json!("a.rs"), &json!(1)));
}

#[test]
fn the_page_shows_who_works_on_what_and_who_waits_in_three_languages() {
    let server = Server::start();
    assert!(page(&server, "/agents").contains("<pre>lockkeeper init</pre>"));
    collide(&server, "split the parser");
    for language in Language::ALL {
        let text = page(&server, &format!("/agents?lang={}", language.code()));
        for expected in ["claude:one", "claude:two", "“split the parser”", "a.rs", "×1"] {
            assert!(text.contains(expected), "{expected} is not in {text}");
        }
        assert_eq!(text.contains("Works on"), language == Language::En, "{text}");
    }
}

/// Notes, owners and names of files are texts of strangers.
#[test]
fn what_agents_wrote_is_never_markup_and_has_no_control_characters() {
    let server = Server::start();
    let evil = "<img src=x onerror=alert(1)>\u{1b}[31m\u{202e}";
    collide(&server, evil);
    edit(&server, "three", "<script>alert(2)<\u{200e}script>.rs");
    let text = page(&server, "/agents");
    assert!(text.contains("alert(1)") && text.contains("alert(2)"), "{text}");
    assert!(!text.contains("<img src=x") && !text.contains("<script>alert"), "{text}");
    assert!(!text.contains(['\u{1b}', '\u{202e}', '\u{200e}']), "{text}");
    let printed = server.world().run(["board"]).code(0).stdout();
    assert!(
        printed.contains("alert(1)") && !printed.contains(['\u{1b}', '\u{202e}', '\u{200e}']),
        "{printed}"
    );
}
