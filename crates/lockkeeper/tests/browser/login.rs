//! Logging in and out, as a browser does it.

use std::fs;
use std::path::PathBuf;

use lockkeeper_server::Settings;
use lockkeeper_server::token::AccessToken;
use tempfile::TempDir;

use super::at;
use super::chromium::Browser;
use super::server::{Server, settings};

/// A server with a token, and the file of the token.
struct Guarded {
    server: Server,
    path: PathBuf,
    _folder: TempDir,
}

impl Guarded {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let token = AccessToken::load_or_create(&path).unwrap();
        let server = Server::with(Settings { token: Some(token), ..settings() });
        Self { server, path, _folder: folder }
    }

    fn token(&self) -> String {
        fs::read_to_string(&self.path).unwrap().trim().to_owned()
    }
}

/// Types a token into the form of the page, and sends the form.
fn log_in(browser: &mut Browser, token: &str) {
    let script = format!(
        "document.querySelector('#token').value = {token:?}; document.querySelector('#log-in').click()"
    );
    browser.run(&script);
}

const ASKS: &str = "document.querySelector('#token') && document.readyState === 'complete'";

#[test]
fn a_wrong_token_is_refused_and_the_right_one_logs_in() {
    let (guarded, mut browser) = (Guarded::start(), Browser::start());
    browser.open(&at(&guarded.server, "/locks"));
    browser.wait(ASKS);
    log_in(&mut browser, "0123456789abcdef");
    browser.wait("document.body.innerText.includes('the token is wrong')");
    log_in(&mut browser, &guarded.token());
    browser.wait("location.pathname === '/'");
    browser.until_live();
}

#[test]
fn logging_out_and_another_token_lead_back_to_the_question_for_it() {
    let (guarded, mut browser) = (Guarded::start(), Browser::start());
    browser.open(&at(&guarded.server, "/locks"));
    browser.wait(ASKS);
    log_in(&mut browser, &guarded.token());
    browser.until_live();
    assert_eq!(browser.run("document.cookie"), "", "scripts see no secret");
    browser.press("#log-out", "location.pathname === '/login' && document.querySelector('#token')");
    browser.open(&at(&guarded.server, "/locks"));
    browser.wait(ASKS);
    log_in(&mut browser, &guarded.token());
    browser.until_live();
    let old = guarded.token();
    fs::remove_file(&guarded.path).unwrap();
    // The page notices it by itself as soon as it has something to show.
    let _held = guarded.server.keeper.lock("db").acquire().unwrap();
    browser.wait(ASKS);
    log_in(&mut browser, &old);
    browser.wait("document.body.innerText.includes('the token is wrong')");
    log_in(&mut browser, &guarded.token());
    browser.until_live();
}

#[test]
fn a_link_with_a_code_logs_in_once() {
    let (guarded, mut browser) = (Guarded::start(), Browser::start());
    let link = at(&guarded.server, &guarded.server.login_path());
    browser.open(&link);
    browser.wait("location.pathname === '/' && location.hash === ''");
    browser.until_live();
    browser.press("#log-out", "document.querySelector('#token')");
    // It differs from the address of this page only behind the `#`: the browser does not load the page again.
    browser.open(&link);
    browser.wait("document.body.innerText.includes('the link was used already')");
    assert_eq!(browser.run("location.hash"), "");
}
