//! Any bytes as a hook input, a patch and a command line.
#![no_main]

#[path = "../../crates/agents/tests/fuzz/readers.rs"]
mod readers;

libfuzzer_sys::fuzz_target!(|data: &[u8]| readers::check(data));
