//! When no commit is made: nothing changes, and the message says what to do.

use lockkeeper_testing::Finished;

use crate::repository::{Agent, git, holders, hook, repository, staged, with_git, write};

#[test]
fn a_hook_that_refuses_leaves_nothing_behind() {
    let world = repository();
    let (one, two) = (Agent::new(&world, "1"), Agent::new(&world, "2"));
    one.edit("src/a.rs", "one\n");
    one.edit("new.rs", "one\n");
    two.edit("src/b.rs", "two\n");
    world.git_run(&["add", "src/b.rs"]);
    let before =
        (staged(&world), git(&world, &["status", "--porcelain"]), git(&world, &["rev-parse", "HEAD"]));
    for event in ["pre-commit", "commit-msg"] {
        hook(&world, event, "echo 'the linter says no'; exit 1");
        one.commit(&[]).code(1).says("the linter says no").says("nothing was changed");
        let now =
            (staged(&world), git(&world, &["status", "--porcelain"]), git(&world, &["rev-parse", "HEAD"]));
        assert_eq!(now, before, "{event}");
        std::fs::remove_file(world.path(&format!(".git/hooks/{event}"))).unwrap();
    }
    assert_eq!(holders(&world, "src/a.rs"), [one.owner()]);
    let all = ["--json", "commit", "-m", "x"];
    hook(&world, "pre-commit", "echo 'the linter says no'; exit 1");
    let report = Finished::of(&mut one.command(world.program(), &all)).code(1).json();
    assert_eq!(report["error"]["reason_code"], "COMMIT_REFUSED");
    assert_eq!(report["error"]["context"]["output"], "the linter says no\n");
}

/// A hook that commits itself stands for somebody who commits at the same time.
#[test]
fn nothing_is_committed_if_head_has_moved_meanwhile() {
    let world = repository();
    let agent = Agent::new(&world, "1");
    agent.edit("src/a.rs", "one\n");
    write(&world, "src/b.rs", "two\n");
    hook(
        &world,
        "pre-commit",
        "[ -z \"$INNER\" ] || exit 0; unset GIT_INDEX_FILE; INNER=1 git commit -q -m other src/b.rs",
    );
    agent.commit(&[]).code(75).says("HEAD has moved").says("commit again");
    assert_eq!(git(&world, &["log", "-1", "--format=%s"]), "other\n");
    assert_eq!(git(&world, &["status", "--porcelain"]), " M src/a.rs\n");
    std::fs::remove_file(world.path(".git/hooks/pre-commit")).unwrap();
    agent.commit(&[]).code(0);
    assert_eq!(git(&world, &["show", "HEAD:src/b.rs"]), "two\n", "the other commit is not reverted");
}

/// Somebody commits between the last look at HEAD and the start of `git commit`, which then succeeds and would revert that commit.
#[test]
fn a_commit_on_top_of_another_head_is_taken_back() {
    let once = "[ \"$1\" != commit ] || [ -e .git/once ] || { touch .git/once; \
        (unset GIT_INDEX_FILE; \"$git\" commit -q -m other src/b.rs); }";
    let world = with_git(repository(), once);
    world.touch(".git/once");
    let agent = Agent::new(&world, "1");
    agent.edit("src/a.rs", "one\n");
    write(&world, "src/b.rs", "two\n");
    std::fs::remove_file(world.path(".git/once")).unwrap();
    agent.commit(&[]).code(75).says("HEAD has moved");
    assert_eq!(git(&world, &["log", "-1", "--format=%s"]), "other\n");
    assert_eq!(git(&world, &["status", "--porcelain"]), " M src/a.rs\n");
    assert_eq!(holders(&world, "src/a.rs"), [agent.owner()]);
    agent.commit(&[]).code(0);
    assert_eq!(git(&world, &["show", "HEAD:src/b.rs"]), "two\n");
}

/// A hook after the commit that commits itself stands for somebody who commits at once on top of it.
#[test]
fn a_commit_of_others_on_top_of_it_stays() {
    let world = repository();
    let agent = Agent::new(&world, "1");
    agent.edit("src/a.rs", "one\n");
    agent.edit("src/c.rs", "one\n");
    write(&world, "src/b.rs", "two\n");
    let script = "[ -z \"$INNER\" ] || exit 0; unset GIT_INDEX_FILE; echo later >src/c.rs; \
        INNER=1 git commit -q -m other src/b.rs src/c.rs";
    hook(&world, "post-commit", script);
    agent.commit(&[]).code(0);
    assert_eq!(git(&world, &["log", "-2", "--format=%s"]), "other\nwork\n");
    assert_eq!(git(&world, &["show", "HEAD:src/c.rs"]), "later\n");
    assert_eq!(git(&world, &["status", "--porcelain"]), "");
}

