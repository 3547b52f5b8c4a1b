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
