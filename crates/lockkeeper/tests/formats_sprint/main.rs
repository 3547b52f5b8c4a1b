//! The sprint lock as programs and people meet it: the command, its file, its questions.
#![expect(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

mod answers;
mod foreign;
mod hold;
mod hostile;
mod project;
mod questions;
mod reading;
mod storms;
mod users;
