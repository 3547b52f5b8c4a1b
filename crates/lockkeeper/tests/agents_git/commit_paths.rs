//! What a commit takes along: exactly one's own changes, of every kind.

use std::os::unix::fs::symlink;

use lockkeeper_testing::Finished;
use serde_json::json;

use crate::repository::{Agent, executable, git, holders, hook, last, repository, staged, write};

#[test]
fn others_staged_and_unstaged_work_stays_as_it_is() {
    let world = repository();
    let (one, two) = (Agent::new(&world, "1"), Agent::new(&world, "2"));
    one.edit("src/a.rs", "one\n");
    two.edit("src/b.rs", "staged\n");
    world.git_run(&["add", "src/b.rs"]);
    two.edit("src/b.rs", "changed again\n");
    two.edit("new of two.rs", "new\n");
    world.git_run(&["add", "new of two.rs"]);
    world.git_run(&["rm", "-q", "--cached", "src/c.rs"]);
    let before = staged(&world);
    let done = one.commit_json(&[]);
    assert_eq!((&done["done"], &done["paths"]), (&json!(true), &json!(["src/a.rs"])), "{done}");
    assert_eq!(last(&world), ["M src/a.rs"]);
    assert_eq!(done["commit"], json!(git(&world, &["rev-parse", "HEAD"]).trim_end()));
    assert_eq!(staged(&world), before);
    assert_eq!(std::fs::read_to_string(world.path("src/b.rs")).unwrap(), "changed again\n");
    assert_eq!(git(&world, &["diff", "--name-only"]), "src/b.rs\n");
    assert_eq!(git(&world, &["ls-files", "--others"]), "src/c.rs\n");
    assert!(holders(&world, "src/a.rs").is_empty());
    assert_eq!(holders(&world, "src/b.rs"), [two.owner()]);
    assert!(
        !std::fs::read_dir(world.path(".git/lockkeeper"))
            .unwrap()
            .any(|entry| { entry.unwrap().file_name().to_str().unwrap().starts_with("commit-") })
    );
}

#[test]
fn new_deleted_renamed_binary_and_mode_only_changes_are_committed() {
    let world = repository();
    world.git_run(&["config", "core.fileMode", "true"]);
    let agent = Agent::new(&world, "1");
    agent.edit("deep/new folder/new\nfile*.rs", "new\n");
    agent.delete("src/a.rs");
    agent.claim("src/b.rs");
    agent.claim("src/moved.rs");
    world.git_run(&["mv", "src/b.rs", "src/moved.rs"]);
    agent.claim("src/c.rs");
    executable(&world.path("src/c.rs"));
    let bytes: Vec<u8> = (0..=255).cycle().take(10_000).collect();
    agent.edit("image.bin", &bytes);
    // It looks like the name above taken as a pattern.
    write(&world, "deep/new folder/new\nfile2.rs", "of nobody\n");
    agent.commit(&[]).code(0).says("committed 6 files, released 6 claims");
    let expected = [
        "A \"deep/new folder/new\\nfile*.rs\"",
        "A image.bin",
        "D src/a.rs",
        "D src/b.rs",
        "M src/c.rs",
        "A src/moved.rs",
    ];
    assert_eq!(last(&world), expected);
    assert!(git(&world, &["ls-tree", "HEAD", "src/c.rs"]).starts_with("100755"));
    let kept = Finished::of(world.command("git").args(["show", "HEAD:image.bin"])).code(0);
    assert_eq!(kept.bytes(), bytes);
    assert_eq!(git(&world, &["status", "--porcelain"]), "?? \"deep/new folder/new\\nfile2.rs\"\n");
}

/// A file that became a folder: a pattern that covers the file does not cover what others have below it.
#[test]
fn a_file_that_became_a_folder_takes_nothing_of_others_along() {
    let world = repository();
    world.acquire(&["--path", "src/*.rs", "--owner", "person:ann"]);
    std::fs::remove_file(world.path("src/a.rs")).unwrap();
    world.git_run(&["rm", "-q", "--cached", "src/a.rs"]);
    write(&world, "src/a.rs/of others", "others\n");
    world.git_run(&["add", "src/a.rs/of others"]);
    world.run(["commit", "-m", "x", "--owner", "person:ann"]).code(0);
    assert_eq!(last(&world), ["D src/a.rs"]);
    assert_eq!(git(&world, &["status", "--porcelain"]), "A  \"src/a.rs/of others\"\n");
}

/// The claim of an agent to a file covers what is below it, once it is a folder, and lasts until all of that is committed.
#[test]
fn an_agent_commits_the_folder_that_its_file_became() {
    let world = repository();
    let agent = Agent::new(&world, "1");
    agent.delete("src/a.rs");
    agent.edit("src/a.rs/one.rs", "one\n");
    agent.edit("src/a.rs/two.rs", "two\n");
    agent.commit(&["src/a.rs/one.rs"]).code(0);
    assert_eq!(holders(&world, "src/a.rs"), [agent.owner()]);
    agent.commit(&[]).code(0);
    assert_eq!(git(&world, &["status", "--porcelain"]), "");
    assert!(holders(&world, "src/a.rs").is_empty());
}

