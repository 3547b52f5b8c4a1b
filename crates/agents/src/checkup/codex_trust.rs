//! Asks Codex whether the user has trusted our hooks: `hooks/list` of `codex app-server`, JSON-RPC on standard input and output.

use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use super::json_rpc;
use crate::harness::Harness;
use crate::setup::{Folders, is_ours};

/// Codex answers in a fraction of a second; its first start may take longer.
const LIMIT: Duration = Duration::from_secs(10);
/// The JSON-RPC id of the request.
const QUESTION: u64 = 2;

/// What Codex says about our hooks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// It runs all of them.
    Trusted,
    /// How many of them it skips.
    Untrusted(usize),
    /// It did not say.
    Unknown(String),
}

/// Asks Codex about the hooks in this project.
pub fn ask(folders: &Folders) -> Trust {
    let Some(program) = folders.program(Harness::Codex) else {
        return Trust::Unknown("codex is not in the search path".to_owned());
    };
    let root = &folders.location().root;
    let client = json!({"name": "lockkeeper", "version": env!("CARGO_PKG_VERSION")});
    let messages = [
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"clientInfo": client}}),
        json!({"jsonrpc": "2.0", "method": "initialized"}),
        json!({"jsonrpc": "2.0", "id": QUESTION, "method": "hooks/list", "params": {"cwds": [root]}}),
    ];
    let mut command = Command::new(program);
    command.arg("app-server").current_dir(root);
    match json_rpc::ask(&mut command, &messages, QUESTION, LIMIT) {
        Ok(Some(answer)) => judge(&answer),
        Ok(None) => Trust::Unknown("`codex app-server` did not answer".to_owned()),
        Err(error) => Trust::Unknown(format!("codex does not start ({error})")),
    }
}

fn judge(answer: &Value) -> Trust {
    let Some(folders) = answer["result"]["data"].as_array() else {
        return Trust::Unknown("this version of codex does not tell".to_owned());
    };
    let hooks = folders.iter().filter_map(|folder| folder["hooks"].as_array()).flatten();
    let ours: Vec<&Value> = hooks.filter(|hook| hook["command"].as_str().is_some_and(is_ours)).collect();
    let runs = |hook: &&&Value| {
        hook["enabled"] != false && matches!(hook["trustStatus"].as_str(), Some("trusted" | "managed"))
    };
    let trusted = ours.iter().filter(runs).count();
    match ours.len() - trusted {
        _ if ours.is_empty() => Trust::Unknown("codex does not see the hooks".to_owned()),
        0 => Trust::Trusted,
        untrusted => Trust::Untrusted(untrusted),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hook(status: &str) -> Value {
        json!({"command": "lockkeeper hook", "enabled": true, "trustStatus": status})
    }

    #[test]
    fn every_hook_of_ours_has_to_be_trusted() {
        let answer = |hooks: &[Value]| json!({"id": 2, "result": {"data": [{"cwd": "/r", "hooks": hooks}]}});
        let other = json!({"command": "other", "enabled": true, "trustStatus": "untrusted"});
        assert_eq!(judge(&answer(&[hook("trusted"), other.clone()])), Trust::Trusted);
        assert_eq!(
            judge(&answer(&[hook("trusted"), hook("untrusted"), hook("modified")])),
            Trust::Untrusted(2)
        );
        assert!(matches!(judge(&answer(&[other])), Trust::Unknown(_)));
        assert!(matches!(judge(&json!({"error": {"code": -32601}})), Trust::Unknown(_)));
        let off = json!({"command": "lockkeeper hook", "enabled": false, "trustStatus": "trusted"});
        assert_eq!(judge(&answer(&[off])), Trust::Untrusted(1));
    }
}
