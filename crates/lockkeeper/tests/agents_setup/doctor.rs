//! What the doctor proves about each harness.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use lockkeeper_testing::{World, files};
use serde_json::Value;

use crate::files::{ALL, in_home, repository, text};

/// The check of one harness. None if the doctor has nothing to say about it.
fn check(world: &World, harness: &str) -> Option<Value> {
    let output = world.run(["doctor", "--json"]);
    let diagnosis: Value = serde_json::from_str(&output.stdout()).unwrap();
    diagnosis["checks"].as_array().unwrap().iter().find(|check| check["id"] == harness).cloned()
}

#[track_caller]
fn assert_found(world: &World, harness: &str, status: &str, words: &str) {
    let check = check(world, harness).expect("the harness is examined");
    assert_eq!(check["status"], status, "{check}");
    assert!(check["detail"].as_str().unwrap().contains(words), "{check}");
    assert_eq!(check["fix"].is_null(), status == "PASS", "{check}");
}

/// A folder of hooks for all repositories replaces the one with the guard: git does not call it any more.
#[test]
fn a_guard_that_git_does_not_call_is_found() {
    let world = repository();
    assert_eq!(check(&world, "git-guard"), None, "nobody takes part yet");
    world.run(["init", "claude"]).code(0);
    assert_found(&world, "git-guard", "PASS", "git asks before a commit");
    let folder = world.beside("hooks");
    world.git_run(&["config", "--global", "core.hooksPath", folder.to_str().unwrap()]);
    assert_found(&world, "git-guard", "WARN", "core.hooksPath is set to");
    world.git_run(&["config", "--global", "--unset", "core.hooksPath"]);
    fs::remove_dir_all(world.path(".git/hooks")).unwrap();
    assert_found(&world, "git-guard", "WARN", "git does not call the guard");
}

#[test]
fn each_harness_passes_a_free_file_and_denies_a_held_one() {
    let world = repository();
    world.run([&["init"][..], &ALL].concat()).code(0);
    for harness in ALL.into_iter().filter(|harness| *harness != "codex") {
        assert_found(&world, harness, "PASS", "denies a held one in ");
    }
    // There is no codex that could be asked.
    assert_found(&world, "codex", "WARN", "denies a held one in ");
}

#[test]
fn who_is_here_and_not_set_up_is_named_where_the_repository_takes_part() {
    let world = repository();
    fs::create_dir(world.home().join(".gemini")).unwrap();
    assert_eq!(check(&world, "gemini"), None);
    world.run(["init", "claude"]).code(0);
    assert_found(&world, "gemini", "WARN", "does not ask lockkeeper");
    assert_eq!(check(&world, "qwen"), None);
}

#[test]
fn hooks_that_protect_nothing_are_found() {
    let world = repository();
    world.run([&["init"][..], &ALL].concat()).code(0);
    let claude = world.home().join(".claude/settings.json");
    let whole = text(&claude);
    fs::write(&claude, whole.replace(world.program(), "/nowhere/lockkeeper")).unwrap();
    assert_found(&world, "claude", "FAIL", "lets an edit of a held file pass");
    fs::write(&claude, whole.replacen('{', "{ // mine", 1)).unwrap();
    assert_found(&world, "claude", "FAIL", "has a comment, so claude ignores the whole file");
    fs::write(&claude, whole.replacen('{', "{\"disableAllHooks\": true,", 1)).unwrap();
    assert_found(&world, "claude", "FAIL", "`disableAllHooks: true` in ~/.claude/settings.json");
    fs::write(&claude, whole.replacen("\"Stop\"", "\"Gone\"", 1)).unwrap();
    assert_found(&world, "claude", "WARN", "is not as this version writes it");
    fs::write(&claude, whole).unwrap();
    assert_found(&world, "claude", "PASS", "denies");

    let gemini = world.home().join(".gemini/settings.json");
    fs::write(&gemini, text(&gemini).replacen('{', "{\"hooksConfig\": {\"enabled\": false},", 1)).unwrap();
    assert_found(&world, "gemini", "FAIL", "`hooksConfig.enabled: false`");
    in_home(&world, ".codex/config.toml", "[features]\nhooks = false\n");
    assert_found(&world, "codex", "FAIL", "`features.hooks = false` in ~/.codex/config.toml");
}

