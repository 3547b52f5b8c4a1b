//! Announcements of the hook: before a call of our own MCP tools it writes down who calls, and after the call it removes that.

use lockkeeper_core::liveness::Proof;

use super::{Hook, HookError, Stores};
use crate::Event;
use crate::announced::{AnnouncedCall, AnnouncedCalls, arguments_of, is_our_tool};
use crate::mcp::is_tool;
use crate::tool::{Action, ToolCall};

impl Hook<'_> {
    /// Keeps the announcements of this agent's calls up to date.
    pub(super) fn announce(&self, stores: &Stores, proof: &Proof) -> Result<(), HookError> {
        let Some(tool) = self.input.tool.as_ref().and_then(our_tool) else { return Ok(()) };
        let Some(home) = stores.iter().next() else { return Ok(()) };
        let calls = AnnouncedCalls::new(&home.state);
        let (owner, call) = (self.owner.as_str(), self.input.call.as_deref());
        if self.input.event == Event::BeforeTool {
            let mut announced = AnnouncedCall::new(owner, call, &tool, proof);
            announced.arguments = arguments_of(self.call.input);
            calls.add(&announced).map_err(HookError::Sessions)
        } else {
            calls.remove(owner, call, &tool);
            Ok(())
        }
    }
}

/// The name of a tool of ours. Cursor and Windsurf name the tool apart from its server.
fn our_tool(call: &ToolCall) -> Option<String> {
    match &call.action {
        Action::Mcp { server, tool, .. } if is_our_tool(server) || (server.is_empty() && is_tool(tool)) => {
            Some(tool.clone())
        }
        _ if is_our_tool(&call.name) => Some(call.name.clone()),
        _ => None,
    }
}
