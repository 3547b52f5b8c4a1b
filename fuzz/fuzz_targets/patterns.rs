//! Any bytes as patterns and a path.
#![no_main]

#[path = "../../crates/core/tests/fuzz/patterns.rs"]
mod patterns;

libfuzzer_sys::fuzz_target!(|data: &[u8]| patterns::check(data));
