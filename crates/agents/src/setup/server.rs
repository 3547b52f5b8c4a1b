//! The MCP server in the settings of a harness: adds and removes its entry, and leaves everything else as it is.

use serde_json::{Value, json};

use super::codex_config;
use super::settings_text::{TextError, input_value, not_an_object, parse, value};
use crate::harness::Harness;

/// The name of the server. The hook knows its own tools by it.
pub const NAME: &str = "lockkeeper";

/// The words that start the server.
pub fn words(program: &str) -> [&str; 2] {
    [program, "mcp"]
}

/// Whether these words start our server, from any place.
pub fn is_ours(words: &[String]) -> bool {
    let name = words.first().map(|program| program.rsplit('/').next().unwrap_or_default());
    name == Some("lockkeeper") && words.get(1).is_some_and(|word| word == "mcp")
}

/// Adds the server. An entry that starts it already stays as it is, with what its user has added to it.
pub fn with_server(harness: Harness, text: &str, program: &str) -> Result<String, TextError> {
    if harness == Harness::Codex {
        return codex_config::with_server(text, program);
    }
    let root = parse(harness, text)?;
    let settings = root.object_value_or_set();
    let key = key(harness);
    let servers = match settings.get(key) {
        None => settings.object_value_or_set(key),
        Some(servers) => servers.object_value().ok_or_else(|| not_an_object(key))?,
    };
    let entry = input_value(&entry(harness, program));
    match servers.get(NAME) {
        None => drop(servers.append(NAME, entry)),
        Some(present) => {
            let started = present.value().and_then(|value| value.to_serde_value());
            let started = started.map(|value| started_by(&value)).unwrap_or_default();
            if started == words(program) {
                return Ok(text.to_owned());
            }
            if !is_ours(&started) {
                return Err(TextError::OtherServer);
            }
            present.set_value(entry);
        }
    }
    Ok(root.to_string())
}

/// Removes the server, and what is empty then. `None`: it is not there.
pub fn without_server(harness: Harness, text: &str) -> Result<Option<String>, TextError> {
    if harness == Harness::Codex {
        return codex_config::without_server(text);
    }
    let root = parse(harness, text)?;
    let settings = root.object_value();
    let servers = settings.as_ref().and_then(|settings| settings.object_value(key(harness)));
    let present = servers.as_ref().and_then(|servers| servers.get(NAME));
    let started = present.as_ref().and_then(|present| present.value()?.to_serde_value());
    let (Some(servers), Some(present), Some(started)) = (servers, present, started) else { return Ok(None) };
    if !is_ours(&started_by(&started)) {
        return Ok(None);
    }
    present.remove();
    if servers.properties().is_empty() {
        settings
            .and_then(|settings| settings.get(key(harness)))
            .into_iter()
            .for_each(|servers| servers.remove());
    }
    Ok(Some(root.to_string()))
}

/// The words that start the server that has our name, and whether it is switched on.
pub fn server_in(harness: Harness, text: &str) -> Result<Option<(Vec<String>, bool)>, TextError> {
    let settings = match harness {
        Harness::Codex => codex_config::value(text)?,
        _ => value(harness, text)?,
    };
    let entry = settings.get(key(harness)).and_then(|servers| servers.get(NAME));
    Ok(entry.map(|entry| (started_by(entry), entry.get("enabled") != Some(&Value::Bool(false)))))
}

/// The setting with all servers.
fn key(harness: Harness) -> &'static str {
    match harness {
        Harness::Codex => codex_config::SERVERS,
        Harness::OpenCode => "mcp",
        _ => "mcpServers",
    }
}

/// The entry of the server.
pub fn entry(harness: Harness, program: &str) -> Value {
    let words = words(program);
    let (command, arguments) = (words[0], &words[1..]);
    match harness {
        Harness::Claude => json!({"type": "stdio", "command": command, "args": arguments}),
        Harness::Copilot => {
            json!({"type": "local", "command": command, "args": arguments, "tools": ["*"]})
        }
        Harness::OpenCode => json!({"type": "local", "command": words, "enabled": true}),
        Harness::Codex | Harness::Gemini | Harness::Qwen | Harness::Cursor | Harness::Windsurf => {
            json!({"command": command, "args": arguments})
        }
    }
}