#[test]
fn people_without_claims_name_their_paths() {
    let world = repository().at("src");
    write(&world, "a.rs", "1\n");
    write(&world, "sub/new.rs", "1\n");
    write(&world, "b.rs", "1\n");
    symlink("a.rs", world.path("link")).unwrap();
    world.run(["commit", "-m", "x"]).code(2).says("--owner");
    let done = world.json(&["commit", "-m", "first", "-m", "second", "a.rs", "sub", "link", "c.rs"]);
    assert_eq!(done["left_out"], json!([{ "path": "src/c.rs", "why": "not changed, or ignored by git" }]));
    assert_eq!(last(&world), ["M src/a.rs", "A src/link", "A src/sub/new.rs"]);
    assert_eq!(git(&world, &["log", "-1", "--format=%B"]), "first\n\nsecond\n\n");
    assert_eq!(git(&world, &["ls-tree", "HEAD", "link"]).split(' ').next(), Some("120000"));
    assert_eq!(git(&world, &["status", "--porcelain"]), " M src/b.rs\n");
    world.run(["commit", "-m", "all", "."]).code(0);
    assert_eq!(last(&world), ["M src/b.rs"]);
}

/// A lease that was taken by hand covers a pattern.
#[test]
fn a_lease_on_a_pattern_commits_what_changed_in_it() {
    let world = repository();
    world.acquire(&["--path", "src/*.rs", "--owner", "person:ann"]);
    write(&world, "src/a.rs", "1\n");
    write(&world, "src/new.rs", "1\n");
    write(&world, "other.rs", "1\n");
    world.run(["commit", "-m", "x", "--owner", "person:ann"]).code(0);
    assert_eq!(last(&world), ["M src/a.rs", "A src/new.rs"]);
    assert_eq!(holders(&world, "src/*.rs"), ["person:ann"], "only claims of agents end");
}

#[test]
fn the_first_commit_of_a_repository_works() {
    let world = repository();
    world.git_run(&["checkout", "-q", "--orphan", "fresh"]);
    world.git_run(&["rm", "-q", "--cached", "-r", "."]);
    let agent = Agent::new(&world, "1");
    agent.edit("src/a.rs", "one\n");
    agent.commit(&[]).code(0);
    assert_eq!(git(&world, &["rev-list", "--count", "HEAD"]), "1\n");
    assert_eq!(git(&world, &["ls-tree", "-r", "--name-only", "HEAD"]), "src/a.rs\n");
}

#[test]
fn the_hooks_of_the_repository_see_only_these_paths_and_may_add_to_them() {
    let world = repository();
    let (one, two) = (Agent::new(&world, "1"), Agent::new(&world, "2"));
    one.edit("src/a.rs", "one\n");
    two.edit("src/b.rs", "two\n");
    world.git_run(&["add", "src/b.rs"]);
    hook(
        &world,
        "pre-commit",
        "git diff --cached --name-only >seen; echo formatted >>src/a.rs; git add src/a.rs",
    );
    hook(&world, "commit-msg", "echo 'Trailer: yes' >>\"$1\"");
    one.commit(&[]).code(0);
    assert_eq!(std::fs::read_to_string(world.path("seen")).unwrap(), "src/a.rs\n");
    assert_eq!(git(&world, &["show", "HEAD:src/a.rs"]), "one\nformatted\n");
    assert!(git(&world, &["log", "-1", "--format=%B"]).contains("Trailer: yes"));
    assert_eq!(git(&world, &["status", "--porcelain"]), "M  src/b.rs\n?? seen\n");
}

/// A file that was changed again while git made the commit is uncommitted work.
#[test]
fn a_file_that_was_changed_meanwhile_stays_claimed() {
    let world = repository();
    let agent = Agent::new(&world, "1");
    agent.edit("src/a.rs", "one\n");
    agent.edit("src/b.rs", "one\n");
    hook(&world, "pre-commit", "echo later >>src/a.rs");
    agent.commit(&[]).code(0);
    assert_eq!(git(&world, &["status", "--porcelain"]), " M src/a.rs\n");
    assert_eq!(holders(&world, "src/a.rs"), [agent.owner()]);
    assert!(holders(&world, "src/b.rs").is_empty());
}

/// A file that was changed in the very moment in which git wrote the index looks unchanged. Git knows by the time of the index file.
#[test]
fn a_change_in_the_moment_of_the_last_git_command_is_committed() {
    let world = repository();
    world.git_run(&["config", "core.trustCTime", "false"]);
    let (file, index) = (world.path("src/a.rs"), world.path(".git/index"));
    let at = file.metadata().unwrap().modified().unwrap();
    let set_time = |path: &std::path::Path| {
        std::fs::File::options().write(true).open(path).unwrap().set_modified(at).unwrap();
    };
    std::fs::write(&file, "z\n").unwrap();
    set_time(&file);
    set_time(&index);
    world.run(["commit", "-m", "x", "src/a.rs"]).code(0);
    assert_eq!(git(&world, &["show", "HEAD:src/a.rs"]), "z\n");
}

