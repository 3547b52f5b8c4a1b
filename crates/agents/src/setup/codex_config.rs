//! The MCP server in Codex' `config.toml`. Comments, order and blanks of everything else stay.

use serde_json::{Value, json};
use toml_edit::{DocumentMut, Item, Table, TableLike, value as toml_value};

use super::server::{NAME, is_ours, words};
use super::settings_text::TextError;

/// The table with all servers.
pub const SERVERS: &str = "mcp_servers";

/// Adds `[mcp_servers.lockkeeper]`.
pub fn with_server(text: &str, program: &str) -> Result<String, TextError> {
    let mut config = parse(text)?;
    let servers = config.entry(SERVERS).or_insert_with(|| {
        // Written without a header `[mcp_servers]`: the header of the server is enough.
        let mut servers = Table::new();
        servers.set_implicit(true);
        Item::Table(servers)
    });
    let servers =
        servers.as_table_like_mut().ok_or_else(|| TextError::WrongType(format!("`{SERVERS}`"), "a table"))?;
    let words = words(program);
    match servers.get_mut(NAME) {
        None => {
            let mut server = Table::new();
            set(&mut server, &words);
            servers.insert(NAME, Item::Table(server));
        }
        Some(present) => {
            let started = started_by(present);
            if started == words {
                return Ok(text.to_owned());
            }
            let server = present.as_table_like_mut().filter(|_| is_ours(&started));
            set(server.ok_or(TextError::OtherServer)?, &words);
        }
    }
    Ok(config.to_string())
}

/// Removes the server, and the table of servers if nothing else is in it. `None`: it is not there.
pub fn without_server(text: &str) -> Result<Option<String>, TextError> {
    let mut config = parse(text)?;
    let Some(servers) = config.get_mut(SERVERS).and_then(Item::as_table_like_mut) else { return Ok(None) };
    if !servers.get(NAME).is_some_and(|server| is_ours(&started_by(server))) {
        return Ok(None);
    }
    servers.remove(NAME);
    if servers.is_empty() {
        config.remove(SERVERS);
    }
    Ok(Some(config.to_string()))
}

/// The entry of the server, as other harnesses have it in JSON.
pub fn value(text: &str) -> Result<Value, TextError> {
    let config = parse(text)?;
    let server = config.get(SERVERS).and_then(|servers| servers.get(NAME));
    let Some(server) = server else { return Ok(json!({})) };
    let enabled = server.get("enabled").and_then(Item::as_bool).unwrap_or(true);
    Ok(json!({SERVERS: {NAME: {"command": started_by(server), "enabled": enabled}}}))
}

fn parse(text: &str) -> Result<DocumentMut, TextError> {
    text.parse().map_err(|error: toml_edit::TomlError| {
        let first = error.to_string().lines().next().unwrap_or_default().to_owned();
        TextError::NotParsed(first)
    })
}

fn set(server: &mut dyn TableLike, words: &[&str]) {
    let arguments: toml_edit::Array = words[1..].iter().copied().collect();
    server.insert("command", toml_value(words[0]));
    server.insert("args", toml_value(arguments));
}

fn started_by(server: &Item) -> Vec<String> {
    let command = server.get("command").and_then(Item::as_str).map(str::to_owned);
    let arguments = server.get("args").and_then(Item::as_array);
    let arguments = arguments.into_iter().flatten().filter_map(|word| word.as_str().map(str::to_owned));
    command.into_iter().chain(arguments).collect()
}
