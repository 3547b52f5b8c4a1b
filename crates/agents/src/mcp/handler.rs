//! Protocol of the server: answers the requests of a client, and runs tools in threads of their own.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, GetPromptRequestParams,
    GetPromptResponse, GetPromptResult, Implementation, JsonObject, ListPromptsResult, ListResourcesResult,
    ListToolsResult, PaginatedRequestParams, ProgressNotificationParam, Prompt, PromptMessage,
    ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, Resource, ResourceContents, Role,
    ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use super::arguments::{CallError, ToolCall};
use super::caller::CallMarks;
use super::claiming::Interrupt;
use super::server::Server;
use super::tools::tools;
use super::wording::{COORDINATE, INSTRUCTIONS};

/// The resource with the board.
const BOARD: &str = "lockkeeper://board";
/// The name of the prompt.
const PROMPT: &str = "coordinate";
/// How often a client that asks for it is told that a call still runs.
const PROGRESS_EVERY: Duration = Duration::from_secs(5);

/// Answers the requests of one client.
pub(super) struct Handler {
    server: Arc<Server>,
    /// Has `true` after the end of the input.
    ended: watch::Receiver<bool>,
}

impl Handler {
    pub(super) fn new(server: Arc<Server>, ended: watch::Receiver<bool>) -> Self {
        Self { server, ended }
    }

    /// Runs a tool in a thread. A cancelled call, or the end of the input, ends a wait.
    async fn run(
        &self,
        tool: String,
        arguments: JsonObject,
        context: RequestContext<RoleServer>,
    ) -> Result<Value, CallError> {
        let call = ToolCall::read(&tool, &arguments)?;
        let (interrupt, keeps_running) = Interrupt::new()?;
        let mut keeps_running = Some(keeps_running);
        let server = Arc::clone(&self.server);
        let meta: JsonObject = (**context.meta).clone();
        let mut running = tokio::task::spawn_blocking(move || {
            let marks = CallMarks { tool: &tool, arguments: &arguments, meta: &meta };
            server.run(&call, &marks, &interrupt)
        });
        let mut ended = self.ended.clone();
        let mut ticks = interval(PROGRESS_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut count = 0.0;
        loop {
            tokio::select! {
                biased;
                done = &mut running => {
                    return done.unwrap_or_else(|_| Err(CallError::Refused("the tool failed: its thread has ended".to_owned())));
                }
                () = context.ct.cancelled(), if keeps_running.is_some() => keeps_running = None,
                () = is_over(&mut ended), if keeps_running.is_some() => keeps_running = None,
                _ = ticks.tick() => {
                    if let Some(token) = context.meta.get_progress_token() {
                        count += 1.0;
                        let progress = ProgressNotificationParam::new(token, count).with_message("waiting in line");
                        // A client that does not listen still gets its answer.
                        let _ = context.peer.notify_progress(progress).await;
                    }
                }
            }
        }
    }
}

/// Returns after the end of the input.
async fn is_over(ended: &mut watch::Receiver<bool>) {
    // An error says that the reader is gone, which is the end, too.
    drop(ended.wait_for(|ended| *ended).await);
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        let capabilities =
            ServerCapabilities::builder().enable_tools().enable_resources().enable_prompts().build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("lockkeeper", env!("CARGO_PKG_VERSION")))
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tools()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        tools().into_iter().find(|tool| tool.name == name)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = request.arguments.unwrap_or_default();
        match self.run(request.name.into_owned(), arguments, context).await {
            Ok(value) => Ok(CallToolResult::structured(value).into()),
            Err(CallError::Refused(why)) => Ok(CallToolResult::error(vec![ContentBlock::text(why)]).into()),
            Err(CallError::Malformed(why)) => Err(ErrorData::invalid_params(why, None)),
        }
    }

    async fn list_resources(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let board = Resource::new(BOARD, "board")
            .with_description("The agents of this repository: what each works on, waits for and was denied")
            .with_mime_type("application/json");
        Ok(ListResourcesResult::with_all_items(vec![board]))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        if request.uri != BOARD {
            return Err(ErrorData::resource_not_found(format!("the only resource is {BOARD}"), None));
        }
        let server = Arc::clone(&self.server);
        let board = tokio::task::spawn_blocking(move || server.board(None)).await;
        match board.unwrap_or_else(|_| Err(CallError::Refused("the board cannot be read".to_owned()))) {
            Ok(board) => {
                let contents =
                    ResourceContents::text(board.to_string(), BOARD).with_mime_type("application/json");
                Ok(ReadResourceResult::new(vec![contents]).into())
            }
            Err(CallError::Refused(why) | CallError::Malformed(why)) => {
                Err(ErrorData::internal_error(why, None))
            }
        }
    }

    async fn list_prompts(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let prompt = Prompt::new(PROMPT, Some("How to work beside other agents in this repository"), None);
        Ok(ListPromptsResult::with_all_items(vec![prompt]))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        if request.name != PROMPT {
            return Err(ErrorData::invalid_params(format!("the only prompt is {PROMPT}"), None));
        }
        Ok(GetPromptResult::new(vec![PromptMessage::new_text(Role::User, COORDINATE)]).into())
    }
}
