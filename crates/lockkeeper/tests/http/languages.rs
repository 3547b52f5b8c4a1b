//! Error messages in the language of the client.

use lockkeeper_engine::messages::Language;
use lockkeeper_server::Settings;
use lockkeeper_testing::http::Http;
use serde_json::{Value, json};

use super::server::{Server, settings};

/// Requirement 194.
#[test]
fn a_refusal_says_what_to_do_in_three_languages() {
    let server = Server::start();
    server.post("/api/locks", &json!({ "names": ["db"], "owner": "test:1" })).expect(201);
    let ask = |name: &str, value: &str| {
        let request = server.request("POST", "/api/locks").header(name, value);
        request.json(&json!({ "names": ["db"] })).send()
    };
    let japanese = ask("accept-language", "ja,en;q=0.5");
    assert_eq!(japanese.header("content-language"), Some("ja"));
    let japanese = japanese.error(409, "LOCK_HELD");
    assert_eq!(japanese["message"], "他の所有者が保持しています");
    assert!(japanese["detail"].as_str().unwrap().contains("test:1"));
    let chinese = ask("cookie", "lockkeeper_lang=zh").error(409, "LOCK_HELD");
    assert_eq!(chinese["title"], "已被其他所有者持有");
    let english = ask("accept-language", "fr").error(409, "LOCK_HELD");
    assert!(english["message"].as_str().unwrap().contains("test:1"));
    let asked = server.request("POST", "/api/locks?lang=ja").header("accept-language", "zh");
    assert_eq!(asked.json(&json!({ "names": ["db"] })).send().header("content-language"), Some("ja"));
}

#[test]
fn those_who_say_nothing_are_told_in_the_language_of_the_settings() {
    let server = Server::with(Settings { language: Language::Zh, ..settings() });
    assert_eq!(server.get("/nowhere").header("content-language"), Some("zh"));
}

#[test]
fn the_tables_themselves_are_served() {
    let server = Server::start();
    for language in Language::ALL {
        let table: Value = server.get(&format!("/api/messages.v1.{}.json", language.code())).expect(200);
        assert!(table["LOCK_HELD"]["title"].is_string());
    }
    server.get("/api/messages.v1.fr.json").error(404, "NOT_FOUND");
}
