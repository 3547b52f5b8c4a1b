//! Work trees share one store. The same file in two of them is a merge to come: both agents are told.

use crate::agents::{Agent, holders, repository};

fn second_tree(world: &lockkeeper_testing::World) -> std::path::PathBuf {
    let tree = world.beside("tree");
    world.git_run(&["worktree", "add", "-q", tree.to_str().unwrap(), "-b", "other"]);
    tree
}

/// Invariant 1.
#[test]
fn the_same_file_in_two_work_trees_is_told_to_both_and_denied_to_nobody() {
    let world = repository();
    let main = Agent::claude(&world, "main");
    let mut linked = Agent::claude(&world, "linked");
    linked.cwd = second_tree(&world);
    main.edit("src/a.rs").passes();
    let answer = linked.edit("src/a.rs");
    assert!(answer.told().unwrap().contains("claude:main also changes src/a.rs"), "{answer:?}");
    let told = main.edit("src/b.rs");
    assert!(told.told().unwrap().contains("claude:linked also changes src/a.rs"), "{told:?}");
    assert_eq!(holders(&world, "src/a.rs").len(), 2);
    assert_eq!(linked.edit("src/a.rs").told(), None, "once is enough");
    let mut third = Agent::claude(&world, "third");
    third.cwd = linked.cwd.clone();
    assert!(third.edit("src/a.rs").is_denied().contains("claude:linked"));
    linked.event("Stop");
    assert_eq!(holders(&world, "src/a.rs"), ["claude:main", "claude:third"]);
}

#[test]
fn settings_deny_or_ignore_it() {
    for (setting, denied) in [("deny", true), ("ignore", false)] {
        let world = repository().set("LOCKKEEPER_AGENTS_WORKTREES", setting);
        let main = Agent::claude(&world, "main");
        let mut linked = Agent::claude(&world, "linked");
        linked.cwd = second_tree(&world);
        main.edit("src/a.rs").passes();
        let answer = linked.edit("src/a.rs");
        assert_eq!((answer.denied().is_some(), answer.told()), (denied, None), "{setting}");
    }
}

/// A lease by hand holds in all work trees, as before.
#[test]
fn a_lease_by_hand_holds_in_all_work_trees() {
    let world = repository();
    let mut linked = Agent::claude(&world, "linked");
    linked.cwd = second_tree(&world);
    world.acquire(&["--path", "src/a.rs", "--owner", "person:ann"]);
    linked.edit("src/a.rs").is_denied();
}
