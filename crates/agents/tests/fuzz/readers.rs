//! Fuzz target: any bytes as a hook input, a patch and a command line. Nothing may panic.

use std::path::Path;

use lockkeeper_agents::{Harness, HookInput, Marks, Place, patch_paths, quoted, shell_writes, writes};

/// Reads the bytes in every way.
pub fn check(data: &[u8]) {
    let place = Place {
        cwd: Path::new("/repo"),
        home: Some(Path::new("/home/ann")),
        entry: &|_: &Path| None,
        names: &|_: &Path| Vec::new(),
        text: &|_: &Path| None,
    };
    if let Ok(input) = HookInput::read(data, &Marks::default()) {
        let owner = input.owner();
        assert!(Harness::ALL.iter().any(|harness| owner.as_str().starts_with(harness.kind())));
        input.tool.iter().for_each(|tool| drop(writes(tool, &place)));
    }
    let text = String::from_utf8_lossy(data);
    let _ = patch_paths(&text);
    assert!(!quoted(&text).contains(char::is_control));
    for target in shell_writes(&text, &place).paths {
        target.covers(Path::new("/repo/src/a.rs"));
    }
}
