//! Set-up in the settings of one user.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use lockkeeper_testing::Finished;
use serde_json::Value;

use crate::files::{ALL, in_home, repository, snapshot, text};

/// Settings as people have them: comments where they are read, tabs, blanks, no end of the last line.
const FORMER: [(&str, &str); 10] = [
    (".claude/settings.json", "{\"model\":\"opus\",\n\n   \"hooks\": {\"Stop\": [ ]}}"),
    (
        ".codex/hooks.json",
        "{\n\t\"hooks\": {\n\t\t\"PreToolUse\": [{\"hooks\": [{\"type\": \"command\", \"command\": \"mine\"}]}]\n\t}\n}\n",
    ),
    (".gemini/settings.json", "// mine\n{ \"ui\": {}, /* last */ \"hooks\": {} }\n"),
    (".qwen/settings.json", ""),
    (".cursor/hooks.json", "{\"version\": 1, \"hooks\": {}}\n"),
    (".copilot/hooks/other.json", "{\"version\": 1}"),
    (".claude.json", "{\"numStartups\":3,\n \"mcpServers\": {}, \"projects\":{ }}"),
    (".codex/config.toml", "# mine\nmodel = 'x'   # best\n\n[mcp_servers.db]\ncommand = \"db\"\n\n\n[tui]"),
    (".copilot/mcp-config.json", "{\"mcpServers\": {\"db\": {\"command\": \"db\"}}}\n"),
    (".config/opencode/opencode.jsonc", "{\n  // mine\n  \"model\": \"x\",\n}\n"),
];

#[test]
fn twice_changes_nothing_and_remove_gives_the_former_bytes_back() {
    let world = repository();
    FORMER.iter().for_each(|(path, text)| drop(in_home(&world, path, text)));
    let before = snapshot(&world.home());
    world.run([&["init"][..], &ALL].concat()).code(0).says("takes part");
    let once = snapshot(&world.home());
    assert!(once.len() > before.len());
    let again = world.run([&["init"][..], &ALL].concat()).code(0).stdout();
    assert_eq!(again.matches("unchanged").count(), ALL.len(), "{again}");
    assert_eq!(snapshot(&world.home()), once);
    assert!(world.path(".git/lockkeeper/agents").is_dir());

    world.run(["init", "--remove"]).code(0).says("takes part no more");
    assert_eq!(snapshot(&world.home()), before);
    assert!(!world.path(".git/lockkeeper/agents").exists());
    assert!(!world.home().join(".codeium").exists(), "folders that were made are removed again");
    world.run(["init", "--remove"]).code(0).says("nothing to remove");
}

#[test]
fn only_agents_that_are_found_are_set_up() {
    let world = repository();
    fs::create_dir(world.home().join(".codex")).unwrap();
    let output = world.run(["init"]).code(0).stdout();
    assert!(
        output.starts_with("codex     ~/.codex/hooks.json  8 hooks, MCP server   one step is yours: "),
        "{output}"
    );
    let git = output.lines().nth(1).unwrap();
    assert!(git.starts_with("git ") && git.ends_with("  6 hooks"), "{output}");
    assert_eq!(output.lines().count(), 2, "{output}");
}

/// The git guard comes and goes with the repository's part. Hooks that were there stay.
#[test]
fn the_git_guard_is_set_up_and_removed_with_the_repository() {
    let world = repository();
    let hooks = world.path(".git/hooks");
    fs::create_dir_all(&hooks).unwrap();
    fs::write(hooks.join("pre-commit"), "#!/bin/sh\nexit 0\n").unwrap();
    fs::set_permissions(hooks.join("pre-commit"), fs::Permissions::from_mode(0o755)).unwrap();
    let git = || (snapshot(&hooks), fs::read_to_string(world.path(".git/config")).unwrap());
    let before = git();
    world.run(["init", "claude", "--dry-run"]).code(0).prints("6 hooks would be added");
    assert_eq!(git(), before);
    let set_up = world.run(["--json", "init", "claude"]).code(0).json();
    assert_eq!(set_up["git"]["hooks"].as_array().unwrap().len(), 6, "{set_up}");
    assert_ne!(git(), before);
    let once = git();
    world.run(["init", "claude"]).code(0).prints("6 hooks");
    assert_eq!(git(), once);
    world.run(["init", "--remove"]).code(0).prints("git ");
    assert_eq!(git(), before);
}