#[test]
fn a_merge_a_rebase_and_a_cherry_pick_have_to_be_ended_first() {
    let world = repository();
    world.git_run(&["branch", "base"]);
    write(&world, "src/a.rs", "main\n");
    world.git_run(&["commit", "-q", "-a", "-m", "main"]);
    world.git_run(&["checkout", "-q", "-b", "side", "base"]);
    write(&world, "src/a.rs", "side\n");
    world.git_run(&["commit", "-q", "-a", "-m", "side"]);
    for (start, way_out) in [
        (&["merge", "-"][..], "git merge --abort"),
        (&["cherry-pick", "-"][..], "git cherry-pick --abort"),
        (&["rebase", "-"][..], "git rebase --abort"),
        (&["revert", "--no-edit", "-"][..], "git revert --abort"),
    ] {
        let started = Finished::of(world.command("git").args(start));
        assert!(!started.succeeded(), "{start:?} stops at a conflict: {started:?}");
        write(&world, "src/b.rs", "b2\n");
        let before = git(&world, &["status", "--porcelain=v2"]);
        world.run(["commit", "-m", "x", "src/b.rs"]).code(75).says("under way").says(way_out);
        assert_eq!(git(&world, &["status", "--porcelain=v2"]), before);
        world.git_run(&["checkout", "-q", "--", "src/b.rs"]);
        world.git_run(&way_out.split(' ').skip(1).collect::<Vec<_>>());
    }
}

/// After `git stash pop` there are conflicts without an operation under way.
#[test]
fn a_file_with_conflicts_is_refused() {
    let world = repository();
    write(&world, "src/a.rs", "stashed\n");
    world.git_run(&["stash", "-q"]);
    write(&world, "src/a.rs", "main\n");
    world.git_run(&["commit", "-q", "-a", "-m", "main"]);
    assert!(!Finished::of(world.command("git").args(["stash", "pop"])).succeeded());
    write(&world, "src/b.rs", "b2\n");
    world.run(["commit", "-m", "x", "src"]).code(75).says("src/a.rs has conflicts");
    world.run(["commit", "-m", "x", "src/b.rs"]).code(0);
    assert_eq!(git(&world, &["status", "--porcelain"]), "UU src/a.rs\n");
}

#[test]
fn an_empty_result_makes_no_commit() {
    let world = repository();
    let head = git(&world, &["rev-parse", "HEAD"]);
    let agent = Agent::new(&world, "1");
    agent.event("SessionStart", None);
    agent.commit(&[]).code(1).says("has no claims on files");
    agent.claim("src/a.rs");
    agent.claim("never written.rs");
    agent.commit(&[]).code(1).says("as committed");
    agent.commit(&["src/b.rs"]).code(1).says("as committed");
    // Staged, and taken back in the work tree.
    write(&world, "src/b.rs", "x\n");
    world.git_run(&["add", "src/b.rs"]);
    write(&world, "src/b.rs", "b\n");
    agent.commit(&["src/b.rs"]).code(1).says("in the work tree these paths are as committed");
    assert_eq!(git(&world, &["rev-parse", "HEAD"]), head);
    assert_eq!(git(&world, &["status", "--porcelain"]), "MM src/b.rs\n");
}

#[test]
fn an_agent_is_refused_paths_of_others_and_a_person_is_warned() {
    let world = repository();
    let (one, two) = (Agent::new(&world, "1"), Agent::new(&world, "2"));
    one.edit("src/a.rs", "one\n");
    two.edit("src/b.rs", "two\n");
    let refused = one.commit(&["src"]).code(75);
    refused.says("src/b.rs (claude:2)").says("nothing was changed");
    assert_eq!(git(&world, &["status", "--porcelain"]), " M src/a.rs\n M src/b.rs\n");
    world.run(["commit", "-m", "by a person", "src"]).code(0).says("warning: others work on these paths");
    assert_eq!(holders(&world, "src/b.rs"), [two.owner()]);
}

#[test]
fn bad_input_is_refused_with_a_way_out() {
    let world = repository();
    world.run(["commit", "-m", " ", "src"]).code(2).says("message is empty");
    world.run(["commit", "src"]).code(2).says("--message");
    world.run(["commit", "-m", "x", "/etc/hosts"]).code(2).says("is not a path of");
    world.run(["commit", "-m", "x", "no such file"]).code(1).says("nothing to commit");
    world.run(["commit", "-m", "x", "--owner", "nobody", "src"]).code(2);
    let outside = lockkeeper_testing::world!();
    outside.run(["commit", "-m", "x", "y"]).code(1).says("inside of the work tree");
}
