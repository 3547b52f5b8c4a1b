//! Accessibility: axe checks every page, in both colour schemes.

use std::fs;
use std::path::Path;

use lockkeeper_server::Settings;
use lockkeeper_server::token::AccessToken;
use lockkeeper_testing::http::Http;
use lockkeeper_testing::stages::{GATED, execute};
use serde_json::{Value, json};

use super::at;
use super::chromium::Browser;
use super::hooks::collide;
use super::server::{Server, settings};

/// The source of axe, which `scripts/test` puts beside what is built.
fn axe() -> String {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../axe/node_modules/axe-core/axe.min.js");
    fs::read_to_string(&path).unwrap_or_else(|error| {
        panic!("this test needs axe-core, which scripts/test installs: {}: {error}", path.display())
    })
}

/// The rules of WCAG 2.0 to 2.2, A and AA, and good practice.
const ALL_RULES: &str = "['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']";
/// The rules about colours.
const RULES_OF_COLOURS: &str = "{ type: 'rule', values: ['color-contrast', 'link-in-text-block'] }";

/// What rules have against a page.
fn violations(browser: &mut Browser, axe: &str, rules: &str) -> Vec<Value> {
    // By the debugger, so that the policy of the page does not have to allow it.
    browser.run(&format!("window.axe ?? (() => {{ {axe} }})(); undefined"));
    let script = format!(
        "axe.run(document, {{ runOnly: {rules} }}).then((found) => found.violations.map((one) =>
        ({{ rule: one.id, nodes: one.nodes.map((node) => node.html.slice(0, 200) + ' ' + node.failureSummary) }})))"
    );
    browser.promise(&script).as_array().unwrap().clone()
}

fn assert_usable(browser: &mut Browser, axe: &str, addresses: &[String]) {
    for address in addresses {
        // The schemes differ in colours only.
        for (scheme, rules) in [("light", ALL_RULES), ("dark", RULES_OF_COLOURS)] {
            browser.prefer(scheme);
            if scheme == "light" {
                browser.open(address);
            }
            browser.wait("document.querySelector('#main') !== null");
            assert_eq!(violations(browser, axe, rules), [Value::Null; 0], "{address} in {scheme}");
        }
    }
    assert_eq!(browser.complaints, [""; 0]);
}

#[test]
fn axe_sees_what_is_wrong() {
    let axe = axe();
    let (server, mut browser) = (Server::start(), Browser::start());
    browser.open(&at(&server, "/"));
    browser.run("document.querySelector('#theme').previousElementSibling.remove()");
    let found = violations(&mut browser, &axe, ALL_RULES);
    assert!(found.iter().any(|one| one["rule"] == "select-name"), "{found:?}");
    // Colours that are too close, only in the dark.
    browser.prefer("dark");
    browser.run("document.querySelector('h1').style.setProperty('color', 'light-dark(black, #333)')");
    let found = violations(&mut browser, &axe, RULES_OF_COLOURS);
    assert!(found.iter().any(|one| one["rule"] == "color-contrast"), "{found:?}");
}

