//! The packages for Claude Code and Gemini CLI in `packages/`.

use std::path::Path;

use lockkeeper_agents::Harness;
use lockkeeper_agents::setup::package;
use lockkeeper_testing::files;

use crate::files::text;

/// The hooks and the server have one source. With `LOCKKEEPER_PACKAGES=write` the files are made again.
#[test]
fn packages_have_what_init_would_write() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packages");
    let mut count = 0;
    for harness in Harness::ALL {
        for (path, wanted) in package(harness).unwrap().unwrap_or_default() {
            let file = folder.join(harness.kind()).join(path);
            if std::env::var_os("LOCKKEEPER_PACKAGES").is_some_and(|what| what == "write") {
                files::write(&file, wanted.clone());
            }
            assert_eq!(text(&file), wanted, "{}: LOCKKEEPER_PACKAGES=write makes it again", file.display());
            count += 1;
        }
    }
    assert_eq!(count, 5);
}