#[test]
fn the_mcp_server_is_started_and_one_that_is_missing_or_off_is_named() {
    let world = repository();
    world.run([&["init"][..], &ALL].concat()).code(0);
    assert_found(&world, "claude", "PASS", "its MCP server answers with ");
    let claude = world.home().join(".claude.json");
    let whole = text(&claude);
    fs::write(&claude, "{}").unwrap();
    assert_found(&world, "claude", "WARN", "~/.claude.json has no MCP server lockkeeper");
    fs::write(&claude, whole.replace(world.program(), "/nowhere/lockkeeper")).unwrap();
    assert_found(
        &world,
        "claude",
        "WARN",
        "the MCP server in ~/.claude.json is not as this version writes it",
    );
    fs::write(&claude, "{").unwrap();
    assert_found(&world, "claude", "WARN", "~/.claude.json: it does not parse");
    let opencode = world.home().join(".config/opencode/opencode.json");
    fs::write(&opencode, text(&opencode).replace("true", "false")).unwrap();
    assert_found(&world, "opencode", "WARN", "the MCP server lockkeeper is switched off in ");
}

#[test]
fn a_package_counts_as_set_up_and_needs_the_program_in_the_search_path() {
    let world = repository();
    fs::create_dir_all(world.path(".git/lockkeeper/agents")).unwrap();
    in_home(&world, ".claude/settings.json", r#"{"enabledPlugins": {"lockkeeper@lockkeeper": true}}"#);
    in_home(&world, ".gemini/extensions/lockkeeper/gemini-extension.json", "{}");
    assert_found(&world, "claude", "FAIL", "the package in ~/.claude/settings.json: ");
    std::os::unix::fs::symlink(world.program(), world.beside("bin/lockkeeper")).unwrap();
    for harness in ["claude", "gemini"] {
        assert_found(&world, harness, "PASS", "denies a held one in ");
    }
    in_home(&world, ".claude/settings.json", r#"{"enabledPlugins": {"lockkeeper@lockkeeper": false}}"#);
    assert_found(&world, "claude", "WARN", "does not ask lockkeeper");
}

#[test]
fn a_command_line_of_the_project_is_run_only_if_it_is_known() {
    let world = repository();
    let mark = world.beside("was-run");
    let program = world.path("bin/lockkeeper");
    files::write(&program, format!("#!/bin/sh\n: > '{}'\n", mark.display()));
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let settings = serde_json::json!({"hooks": {"PreToolUse": [{"hooks": [
        {"type": "command", "command": format!("{} hook", program.display())}]}]}});
    let world = world.write(".claude/settings.json", &settings.to_string());
    assert_found(&world, "claude", "WARN", "was not tried");
    assert!(!mark.exists());
}

#[test]
fn codex_is_asked_whether_it_trusts_the_hooks() {
    let world = repository();
    world.run(["init", "codex"]).code(0);
    for (status, expected) in [("untrusted", "FAIL"), ("trusted", "PASS")] {
        let hook = format!(r#"{{"command":"lockkeeper hook","enabled":true,"trustStatus":"{status}"}}"#);
        let answer = format!(r#"{{"id":2,"result":{{"data":[{{"hooks":[{hook}]}}]}}}}"#);
        // It answers when it has read the third message.
        let script = format!("#!/bin/sh\nread a; read b; read c\necho '{answer}'\nread d\n");
        let program = world.beside("bin/codex");
        files::write(&program, script);
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        assert_found(&world, "codex", expected, "trust");
    }
}
