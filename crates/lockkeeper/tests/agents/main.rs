//! Real coding agents with a fake model on loopback.
//!
//! `scripts/agents-install` installs the agents. A test of an agent that is not installed is skipped, and says so.
//! `scripts/test-agents` installs all of them and runs these tests.
#![expect(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

/// Makes a test of each case for each harness. A case is a function of a harness.
macro_rules! each_harness {
    ($cases:tt) => {
        each_harness!(@one claude Claude $cases);
        each_harness!(@one codex Codex $cases);
        each_harness!(@one codex_with_code CodexWithCode $cases);
        each_harness!(@one gemini Gemini $cases);
        each_harness!(@one copilot Copilot $cases);
        each_harness!(@one opencode OpenCode $cases);
        each_harness!(@one qwen Qwen $cases);
    };
    (@one $module:ident $harness:ident [$($case:ident),+ $(,)?]) => {
        mod $module {
            $(
                #[test]
                fn $case() {
                    super::$case(&crate::harness::$harness);
                }
            )+
        }
    };
}

mod claims;
mod foreign_server;
mod harness;
mod matrix;
mod packages;
mod plain;
mod sandbox;
mod set_up;
mod stage;
mod test_hook;
mod together;
