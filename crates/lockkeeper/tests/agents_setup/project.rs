//! Set-up in the files of one project.

use std::fs;

use crate::files::{ALL, repository, snapshot, text};

#[test]
fn files_of_one_checkout_are_not_tracked_and_removed_again() {
    let world = repository();
    let exclude = world.path(".git/info/exclude");
    let before = (snapshot(&world.home()), text(&exclude));
    world.run([&["init", "--project"][..], &ALL].concat()).code(0);
    assert!(
        world.path(".claude/settings.local.json").is_file()
            && world.path(".opencode/plugins/lockkeeper.js").is_file()
            && world.path(".mcp.json").is_file()
            && world.path(".codex/config.toml").is_file()
    );
    let status = world.shell("git status --porcelain").code(0).stdout();
    assert_eq!(status, "");
    assert_eq!(snapshot(&world.home()), before.0);
    world.run(["init", "--project", "--remove"]).code(0);
    assert_eq!(text(&exclude), before.1);
    assert!(fs::read_dir(world.cwd()).unwrap().all(|entry| entry.unwrap().file_name() == ".git"));
}

#[test]
fn a_tracked_file_is_changed_only_for_all() {
    let world = repository().write(".codex/hooks.json", "{}\n");
    world.git_run(&["add", ".codex/hooks.json"]);
    let output = world.run(["init", "--project", "codex"]).code(1);
    assert!(output.stdout().contains("left alone: git tracks it"), "{output:?}");
    assert_eq!(text(&world.path(".codex/hooks.json")), "{}\n");
    world.run(["init", "--shared", "codex"]).code(0);
    let shared = text(&world.path(".codex/hooks.json"));
    assert!(
        shared.contains("command -v lockkeeper >/dev/null 2>&1 || exit 0; exec lockkeeper hook"),
        "{shared}"
    );
    assert!(!shared.contains(world.program()), "{shared}");
    let servers = text(&world.path(".codex/config.toml"));
    assert!(servers.contains("command = \"lockkeeper\"\n"), "{servers}");
    world.run(["init", "--shared", "--project"]).code(2);
    world.run(["init", "--shared", "--remove"]).code(0);
    assert_eq!(text(&world.path(".codex/hooks.json")), "{}\n");
}
