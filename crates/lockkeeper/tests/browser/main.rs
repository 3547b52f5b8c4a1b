//! The page in a real browser: Debian's chromium, spoken to over its debugging pipe.
#![cfg(feature = "server")]
#![expect(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

mod bulk;
mod chromium;
#[expect(dead_code, reason = "the tests of the API use all of it")]
#[path = "../http/client.rs"]
mod client;
mod logs;
mod pages;
#[expect(dead_code, reason = "the tests of the API use all of it")]
#[path = "../http/server.rs"]
mod server;
