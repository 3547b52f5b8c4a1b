//! `examples/two-agents`: two scripts that pretend to be agents.

use std::path::Path;

use lockkeeper_testing::{Finished, world};

/// The same two agents lose edits without lockkeeper, and none with it.
#[test]
fn two_agents_collide_without_lockkeeper_and_do_not_with_it() {
    let world = world!().set("LOCKKEEPER_AGENTS_LIMIT", "60s");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/two-agents/run");
    let printed = Finished::of(world.command(script).env("LOCKKEEPER", world.program())).code(0).stdout();
    let lines = |mode: &str| -> u32 {
        let line = printed.lines().find_map(|line| line.strip_prefix(mode)).expect("a line of each mode");
        line.strip_prefix(": 10 edits, ").unwrap().split(' ').next().unwrap().parse().unwrap()
    };
    assert!(lines("without lockkeeper") < 10, "{printed}");
    assert_eq!(lines("with lockkeeper"), 10, "{printed}");
    // Each commit has one line of one agent.
    assert_eq!(printed.matches(": line ").count(), 10, "{printed}");
}