#[test]
fn every_page_passes_the_rules_of_wcag_in_both_schemes() {
    let axe = axe();
    let (server, mut browser) = (Server::start(), Browser::start());
    let empty: Vec<String> = ["/", "/locks", "/agents", "/stages", "/runs", "/doctor", "/api"]
        .map(|path| at(&server, path))
        .to_vec();
    assert_usable(&mut browser, &axe, &empty);
    // The same pages with content.
    let _guard = server.keeper.lock("db").owner("lib:holder").try_acquire().unwrap();
    let wish = json!({ "names": ["db"], "owner": "test:waiter", "wait": true, "reason": "tests" });
    server.post("/api/locks", &wish).expect(202);
    let body = json!({ "id": "RQ-1", "title": "one", "command": ["true"], "paths": ["src/**"] });
    server.post("/api/requests", &body).expect(201);
    let body = json!({ "id": "RQ-2", "title": "two", "command": ["true"], "paths": ["src/a.rs"] });
    let run = server.post("/api/requests", &body).expect(201)["run_id"].take();
    collide(&server, "split the parser");
    execute(server.world(), GATED, "P3").code(0);
    let latest = server.get("/api/stages").expect(200)["latest"].take();
    let done = latest["groups"][0]["runs"][0]["run_id"].as_str().unwrap();
    let full = [
        "/".to_owned(),
        "/locks".to_owned(),
        "/agents".to_owned(),
        "/runs".to_owned(),
        "/requests/RQ-1".to_owned(),
        format!("/runs/{}", run.as_str().unwrap()),
        format!("/runs/{done}"),
        "/stages".to_owned(),
        format!("/stages/{}", latest["execution_id"].as_str().unwrap()),
        "/stages/plan?file=STAGES.yml".to_owned(),
        "/?status=QUEUED&sort=title".to_owned(),
        "/nowhere".to_owned(),
    ];
    assert_usable(&mut browser, &axe, &full.map(|path| at(&server, &path)));
    // A list with several pages has one more navigation.
    for number in 0..51 {
        server
            .post("/api/requests", &json!({ "id": format!("RQ-more-{number}"), "command": ["true"] }))
            .expect(201);
    }
    assert_usable(&mut browser, &axe, &[at(&server, "/?status=QUEUED")]);
    assert!(browser.text().contains("Page 1 of 2"), "{}", browser.text());
    browser.open(&at(&server, "/"));
    for (button, dialog) in [("#new-request", "#new-request-dialog"), ("#cancel-RQ-1", "#confirm")] {
        browser.press(button, &format!("document.querySelector('{dialog}').open"));
        assert_eq!(violations(&mut browser, &axe, ALL_RULES), [Value::Null; 0], "{dialog}");
        browser.run(&format!("document.querySelector('{dialog}').close()"));
    }
}

#[test]
fn the_pages_before_and_after_logging_in_pass_the_rules_of_wcag_in_both_schemes() {
    let axe = axe();
    let folder = tempfile::tempdir().unwrap();
    let token = AccessToken::load_or_create(&folder.path().join("token")).unwrap();
    let server = Server::with(Settings { token: Some(token), ..settings() });
    let mut browser = Browser::start();
    assert_usable(&mut browser, &axe, &[at(&server, "/login")]);
    browser.open(&at(&server, &server.login_path()));
    browser.wait("document.querySelector('#log-out')");
    assert_usable(&mut browser, &axe, &[at(&server, "/")]);
    browser.resize(360, 740);
    assert_usable(&mut browser, &axe, &[at(&server, "/locks?lang=ja")]);
    assert_eq!(browser.run("document.documentElement.scrollWidth <= window.innerWidth"), true);
}

#[test]
fn pages_in_other_languages_and_on_a_telephone_pass_the_rules_of_wcag() {
    let axe = axe();
    let (server, mut browser) = (Server::start(), Browser::start());
    execute(server.world(), GATED, "P3").code(0);
    let latest = server.get("/api/stages").expect(200)["latest"]["execution_id"].take();
    browser.resize(390, 800);
    let execution = format!("/stages/{}?lang=", latest.as_str().unwrap());
    collide(&server, "split the parser");
    let body = json!({ "id": "RQ-1", "title": "one", "command": ["true"], "locks": ["db"] });
    let run = server.post("/api/requests", &body).expect(201)["run_id"].take();
    let addresses = [
        "/?lang=ja".to_owned(),
        "/?lang=zh".to_owned(),
        "/locks?lang=zh".to_owned(),
        format!("/runs/{}?lang=ja", run.as_str().unwrap()),
        "/agents?lang=ja".to_owned(),
        format!("{execution}ja"),
        format!("{execution}zh"),
    ];
    assert_usable(&mut browser, &axe, &addresses.clone().map(|path| at(&server, &path)));
    // Only drawings may be wider than the screen, and the current tab is in sight.
    for path in addresses {
        browser.open(&at(&server, &path));
        assert_eq!(browser.run("document.documentElement.scrollWidth <= window.innerWidth"), true, "{path}");
        browser.wait(
            "(() => { const tab = document.querySelector('.tabs [aria-current]').getBoundingClientRect();
               return tab.left >= 0 && tab.right <= window.innerWidth; })()",
        );
    }
}
