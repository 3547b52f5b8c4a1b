//! The tool `commit`: only the caller's own changes, and why there is no commit.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use lockkeeper_testing::{Finished, World};
use serde_json::{Value, json};

use crate::peer::{Harness, Peer, holders, repository};

fn git(world: &World, args: &[&str]) -> String {
    Finished::of(world.command("git").args(args)).code(0).stdout()
}

fn last_commit(world: &World) -> String {
    git(world, &["show", "--format=%s", "--name-only", "HEAD"])
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

/// A repository with one commit.
fn committed() -> World {
    let world = repository();
    world.git_run(&["add", "-A"]);
    world.git_run(&["commit", "-q", "-m", "files"]);
    world
}

#[test]
fn only_the_callers_own_changes_are_committed() {
    let world = committed();
    let (one, two) = (Harness::new(&world, "claude"), Harness::new(&world, "claude"));
    assert_eq!((one.edit("s1", "src/a.rs"), two.edit("s2", "src/b.rs")), (String::new(), String::new()));
    fs::write(world.path("src/a.rs"), "mine\n").unwrap();
    fs::write(world.path("src/b.rs"), "theirs\n").unwrap();
    world.git_run(&["add", "src/b.rs"]);
    let staged = git(&world, &["diff", "--cached", "--raw", "--no-abbrev"]);
    let mut peer = one.server();
    let arguments = json!({ "message": "change a\n\nand say why" });
    one.hook(
        "PreToolUse",
        "s1",
        &json!({ "tool_name": "mcp__lockkeeper__commit", "tool_input": arguments, "tool_use_id": "t1" }),
    );
    let made = peer.call_with("commit", &arguments, &json!({ "claudecode/toolUseId": "t1" }));
    assert_eq!((&made["done"], &made["paths"]), (&json!(true), &json!(["src/a.rs"])), "{made}");
    assert_eq!(made["commit"], git(&world, &["rev-parse", "HEAD"]).trim());
    assert_eq!(last_commit(&world), "change a src/a.rs");
    assert_eq!(git(&world, &["diff", "--cached", "--raw", "--no-abbrev"]), staged);
    assert_eq!(holders(&world, "src/a.rs"), [""; 0], "the claim ended with the commit");
    assert_eq!(holders(&world, "src/b.rs"), ["claude:s2"]);
    peer.finish();
}

#[test]
fn why_there_is_no_commit_is_a_result() {
    let world = committed();
    let (mut one, mut two) = (Peer::new(&world), Peer::new(&world));
    one.call("claim", &json!({ "paths": ["src/a.rs"] }));
    fs::write(world.path("src/a.rs"), "mine\n").unwrap();
    let head = git(&world, &["rev-parse", "HEAD"]);
    let refused = |answer: &Value, why: &str| {
        assert_eq!((&answer["done"], &answer["commit"]), (&json!(false), &Value::Null), "{answer}");
        assert!(answer["why"].as_str().unwrap().contains(why), "{why}: {answer}");
        assert_eq!(git(&world, &["rev-parse", "HEAD"]), head);
    };
    refused(&two.call("commit", &json!({ "message": "x" })), "has no claims on files");
    let theirs = two.call("commit", &json!({ "message": "x", "paths": ["src/a.rs"] }));
    refused(&theirs, "others work on these paths: src/a.rs (mcp:");
    fs::write(world.path(".git/MERGE_HEAD"), &head).unwrap();
    refused(&one.call("commit", &json!({ "message": "x" })), "a merge is under way");
    fs::remove_file(world.path(".git/MERGE_HEAD")).unwrap();
    // What a hook prints is text of a stranger.
    let hook = world.path(".git/hooks/pre-commit");
    fs::create_dir_all(hook.parent().unwrap()).unwrap();
    fs::write(&hook, "#!/bin/sh\nprintf 'no\\033[31m red\\r\\n'; exit 1\n").unwrap();
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
    let answer = one.call("commit", &json!({ "message": "x" }));
    refused(&answer, "a hook of the repository");
    assert_eq!(answer["output"], "no[31m red");
    fs::remove_file(&hook).unwrap();
    assert!(
        one.refused("commit", &json!({ "message": "x", "paths": ["/etc/hosts"] }), &json!({}))
            .contains("init")
    );
    assert_eq!(one.call("commit", &json!({ "message": "x" }))["done"], true);
    for wrong in [json!({}), json!({ "message": " " }), json!({ "message": "x", "owner": "claude:1" })] {
        let params = json!({ "name": "commit", "arguments": wrong });
        assert_eq!(one.request("tools/call", &params)["error"]["code"], -32602, "{params}");
    }
    one.finish();
    two.finish();
}
