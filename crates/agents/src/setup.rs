//! Set-up of harnesses: writes the hooks into their settings, and removes them again.
//!
//! 1. [`Folders`] says which harnesses are here, and where each keeps its settings.
//! 2. [`SetUp`] works out the new text of each file: [`Change`]. Foreign settings keep their comments, order and blanks.
//! 3. [`SetUp::apply`] writes a change in one step, and keeps a record of the former text for `--remove`.

mod command_line;
mod entries;
mod exclude;
mod folders;
mod plan;
mod record;
mod replace;
mod settings_text;

pub use command_line::stable_path;
pub use folders::{Folders, Scope};
pub use plan::{Change, SetUp, SetUpError};

use crate::harness::Harness;

/// How many hooks a harness gets.
pub fn hook_count(harness: Harness) -> usize {
    entries::events(harness).len()
}

/// What only the user can do after the hooks were written.
pub fn user_step(harness: Harness, scope: Scope) -> Option<&'static str> {
    match (harness, scope) {
        (Harness::Codex, _) => Some("start codex, /hooks, trust lockkeeper"),
        (Harness::Gemini, Scope::Project | Scope::Shared) => Some("start gemini here, and trust this folder"),
        (Harness::Copilot, Scope::Project | Scope::Shared) => {
            Some("start copilot here, and trust this folder")
        }
        (Harness::Qwen, Scope::Project | Scope::Shared) => Some("start qwen here, and trust this folder"),
        (Harness::Cursor | Harness::Windsurf, _) => {
            Some("try it: this follows the documentation, no test has run it")
        }
        _ => None,
    }
}