#[test]
fn each_work_tree_commits_its_own_files() {
    let world = repository();
    let tree = world.beside("tree");
    world.git_run(&["worktree", "add", "-q", tree.to_str().unwrap(), "-b", "other"]);
    let main = Agent::new(&world, "main");
    let mut linked = Agent::new(&world, "linked");
    linked.cwd = tree;
    main.edit("src/a.rs", "main\n");
    linked.edit("src/a.rs", "linked\n");
    linked.commit(&[]).code(0);
    assert_eq!(git(&world, &["show", "other:src/a.rs"]), "linked\n");
    assert_eq!(git(&world, &["status", "--porcelain"]), " M src/a.rs\n");
    assert_eq!(holders(&world, "src/a.rs"), [main.owner()]);
    main.commit(&[]).code(0);
    assert_eq!(git(&world, &["show", "HEAD:src/a.rs"]), "main\n");
}

#[test]
fn a_sparse_checkout_loses_no_files() {
    let world = repository();
    write(&world, "docs/a.md", "a\n");
    world.git_run(&["add", "docs"]);
    world.git_run(&["commit", "-q", "-m", "docs"]);
    world.git_run(&["sparse-checkout", "set", "src"]);
    assert!(!world.path("docs").exists());
    let agent = Agent::new(&world, "1");
    agent.edit("src/a.rs", "one\n");
    agent.edit("outside/new.rs", "new\n");
    agent.commit(&[]).code(0);
    assert_eq!(last(&world), ["A outside/new.rs", "M src/a.rs"]);
    assert_eq!(git(&world, &["show", "HEAD:docs/a.md"]), "a\n");
    assert_eq!(git(&world, &["status", "--porcelain"]), "");
}

#[test]
fn a_submodule_is_committed_by_its_path_and_its_files_inside_of_it() {
    let world = repository();
    let library = world.beside("library");
    world.git_run(&["init", "-q", library.to_str().unwrap()]);
    world.git_run(&["-C", library.to_str().unwrap(), "commit", "-q", "--allow-empty", "-m", "l"]);
    world.git_run(&[
        "-c",
        "protocol.file.allow=always",
        "submodule",
        "--quiet",
        "add",
        library.to_str().unwrap(),
        "lib",
    ]);
    write(&world, "src/b.rs", "staged\n");
    world.git_run(&["add", "src/b.rs"]);
    world.run(["commit", "-m", "add the library", "lib", ".gitmodules"]).code(0);
    assert_eq!(last(&world), ["A .gitmodules", "A lib"]);
    write(&world, "lib/x", "x\n");
    world.run(["commit", "-m", "x", "lib"]).code(1).says("nothing to commit");
    let inside = Finished::of(world.lockkeeper(["commit", "-m", "x", "x"]).current_dir(world.path("lib")));
    inside.code(0);
    world.run(["commit", "-m", "newer", "lib"]).code(0);
    assert_eq!(last(&world), ["M lib"]);
    assert_eq!(git(&world, &["status", "--porcelain"]), "M  src/b.rs\n");
}

#[test]
fn signing_is_that_of_git() {
    let world = repository();
    let key = world.beside("key");
    let made = world.command("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key).status();
    assert!(made.unwrap().success(), "ssh-keygen makes a key");
    world.git_run(&["config", "gpg.format", "ssh"]);
    world.git_run(&["config", "user.signingKey", key.to_str().unwrap()]);
    world.git_run(&["config", "commit.gpgSign", "true"]);
    write(&world, "src/a.rs", "1\n");
    world.run(["commit", "-m", "x", "src/a.rs"]).code(0);
    assert!(git(&world, &["cat-file", "commit", "HEAD"]).contains("gpgsig -----BEGIN SSH SIGNATURE-----"));
}

/// An agent's claim is on a file. What others put into the folder that takes the file's place is not its work.
#[test]
fn a_claimed_file_that_became_a_folder_takes_only_claimed_files_along() {
    let world = repository();
    let agent = Agent::new(&world, "1");
    agent.delete("src/a.rs");
    agent.edit("src/a.rs/own", "own\n");
    write(&world, "src/a.rs/other", "of a person\n");
    agent.commit(&[]).code(0).says("committed 2 files, released 1 claim");
    assert_eq!(last(&world), ["D src/a.rs", "A src/a.rs/own"]);
    assert!(holders(&world, "src/a.rs").is_empty());
    assert_eq!(git(&world, &["status", "--porcelain"]), "?? src/a.rs/other\n");
    // A claim on a name that was free covers the folder that the agent makes there.
    agent.claim("made");
    write(&world, "made/one", "1\n");
    write(&world, "made/two", "2\n");
    agent.commit(&[]).code(0).says("committed 2 files, released 1 claim");
    assert_eq!(last(&world), ["A made/one", "A made/two"]);
}
