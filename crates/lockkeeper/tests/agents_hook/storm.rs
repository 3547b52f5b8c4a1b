//! A storm of hook processes on a few files, killed at random: one owner for each file, by a checked history.

use std::collections::BTreeMap;
use std::process::Child;

use lockkeeper_testing::Dice;
use serde_json::Value;

use crate::agents::{Agent, log, repository};

const AGENTS: usize = 32;
const FILES: usize = 8;
const ROUNDS: usize = 4;

/// Invariants 1 and 6. Each round, every agent asks for one or two files at once, and some hooks are killed. An agent that
/// passes has its files until its session ends, so two that pass with one file in a round are an error.
#[test]
fn no_two_agents_ever_pass_with_one_file() {
    let dice = &mut Dice::from_environment();
    let world = repository();
    let agents: Vec<Agent<'_>> =
        (0..AGENTS).map(|number| Agent::new(&world, "codex", &format!("s{number}"))).collect();
    let mut passed = 0;
    for round in 0..ROUNDS {
        let mut asked: Vec<(usize, Vec<usize>, Child, bool)> = Vec::new();
        for (number, agent) in agents.iter().enumerate() {
            let first = dice.index(FILES);
            let files = if dice.percent(33) { vec![first, (first + 1) % FILES] } else { vec![first] };
            let names: Vec<String> = files.iter().map(|file| format!("file{file}")).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let command = crate::agents::patch(&names);
            let mut hook =
                agent.start(&agent.tool_input("apply_patch", serde_json::json!({ "command": command })));
            let is_killed = dice.percent(25);
            if is_killed {
                std::thread::sleep(dice.span_below(std::time::Duration::from_millis(20)));
                hook.kill().unwrap();
            }
            asked.push((number, files, hook, is_killed));
        }
        let mut owners: BTreeMap<usize, usize> = BTreeMap::new();
        for (number, files, hook, is_killed) in asked {
            let output = hook.wait_with_output().unwrap();
            if is_killed && !output.status.success() {
                continue;
            }
            assert_eq!(output.status.code(), Some(0));
            if !output.stdout.is_empty() && is_denied(&output.stdout) {
                continue;
            }
            passed += 1;
            for file in files {
                let before = owners.insert(file, number);
                assert!(
                    before.is_none(),
                    "round {round}: {before:?} and {number} both have file{file}; seed {}",
                    dice.seed()
                );
            }
        }
        let board = world.json(&["locks"]);
        let leases = board["leases"].as_array().unwrap();
        // A killed hook may have claimed its file, but never one that another agent has.
        for (file, owner) in &owners {
            let is_file = |resource: &Value| resource["path"] == format!("file{file}");
            let on_file = |lease: &&Value| lease["resources"].as_array().unwrap().iter().any(is_file);
            let holders: Vec<&Value> = leases.iter().filter(on_file).map(|lease| &lease["owner"]).collect();
            assert_eq!(
                holders,
                [&Value::from(format!("codex:s{owner}"))],
                "round {round}; seed {}",
                dice.seed()
            );
        }
        for agent in &agents {
            agent.event("SessionEnd");
        }
    }
    assert!(passed >= ROUNDS, "only {passed} passed; seed {}", dice.seed());
    assert_eq!(log(&world), [""; 0], "no call failed open");
}

fn is_denied(stdout: &[u8]) -> bool {
    let answer: Value = serde_json::from_slice(stdout).unwrap();
    answer["hookSpecificOutput"]["permissionDecision"] == "deny"
}
