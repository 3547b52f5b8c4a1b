//! Tool calls: what the tools of all harnesses do, and where they say which files.

use serde_json::{Map, Value};

use crate::harness::Harness;
use crate::input::Unread;

/// A call of a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    /// The tool's name, as the harness calls it.
    pub name: String,
    /// What it does.
    pub action: Action,
}

/// What a tool does.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// It writes no files.
    Reads,
    /// It writes these files; paths as the harness gives them.
    Edits(Vec<String>),
    /// It applies this patch.
    Patches(String),
    /// It runs this command line with bash.
    Runs {
        /// The command line.
        command: String,
        /// The folder that the call names, if it does.
        folder: Option<String>,
        /// The tool ends before the command does.
        background: bool,
    },
    /// It calls a tool of an MCP server.
    Mcp {
        /// The server's name.
        server: String,
        /// The tool's name there.
        tool: String,
        /// The files that its arguments name, where the tool is known to write files.
        paths: Vec<String>,
    },
    /// The tool is not known: it may write anything.
    Unknown,
}

/// The keys under which tools name a file.
const PATH_KEYS: [&str; 8] = [
    "file_path",
    "notebook_path",
    "path",
    "filePath",
    "absolute_path",
    "target_file",
    "target_notebook",
    "relative_path",
];

impl ToolCall {
    pub(crate) fn read(harness: Harness, input: &Map<String, Value>) -> Result<Self, Unread> {
        if harness == Harness::Windsurf {
            return Ok(windsurf(input));
        }
        // Cursor's hooks for the shell and for edits have the fields of the tool at the top.
        if let Some(command) = input.get("command").and_then(Value::as_str)
            && harness == Harness::Cursor
        {
            let folder =
                input.get("cwd").and_then(Value::as_str).filter(|cwd| !cwd.is_empty()).map(str::to_owned);
            return Ok(Self {
                name: "Shell".to_owned(),
                action: Action::Runs {
                    command: command.to_owned(),
                    folder,
                    background: is_background(input),
                },
            });
        }
        if harness == Harness::Cursor && input.contains_key("file_path") {
            return Ok(Self { name: "Write".to_owned(), action: edits(input) });
        }
        let name = match input.get("tool_name").or_else(|| input.get("toolName")) {
            Some(Value::String(name)) => name.clone(),
            Some(_) => return Err(Unread::WrongType("tool_name")),
            None => return Err(Unread::Missing("the name of the tool")),
        };
        let parsed;
        let arguments = match input.get("tool_input").or_else(|| input.get("toolArgs")) {
            Some(Value::Object(arguments)) => arguments,
            // Copilot's own keys have the arguments as JSON within JSON.
            Some(Value::String(text)) => {
                parsed = serde_json::from_str(text).unwrap_or_default();
                &parsed
            }
            None | Some(Value::Null) => {
                parsed = Map::new();
                &parsed
            }
            Some(_) => return Err(Unread::WrongType("tool_input")),
        };
        let action = mcp(harness, &name, input, arguments).unwrap_or_else(|| action(&name, arguments));
        Ok(Self { name, action })
    }
}

fn action(name: &str, arguments: &Map<String, Value>) -> Action {
    match name {
        "Write"
        | "Edit"
        | "MultiEdit"
        | "NotebookEdit"
        | "Delete"
        | "StrReplace"
        | "EditNotebook"
        | "write"
        | "edit"
        | "multiedit"
        | "create"
        | "write_file"
        | "replace"
        | "edit_file"
        | "create_file"
        | "delete_file"
        | "search_replace"
        | "insert_edit_into_file"
        | "replace_string_in_file"
        | "multi_replace_string_in_file"
        | "edit_notebook_file"
        | "create_new_jupyter_notebook"
        | "edit_notebook"
        | "editFiles"
        | "createFile"
        | "editNotebook" => edits(arguments),
        "str_replace_editor" | "str_replace_based_edit_tool" => {
            let views = arguments.get("command").and_then(Value::as_str) == Some("view");
            if views { Action::Reads } else { edits(arguments) }
        }
        "apply_patch" | "ApplyPatch" => {
            let keys = ["command", "patchText", "patch", "input"];
            let text = keys.iter().find_map(|key| arguments.get(*key)?.as_str());
            text.map_or(Action::Unknown, |text| Action::Patches(text.to_owned()))
        }
        "Bash" | "Monitor" | "Shell" | "bash" | "shell" | "run_shell_command" | "run_in_terminal"
        | "runInTerminal" | "run_terminal_cmd" | "runTerminalCommand" | "local_shell" | "exec_command"
        | "shell_command" | "unified_exec" => shell(arguments),
        "Read"
        | "Glob"
        | "Grep"
        | "LS"
        | "WebFetch"
        | "WebSearch"
        | "TodoWrite"
        | "Task"
        | "Agent"
        | "BashOutput"
        | "KillShell"
        | "KillBash"
        | "TaskOutput"
        | "TaskStop"
        | "Skill"
        | "ToolSearch"
        | "AskUserQuestion"
        | "EnterPlanMode"
        | "ExitPlanMode"
        | "NotebookRead"
        | "read"
        | "glob"
        | "grep"
        | "list"
        | "view"
        | "webfetch"
        | "todowrite"
        | "todoread"
        | "task"
        | "question"
        | "read_file"
        | "read_many_files"
        | "list_directory"
        | "search_file_content"
        | "grep_search"
        | "google_web_search"
        | "web_fetch"
        | "web_search"
        | "todo_write"
        | "list_dir"
        | "file_search"
        | "semantic_search"
        | "codebase_search"
        | "update_plan"
        | "view_image"
        | "report_intent"
        | "read_bash"
        | "stop_bash"
        | "SemanticSearch"
        | "ReadLints" => Action::Reads,
        _ => Action::Unknown,
    }
}