/// A hooks folder of all repositories is left alone. The agents are set up nevertheless.
#[test]
fn a_hooks_folder_of_others_keeps_the_git_guard_away() {
    let world = repository();
    in_home(&world, ".gitconfig", "[core]\n\thooksPath = ~/hooks\n");
    let output = world.run(["init", "claude"]).code(0).says("takes part").stdout();
    let left_alone = output.contains("no guard: core.hooksPath is set to");
    // From git 2.54 on the guard needs no folder.
    assert!(left_alone != output.contains("configuration of this repository  6 hooks"), "{output}");
    assert!(!world.home().join("hooks").exists());
}

#[test]
fn without_any_agent_nothing_is_changed() {
    let world = repository();
    let before = (snapshot(&world.home()), snapshot(world.cwd()));
    world.run(["init"]).code(1).says("hint: name the agent");
    assert_eq!((snapshot(&world.home()), snapshot(world.cwd())), before);
    world.run(["init", "nobody"]).code(2);
}

#[test]
fn a_dry_run_shows_the_difference_and_writes_nothing() {
    let world = repository();
    in_home(&world, ".claude/settings.json", "{\n  \"model\": \"opus\"\n}\n");
    let before = (snapshot(&world.home()), snapshot(world.cwd()));
    let output = world.run(["init", "--dry-run", "claude", "opencode"]).code(0).stdout();
    assert!(
        output.contains("-  \"model\": \"opus\"\n+  \"model\": \"opus\",\n+  \"hooks\": {\n"),
        "{output}"
    );
    assert!(output.contains("--- /dev/null\n+++ ~/.config/opencode/plugins/lockkeeper.js\n"), "{output}");
    assert_eq!((snapshot(&world.home()), snapshot(world.cwd())), before);
    world.run(["init", "claude"]).code(0);
    let before = (snapshot(&world.home()), snapshot(world.cwd()));
    let output = world.run(["init", "--dry-run", "--remove"]).code(0).stdout();
    assert!(output.contains("-  \"hooks\": {\n"), "{output}");
    assert_eq!((snapshot(&world.home()), snapshot(world.cwd())), before);
}

#[test]
fn a_file_that_does_not_parse_is_named_and_left_alone_and_others_are_done() {
    let world = repository();
    let comment = in_home(&world, ".claude/settings.json", "{\n  // mine\n  \"model\": \"opus\"\n}\n");
    let broken = in_home(&world, ".gemini/settings.json", "{\"ui\": ");
    let plugin = in_home(&world, ".config/opencode/plugins/lockkeeper.js", "export const Mine = 1\n");
    let before = [&comment, &broken, &plugin].map(|path| text(path));
    let output = world.run(["init", "claude", "gemini", "opencode", "codex"]).code(1);
    for expected in [
        "settings.json",
        "left alone: it has a comment",
        "line 2",
        "left alone: it does not parse",
        "left alone: it is not a file of lockkeeper",
    ] {
        assert!(output.stdout().contains(expected), "{expected}: {output:?}");
    }
    assert_eq!([&comment, &broken, &plugin].map(|path| text(path)), before);
    assert!(world.home().join(".codex/hooks.json").is_file());
    world.run(["init", "--remove"]).code(1);
    assert_eq!([&comment, &broken, &plugin].map(|path| text(path)), before);
}

