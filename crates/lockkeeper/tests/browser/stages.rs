//! The pages of stages.

use std::fs;

use lockkeeper_testing::http::Http;
use lockkeeper_testing::stages::{Execution, GATED, execute, let_end};
use serde_json::json;

use super::at;
use super::chromium::Browser;
use super::server::Server;

/// The address of the latest execution's page.
fn latest(server: &Server) -> String {
    let id = server.get("/api/stages").expect(200)["latest"]["execution_id"].take();
    at(server, &format!("/stages/{}", id.as_str().unwrap()))
}

#[test]
fn an_execution_is_followed_without_loading_the_page_again() {
    let (server, mut browser) = (Server::start(), Browser::start());
    browser.open(&at(&server, "/stages"));
    browser.until_live();
    browser.run("window.sameDocument = true");
    let mut conducted = Execution::begin(server.world());
    browser.wait("document.querySelector('#stages-executions a[href^=\"/stages/EX-\"]') !== null");
    browser.wait("document.querySelector('#stages-executions').innerText.includes('running')");
    assert_eq!(browser.run("window.sameDocument"), json!(true));
    browser
        .press("#stages-executions a[href^=\"/stages/EX-\"]", "location.pathname.startsWith('/stages/EX-')");
    browser.until_live();
    browser.run("window.sameDocument = true");
    let groups = "document.querySelector('#execution-groups').innerText";
    browser.wait(&format!("{groups}.includes('architect') && {groups}.includes('not begun')"));
    browser.wait("document.querySelector('#execution-chart rect.going') !== null");
    let_end(server.world(), "api");
    browser.wait("document.querySelector('#execution-chart rect.good') !== null");
    let_end(server.world(), "docs");
    let_end(server.world(), "web");
    browser.wait("document.querySelector('#execution-head').innerText.includes('succeeded')");
    browser.wait(&format!("!{groups}.includes('running') && !{groups}.includes('not begun')"));
    browser.wait("document.querySelectorAll('#execution-chart rect.good').length === 3");
    browser.wait("document.querySelector('#execution-facts').innerText.includes('one by one')");
    assert_eq!(browser.run("window.sameDocument"), json!(true));
    assert!(conducted.end());
    browser.press("#execution-groups a[href^=\"/runs/\"]", "location.pathname.startsWith('/runs/RUN-')");
    assert_eq!(browser.complaints, [""; 0]);
}

#[test]
fn a_conflict_is_pointed_at_with_the_keyboard_and_shows_its_witness() {
    let (server, mut browser) = (Server::start(), Browser::start());
    execute(server.world(), GATED, "P3").code(0);
    browser.open(&latest(&server));
    browser.until_live();
    let shown = "getComputedStyle(document.querySelector('.edge .tip')).visibility";
    assert_eq!(browser.run(shown), json!("hidden"));
    browser.run("document.querySelector('.edge').focus()");
    assert_eq!(browser.run(shown), json!("visible"));
    let tip = browser.run("document.querySelector('.edge .tip').textContent");
    assert!(tip.as_str().unwrap().contains("both match package.json"), "{tip}");
    let told = browser.run("document.querySelector('.edge').getAttribute('aria-label')");
    assert_eq!(told, json!("api – web: EXACT, FATAL, both match package.json"));
    // The colours are those of the page: the drawing has none of its own.
    let colour = "getComputedStyle(document.querySelector('.drawing rect.card')).fill";
    browser.prefer("light");
    let light = browser.run(colour);
    browser.prefer("dark");
    assert_ne!(browser.run(colour), light);
    assert_ne!(light, json!("rgb(0, 0, 0)"));
    // The tip does not leave the drawing.
    let inside = "(() => { const tip = document.querySelector('.edge .tip').getBoundingClientRect(),
        svg = document.querySelector('svg.plan').getBoundingClientRect();
        return tip.left >= svg.left && tip.right <= svg.right; })()";
    assert_eq!(browser.run(inside), json!(true));
    assert_eq!(browser.complaints, [""; 0]);
}

#[test]
fn stages_are_told_in_three_languages_and_fit_onto_a_telephone() {
    let (server, mut browser) = (Server::start(), Browser::start());
    execute(server.world(), GATED, "P3").code(0);
    let execution = latest(&server);
    let plan = at(&server, "/stages/plan?file=STAGES.yml");
    browser.resize(360, 740);
    for (language, words) in [
        ("en", ["Stages", "Conflict graph", "wave 1"]),
        ("ja", ["ステージ", "競合グラフ", "ウェーブ 1"]),
        ("zh", ["阶段", "冲突图", "第 1 批"]),
    ] {
        let list = at(&server, "/stages");
        for address in [&list, &execution, &plan] {
            let mark = if address.contains('?') { '&' } else { '?' };
            browser.open(&format!("{address}{mark}lang={language}"));
            browser.until_live();
            let fits = browser.run("document.documentElement.scrollWidth <= window.innerWidth");
            assert_eq!(fits, json!(true), "{address} {language}");
        }
        browser.open(&format!("{execution}?lang={language}"));
        browser.until_live();
        // Screen readers do not read the text of the drawing as text of the page.
        let text = browser.run("document.body.textContent");
        for word in words {
            assert!(text.as_str().unwrap().contains(word), "{word} is not in {text}");
        }
    }
    assert_eq!(browser.complaints, [""; 0]);
}

#[test]
fn a_plan_with_errors_says_where_they_are() {
    let (server, mut browser) = (Server::start(), Browser::start());
    fs::write(server.folder().join("STAGES.yml"), "parallel_groups: [\n").unwrap();
    browser.open(&at(&server, "/stages"));
    browser.until_live();
    browser.press("#stages-plans a", "location.pathname === '/stages/plan'");
    browser.wait("document.body.innerText.includes('The STAGES file has errors')");
    browser.wait("document.querySelector('#problems')?.innerText.includes('STAGES.yml:')");
    browser.until_live();
    browser.run("document.dispatchEvent(new KeyboardEvent('keydown', { key: 's', bubbles: true }))");
    browser.wait("location.pathname === '/stages'");
}
