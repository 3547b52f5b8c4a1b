//! Any bytes as a STAGES.yml.
#![no_main]

#[path = "../../crates/lockkeeper/tests/stages/fuzz.rs"]
mod stages;

libfuzzer_sys::fuzz_target!(|data: &[u8]| stages::check(data));
