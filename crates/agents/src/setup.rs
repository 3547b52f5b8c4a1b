//! Set-up of harnesses: writes the hooks and the MCP server into their settings, and removes them again.
//!
//! 1. [`Folders`] says which harnesses are here, and where each keeps its settings.
//! 2. [`SetUp`] works out the new text of each file: [`Change`]. Foreign settings keep their comments, order and blanks.
//! 3. [`SetUp::apply`] writes a change in one step, and keeps a record of the former text for `--remove`.

mod codex_config;
mod command_line;
mod entries;
mod exclude;
mod folders;
mod packages;
mod plan;
mod record;
mod replace;
mod server;
mod settings_text;

use std::path::Path;

use serde_json::Value;

pub use command_line::stable_path;
pub(crate) use command_line::{
    SHARED_PROGRAM, is_ours, of_program as user_command, shared as shared_command,
};
use entries::Layout;
pub use folders::{Contents, Folders, Scope, SettingsFile};
pub use packages::package;
pub use plan::{Change, SetUp, SetUpError};

use crate::harness::Harness;

/// Our command lines in a file of a harness, each with its event. None in a file that does not exist.
pub(crate) fn commands_in(harness: Harness, path: &Path) -> Result<Vec<(String, String)>, SetUpError> {
    let Some(text) = replace::read(path)? else { return Ok(Vec::new()) };
    if entries::layout(harness) == Layout::Plugin {
        // The plugin calls one command line at all events.
        let command = entries::command_in_plugin(&text);
        let events = entries::events(harness).iter().map(|(event, _)| (*event).to_owned());
        return Ok(command
            .map(|command| events.map(|event| (event, command.clone())).collect())
            .unwrap_or_default());
    }
    Ok(settings_text::commands(&settings_text::value(harness, &text)?))
}

/// The settings in a file of a harness. None if there is no such file, or it is a plugin.
pub(crate) fn settings_in(harness: Harness, path: &Path) -> Result<Option<Value>, SetUpError> {
    let text = replace::read(path)?.filter(|_| entries::layout(harness) != Layout::Plugin);
    Ok(text.map(|text| settings_text::value(harness, &text)).transpose()?)
}

/// The words that start the MCP server of our name in a file, and whether it is switched on. None if there is no such server.
pub(crate) fn server_in(file: &SettingsFile) -> Result<Option<(Vec<String>, bool)>, SetUpError> {
    let Some(text) = replace::read(&file.path)? else { return Ok(None) };
    Ok(server::server_in(file.harness, &text)?)
}

/// How many hooks a harness gets.
pub fn hook_count(harness: Harness) -> usize {
    entries::events(harness).len()
}

/// What only the user can do after the hooks were written.
pub fn user_step(harness: Harness, scope: Scope) -> Option<&'static str> {
    match (harness, scope) {
        (Harness::Claude, Scope::Project | Scope::Shared) => {
            Some("start claude here, and approve the MCP server")
        }
        (Harness::Codex, _) => Some("start codex, /hooks, trust lockkeeper"),
        (Harness::Gemini, Scope::Project | Scope::Shared) => Some("start gemini here, and trust this folder"),
        (Harness::Copilot, Scope::Project | Scope::Shared) => {
            Some("start copilot here, and trust this folder")
        }
        (Harness::Qwen, Scope::Project | Scope::Shared) => Some("start qwen here, and trust this folder"),
        _ => None,
    }
}

/// Whether tests run the harness itself. The others follow their documentation.
pub fn is_tested(harness: Harness) -> bool {
    !matches!(harness, Harness::Cursor | Harness::Windsurf)
}
