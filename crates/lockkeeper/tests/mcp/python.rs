//! The official Python SDK as the client. It checks every result against the output schema of its tool.

use std::path::Path;

use lockkeeper_testing::{Finished, files};

use crate::peer::repository;

#[test]
fn the_python_sdk_uses_every_tool() {
    // `scripts/test` puts it beside what is built.
    let python = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../mcp/bin/python");
    assert!(
        files::is_there(&python),
        "this test needs the MCP SDK, which scripts/test installs: {}",
        python.display()
    );
    let world = repository();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mcp/peer.py");
    let mut command = world.command(python.to_str().unwrap());
    let program = env!("CARGO_BIN_EXE_lockkeeper");
    Finished::of(command.arg(script).arg(program).arg(world.cwd())).code(0).prints("every tool was used");
}