/// The program of an entry with its arguments. OpenCode has one list.
fn started_by(entry: &Value) -> Vec<String> {
    let texts = |value: Option<&Value>| match value {
        Some(Value::String(text)) => vec![text.clone()],
        Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => Vec::new(),
    };
    [texts(entry.get("command")), texts(entry.get("args"))].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROGRAM: &str = "/it's \"here\"/lockkeeper";

    #[test]
    fn the_server_is_added_once_and_removed_again() {
        for harness in Harness::ALL {
            for text in ["", if harness == Harness::Codex { "# mine\n\nmodel = 'x'" } else { "{\"a\": 1}" }] {
                let once = with_server(harness, text, PROGRAM).unwrap();
                let words = words(PROGRAM).map(str::to_owned).to_vec();
                assert_eq!(server_in(harness, &once), Ok(Some((words, true))), "{once}");
                assert_eq!(with_server(harness, &once, PROGRAM).unwrap(), once, "{harness:?}");
                let other = with_server(harness, &once, "/new/lockkeeper").unwrap();
                assert!(other.contains("/new/lockkeeper") && !other.contains("here"), "{other}");
                let removed = without_server(harness, &other).unwrap().unwrap();
                assert!(!removed.contains("lockkeeper") && !removed.contains("mcp"), "{removed}");
                assert_eq!(without_server(harness, &removed), Ok(None));
            }
        }
    }

    #[test]
    fn servers_of_others_stay() {
        let json = "{\n  \"mcpServers\": {\n    \"db\": {\"command\": \"db\"}\n  },\n  \"z\": 1\n}\n";
        let toml = "# mine\n[mcp_servers.db]   # theirs\ncommand = \"db\"\n\n[tui]\nx = 1\n";
        for (harness, text) in [(Harness::Claude, json), (Harness::Codex, toml)] {
            let with = with_server(harness, text, PROGRAM).unwrap();
            assert!(
                text.lines()
                    .filter(|line| line.len() > 3)
                    .all(|line| with.contains(line.trim_end_matches('}'))),
                "{with}"
            );
            assert_eq!(without_server(harness, &with), Ok(Some(text.to_owned())), "{with}");
        }
    }

    #[test]
    fn what_the_user_has_added_to_the_entry_stays() {
        let json =
            r#"{"mcpServers": {"lockkeeper": {"command": "/l/lockkeeper", "args": ["mcp"], "timeout": 5}}}"#;
        assert_eq!(with_server(Harness::Gemini, json, "/l/lockkeeper").as_deref(), Ok(json));
        let toml =
            "[mcp_servers.lockkeeper]\ncommand = \"/l/lockkeeper\"\nargs = [ 'mcp' ]\nenabled = false\n";
        assert_eq!(with_server(Harness::Codex, toml, "/l/lockkeeper").as_deref(), Ok(toml));
        assert!(matches!(server_in(Harness::Codex, toml), Ok(Some((_, false)))));
    }

    #[test]
    fn a_server_of_somebody_else_is_left_alone() {
        let json = r#"{"mcpServers": {"lockkeeper": {"url": "https://example.com"}}}"#;
        let toml = "[mcp_servers]\nlockkeeper = { command = \"other\" }\n";
        for (harness, text) in [(Harness::Claude, json), (Harness::Codex, toml)] {
            assert_eq!(with_server(harness, text, PROGRAM), Err(TextError::OtherServer));
            assert_eq!(without_server(harness, text), Ok(None));
        }
        for (harness, text) in [
            (Harness::Claude, "{\"mcpServers\": []}"),
            (Harness::Claude, "{"),
            (Harness::Codex, "mcp_servers = 3"),
            (Harness::Codex, "a = "),
            (Harness::Codex, &format!("a = {}", "[".repeat(100_000))),
        ] {
            assert!(with_server(harness, text, PROGRAM).is_err(), "{text:.40}");
        }
    }
}
