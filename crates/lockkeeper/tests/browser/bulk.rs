//! Bulk operations on requests.

use lockkeeper_testing::http::Http;
use serde_json::json;

use super::at;
use super::chromium::Browser;
use super::server::Server;

fn submit(server: &Server, id: &str) {
    server.post("/api/requests", &json!({ "id": id, "title": id, "command": ["true"] })).expect(201);
}

fn statuses(server: &Server, status: &str) -> usize {
    let found = server.get(&format!("/api/requests?status={status}")).expect(200);
    found["requests"].as_array().unwrap().len()
}

#[test]
fn all_that_match_are_called_off_and_queued_again_after_a_word_that_names_their_number() {
    let (server, mut browser) = (Server::start(), Browser::start());
    for number in 0..12 {
        submit(&server, &format!("apple-{number}"));
    }
    submit(&server, "pear");
    browser.open(&at(&server, "/"));
    browser.until_live();
    // The filter is reached and used with keys alone.
    browser.run("document.dispatchEvent(new KeyboardEvent('keydown', { key: '/', bubbles: true }))");
    assert_eq!(browser.run("document.activeElement.id"), json!("filter-text"));
    browser.run("document.activeElement.value = 'apple'; document.activeElement.form.requestSubmit()");
    browser.wait("document.querySelector('#matching-count')?.innerText === '12'");
    browser.until_live();
    assert!(!browser.text().contains("pear"), "{}", browser.text());
    let asks = |number: u32| {
        format!(
            "document.querySelector('#confirm').open && document.querySelector('#confirm-text').innerText.includes('{number}')"
        )
    };
    browser.press("#cancel-matching", &asks(12));
    browser.press("#confirm button[value=no]", "!document.querySelector('#confirm').open");
    assert_eq!(statuses(&server, "QUEUED"), 13);
    browser.press("#cancel-matching", &asks(12));
    browser.press("#confirm button[value=yes]", "!document.querySelector('#confirm').open");
    browser.wait("document.querySelector('#said').innerText.includes('Changed: 12')");
    browser.wait("!document.querySelector('#board-requests').innerText.includes('queued')");
    assert_eq!((statuses(&server, "CANCELED"), statuses(&server, "QUEUED")), (12, 1));
    browser.press("#retry-matching", &asks(12));
    browser.press("#confirm button[value=yes]", "!document.querySelector('#confirm').open");
    browser.wait("!document.querySelector('#board-requests').innerText.includes('canceled')");
    assert_eq!(statuses(&server, "QUEUED"), 13);
    assert_eq!(browser.complaints, [""; 0]);
}

#[test]
fn the_question_is_asked_in_three_languages_and_nothing_is_said_when_nothing_can_be_done() {
    let (server, mut browser) = (Server::start(), Browser::start());
    submit(&server, "apple");
    for (language, question) in
        [("en", "Call off 1 runs?"), ("ja", "1件のRunを中止"), ("zh", "要取消 1 个运行")]
    {
        browser.open(&at(&server, &format!("/?text=apple&lang={language}")));
        browser.until_live();
        let asked = format!("document.querySelector('#confirm-text').innerText.includes('{question}')");
        browser.press("#cancel-matching", &asked);
        browser.press("#confirm button[value=no]", "!document.querySelector('#confirm').open");
        // It is queued already.
        browser.press("#retry-matching", "document.querySelector('#said').innerText.trim() !== ''");
        assert_eq!(browser.run("document.querySelector('#confirm').open"), json!(false));
    }
}

#[test]
fn the_filter_fits_onto_a_telephone_and_a_tile_sets_it() {
    let (server, mut browser) = (Server::start(), Browser::start());
    submit(&server, "apple");
    browser.resize(360, 740);
    browser.open(&at(&server, "/"));
    browser.until_live();
    browser.press("#board-glance a[href='/?status=QUEUED']", "location.search === '?status=QUEUED'");
    browser.wait("document.querySelector('#matching-count')?.innerText === '1'");
    assert_eq!(browser.run("document.documentElement.scrollWidth <= window.innerWidth"), json!(true));
    assert_eq!(browser.run("document.querySelector('#filter-status').value"), json!("QUEUED"));
}