/// Hooks and servers of one harness are often in two files: one that cannot be changed does not keep the other one away.
#[test]
fn an_mcp_file_that_is_left_alone_keeps_no_hook_away() {
    let world = repository();
    let broken = in_home(&world, ".codex/config.toml", "model = \n");
    let other = in_home(&world, ".claude.json", r#"{"mcpServers": {"lockkeeper": {"command": "other"}}}"#);
    let before = [&broken, &other].map(|path| text(path));
    let output = world.run(["init", "claude", "codex"]).code(1);
    for expected in [
        "claude    ~/.claude/settings.json  8 hooks\n",
        "claude    ~/.claude.json           left alone: it has another MCP server that is called lockkeeper\n",
        "codex     ~/.codex/hooks.json      8 hooks   one step",
        "codex     ~/.codex/config.toml     left alone: it does not parse",
    ] {
        assert!(output.stdout().contains(expected), "{expected}: {output:?}");
    }
    assert_eq!([&broken, &other].map(|path| text(path)), before);
    world.run(["init", "--remove"]).code(1);
    assert_eq!([&broken, &other].map(|path| text(path)), before);
    assert!(!world.home().join(".claude").exists() && !world.home().join(".codex/hooks.json").exists());
}

#[test]
fn each_agent_gets_the_mcp_server_where_it_looks_for_it() {
    let world = repository();
    world.run([&["init"][..], &ALL].concat()).code(0);
    let json = |path: &str| -> Value { serde_json::from_str(&text(&world.home().join(path))).unwrap() };
    for path in [
        ".claude.json",
        ".gemini/settings.json",
        ".copilot/mcp-config.json",
        ".qwen/settings.json",
        ".cursor/mcp.json",
        ".codeium/windsurf/mcp_config.json",
    ] {
        let server = &json(path)["mcpServers"]["lockkeeper"];
        assert_eq!(
            (&server["command"], &server["args"][0]),
            (&world.program().into(), &"mcp".into()),
            "{path}"
        );
    }
    let server = &json(".config/opencode/opencode.json")["mcp"]["lockkeeper"];
    assert_eq!(server["command"], serde_json::json!([world.program(), "mcp"]));
    let codex = text(&world.home().join(".codex/config.toml"));
    assert_eq!(
        codex,
        format!("[mcp_servers.lockkeeper]\ncommand = \"{}\"\nargs = [\"mcp\"]\n", world.program())
    );
}

#[test]
fn what_others_have_written_meanwhile_stays() {
    let world = repository();
    let file = in_home(&world, ".claude/settings.json", "{}\n");
    world.run(["init", "claude"]).code(0);
    let mut settings: Value = serde_json::from_str(&text(&file)).unwrap();
    settings["model"] = "opus".into();
    settings["hooks"]["PreToolUse"]
        .as_array_mut()
        .unwrap()
        .push(serde_json::json!({"hooks": [{"command": "mine"}]}));
    fs::write(&file, settings.to_string()).unwrap();
    // Codex writes the trust of the user into its settings, Claude everything that it remembers.
    let codex = in_home(&world, ".codex/config.toml", "");
    world.run(["init", "codex"]).code(0);
    fs::write(&codex, format!("{}\n[hooks.state]\nx = 1\n", text(&codex))).unwrap();
    let claude = world.home().join(".claude.json");
    fs::write(&claude, text(&claude).replacen('{', "{\"numStartups\": 1,", 1)).unwrap();
    world.run(["init", "--remove"]).code(0);
    assert_eq!(text(&codex), "\n[hooks.state]\nx = 1\n");
    assert_eq!(serde_json::from_str::<Value>(&text(&claude)).unwrap(), serde_json::json!({"numStartups": 1}));
    let left: Value = serde_json::from_str(&text(&file)).unwrap();
    assert_eq!(
        left,
        serde_json::json!({"model": "opus", "hooks": {"PreToolUse": [{"hooks": [{"command": "mine"}]}]}})
    );
}

#[test]
fn an_entry_of_another_program_path_is_replaced() {
    let world = repository();
    let file = in_home(&world, ".claude/settings.json", "{}\n");
    world.run(["init", "claude"]).code(0);
    let current = text(&file);
    fs::write(&file, current.replace(world.program(), "/old/lockkeeper")).unwrap();
    world.run(["init", "claude"]).code(0);
    assert_eq!(text(&file), current);
}

#[test]
fn a_symlinked_dotfile_is_followed_and_keeps_its_mode() {
    let world = repository();
    let target = in_home(&world, "dotfiles/claude.json", "{}\n");
    fs::set_permissions(&target, fs::Permissions::from_mode(0o640)).unwrap();
    fs::create_dir(world.home().join(".claude")).unwrap();
    symlink("../dotfiles/claude.json", world.home().join(".claude/settings.json")).unwrap();
    let before = snapshot(&world.home());
    world.run(["init", "claude"]).code(0);
    assert!(text(&target).contains("lockkeeper"));
    assert_eq!(fs::metadata(&target).unwrap().permissions().mode() & 0o777, 0o640);
    assert!(fs::symlink_metadata(world.home().join(".claude/settings.json")).unwrap().is_symlink());
    world.run(["init", "--remove"]).code(0);
    assert_eq!(snapshot(&world.home()), before);
}

#[test]
fn former_settings_may_have_secrets_so_only_their_owner_reads_the_record() {
    let world = repository();
    in_home(&world, ".claude/settings.json", "{\"env\": {\"KEY\": \"secret\"}}");
    world.run(["init", "claude"]).code(0);
    let folder = world.home().join(".local/state/lockkeeper/setup");
    assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
    let record = folder.join("claude.json");
    assert_eq!(fs::metadata(&record).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn programs_read_what_was_done() {
    let world = repository();
    let done = world.json(&["init", "claude"]);
    let (one, file) = (&done["harnesses"][0], world.home().join(".claude/settings.json"));
    assert_eq!(
        (&one["harness"], &one["scope"], &one["hooks"]),
        (&"claude".into(), &"user".into(), &8.into())
    );
    assert_eq!(one["file"], file.to_str().unwrap());
    assert_eq!(one["mcp"]["file"], world.home().join(".claude.json").to_str().unwrap());
    assert_eq!(
        (&done["takes_part"], &one["unchanged"], &one["error"]),
        (&true.into(), &false.into(), &Value::Null)
    );
}

#[test]
fn outside_of_a_repository_nothing_is_changed() {
    let world = repository();
    let elsewhere = world.beside("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let mut command = world.lockkeeper(["init", "claude"]);
    let output = command.current_dir(&elsewhere).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(snapshot(&world.home()).is_empty() && snapshot(&elsewhere).is_empty());
}

/// A dotfiles manager makes links before the files that they lead to.
#[test]
fn a_link_that_leads_nowhere_stays_and_the_file_behind_it_goes() {
    let world = repository();
    fs::create_dir_all(world.home().join(".codex")).unwrap();
    fs::create_dir_all(world.home().join("dot")).unwrap();
    symlink("../dot/hooks.json", world.home().join(".codex/hooks.json")).unwrap();
    let before = snapshot(&world.home());
    world.run(["init", "codex"]).code(0);
    assert!(text(&world.home().join("dot/hooks.json")).contains("lockkeeper"));
    world.run(["init", "--remove", "codex"]).code(0).prints("removed");
    assert_eq!(snapshot(&world.home()), before);
}

/// Two agents whose settings are one file by a link.
#[test]
fn a_file_that_two_agents_share_by_a_link_gets_its_bytes_back() {
    for order in [["gemini", "qwen"], ["qwen", "gemini"]] {
        let world = repository();
        in_home(&world, ".gemini/settings.json", "{\"x\":1}\n");
        fs::create_dir_all(world.home().join(".qwen")).unwrap();
        symlink("../.gemini/settings.json", world.home().join(".qwen/settings.json")).unwrap();
        let before = snapshot(&world.home());
        world.run(["init", "gemini", "qwen"]).code(0);
        world.run(["init", "gemini", "qwen"]).code(0);
        world.run([&["init", "--remove"][..], &order].concat()).code(0);
        assert_eq!(snapshot(&world.home()), before, "{order:?}");
    }
}

/// One user, several repositories: the settings are the same files.
#[test]
fn several_repositories_at_once_are_all_set_up() {
    let world = repository();
    in_home(&world, ".claude.json", "{\"numStartups\":3}");
    let before = snapshot(&world.home());
    for number in 0..8 {
        world.git_run(&["init", "-q", &format!("repository{number}")]);
    }
    std::thread::scope(|scope| {
        for number in 0..8 {
            let folder = world.path(&format!("repository{number}"));
            let world = &world;
            scope.spawn(move || {
                let args = [&["init"][..], &ALL].concat();
                Finished::of(world.lockkeeper(args).current_dir(folder)).code(0);
            });
        }
    });
    let args = ["init", "--remove", "claude", "codex"];
    Finished::of(world.lockkeeper(args).current_dir(world.path("repository0"))).code(0);
    Finished::of(world.lockkeeper(["init", "--remove"]).current_dir(world.path("repository1"))).code(0);
    assert_eq!(snapshot(&world.home()), before);
}
