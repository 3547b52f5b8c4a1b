//! End-to-end tests of the pages in a real browser: Chromium.
#![expect(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

mod a11y;
mod board;
mod bulk;
mod chromium;
#[path = "../http/hooks.rs"]
mod hooks;
mod login;
mod logs;
mod pages;
#[expect(dead_code, reason = "the tests of the API use all of it")]
#[path = "../http/server.rs"]
mod server;
mod stages;

use lockkeeper_testing::http::Http;
use server::Server;

/// The URL of a page.
fn at(server: &Server, path: &str) -> String {
    server.url(path)
}
