//! The server under load: lists among 100,000 runs against 1,000, five hundred open streams, and what idleness costs.
//!
//! usage: scripts/bench server. The server is the command in a process of its own; who asks is this program, over
//! connections that stay open. Both sizes are asked in turns, so that what else the machine does hits both. Exits 1 when
//! a limit is missed.
#![expect(clippy::unwrap_used, reason = "a measurement that cannot go on says so")]

#[path = "server/client.rs"]
mod client;
#[path = "server/idle.rs"]
mod idle;
#[path = "server/lists.rs"]
mod lists;
#[path = "speed/measure.rs"]
#[expect(dead_code, reason = "other sections use the rest")]
mod measure;
#[path = "server/place.rs"]
mod place;
#[path = "server/streams.rs"]
mod streams;

use std::process::ExitCode;

/// How this program is called to serve one word and nothing else.
const HELLO: &str = "--serve-hello";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    if args.iter().any(|arg| arg == HELLO) {
        place::serve_hello();
        return ExitCode::SUCCESS;
    }
    if !args.iter().any(|arg| arg == "--bench") {
        return ExitCode::SUCCESS;
    }
    let asked: Vec<&String> = args[1..].iter().filter(|arg| !arg.starts_with("--")).collect();
    let wanted = |section: &str| asked.is_empty() || asked.iter().any(|one| *one == section);
    let mut missed = 0;
    if wanted("lists") {
        missed += lists::measure();
    }
    if wanted("streams") {
        missed += streams::measure();
    }
    if wanted("idle") {
        missed += idle::measure();
    }
    if missed > 0 {
        eprintln!("{missed} limits were missed");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