fn edits(arguments: &Map<String, Value>) -> Action {
    let mut paths = paths_of(arguments);
    // Several files in one call: each entry has its own path.
    for key in ["edits", "replacements", "files"] {
        let entries = arguments.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        for entry in entries {
            match entry {
                Value::Object(entry) => paths.extend(paths_of(entry)),
                Value::String(path) if key == "files" => paths.push(path.clone()),
                _ => {}
            }
        }
    }
    if paths.is_empty() { Action::Unknown } else { Action::Edits(paths) }
}

fn paths_of(arguments: &Map<String, Value>) -> Vec<String> {
    let paths = PATH_KEYS.iter().filter_map(|key| arguments.get(*key)?.as_str());
    paths.filter(|path| !path.is_empty()).map(str::to_owned).collect()
}

fn shell(arguments: &Map<String, Value>) -> Action {
    let command = match arguments.get("command").or_else(|| arguments.get("cmd")) {
        Some(Value::String(command)) => command.clone(),
        // Codex' older tool has the words: `["bash", "-lc", "…"]`.
        Some(Value::Array(words)) => {
            let words: Option<Vec<&str>> = words.iter().map(Value::as_str).collect();
            let Some(words) = words else { return Action::Unknown };
            let quoted = words.iter().map(|word| format!("'{}'", word.replace('\'', r"'\''")));
            quoted.collect::<Vec<_>>().join(" ")
        }
        _ => return Action::Unknown,
    };
    let keys = ["workdir", "cwd", "directory", "dir_path", "working_directory"];
    let folder =
        keys.iter().find_map(|key| arguments.get(*key)?.as_str()).filter(|folder| !folder.is_empty());
    let (folder, background) = (folder.map(str::to_owned), is_background(arguments));
    Action::Runs { command, folder, background }
}

/// Whether the harness is asked to go on before the command has ended.
fn is_background(arguments: &Map<String, Value>) -> bool {
    let keys = ["run_in_background", "is_background", "isBackground", "background"];
    let asked = keys.iter().any(|key| arguments.get(*key).and_then(Value::as_bool) == Some(true));
    asked || arguments.get("mode").and_then(Value::as_str) == Some("async")
}

/// Recognises a tool of an MCP server by its name, or by what the harness says of it.
fn mcp(
    harness: Harness,
    name: &str,
    input: &Map<String, Value>,
    arguments: &Map<String, Value>,
) -> Option<Action> {
    let context = input.get("mcp_context").and_then(Value::as_object);
    let of_context = context.and_then(|context| {
        let text = |key: &str| context.get(key).and_then(Value::as_str).map(str::to_owned);
        Some((text("server_name")?, text("tool_name")?))
    });
    let split =
        |text: &str, at: &str| text.split_once(at).map(|(server, tool)| (server.to_owned(), tool.to_owned()));
    let built_in = || action(name, arguments) != Action::Unknown;
    let (server, tool) = of_context.or_else(|| match harness {
        Harness::Gemini => split(name.strip_prefix("mcp_")?, "_"),
        Harness::Cursor => name.strip_prefix("MCP:").map(|tool| (String::new(), tool.to_owned())),
        Harness::Copilot if !name.starts_with("mcp_") && !built_in() => split(name, "-"),
        Harness::OpenCode if !built_in() => split(name, "_"),
        _ => split(name.strip_prefix("mcp__")?, "__"),
    })?;
    let paths = mcp_paths(&tool, arguments);
    Some(Action::Mcp { server, tool, paths })
}

/// The files that a tool of a file server writes.
fn mcp_paths(tool: &str, arguments: &Map<String, Value>) -> Vec<String> {
    // A server for remote repositories has tools with the same names.
    let remote = ["repo", "owner", "project_id", "branch"].iter().any(|key| arguments.contains_key(*key));
    let writes = matches!(
        tool,
        "write_file"
            | "edit_file"
            | "create_file"
            | "delete_file"
            | "move_file"
            | "append_file"
            | "create_text_file"
            | "replace_content"
            | "replace_regex"
            | "replace_in_file"
            | "edit_block"
            | "write"
            | "edit"
    );
    if remote || !writes {
        return Vec::new();
    }
    let mut paths = paths_of(arguments);
    if tool == "move_file" {
        let both = ["source", "destination"].iter().filter_map(|key| arguments.get(*key)?.as_str());
        paths.extend(both.map(str::to_owned));
    }
    paths
}

fn windsurf(input: &Map<String, Value>) -> ToolCall {
    let name = input.get("agent_action_name").and_then(Value::as_str).unwrap_or_default().to_owned();
    let empty = Map::new();
    let info = input.get("tool_info").and_then(Value::as_object).unwrap_or(&empty);
    let text = |key: &str| info.get(key).and_then(Value::as_str).map(str::to_owned);
    let action = if name.ends_with("write_code") {
        edits(info)
    } else if name.ends_with("run_command") {
        let command = text("command_line").or_else(|| text("command"));
        let folder = text("cwd");
        command.map_or(Action::Unknown, |command| Action::Runs { command, folder, background: false })
    } else {
        let arguments = info.get("mcp_tool_arguments").and_then(Value::as_object).unwrap_or(&empty);
        match (text("mcp_server_name"), text("mcp_tool_name")) {
            (Some(server), Some(tool)) => {
                let paths = mcp_paths(&tool, arguments);
                Action::Mcp { server, tool, paths }
            }
            _ => Action::Unknown,
        }
    };
    ToolCall { name, action }
}
