//! A hook of the tests: a shell script that records its inputs, and denies while a file exists.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use lockkeeper_testing::{files, processes};
use serde_json::Value;

use crate::stage::Stage;

/// How long a call of a hook may take: longer than anything takes on a loaded machine.
pub const LIMIT: Duration = Duration::from_secs(60);

/// The hook of one stage, configured for its harness.
pub struct TestHook {
    folder: PathBuf,
}

impl TestHook {
    /// The reason with which it denies.
    pub const REASON: &'static str = "a.txt is held by claude:other";

    /// Writes the script and the settings of the harness.
    pub fn set_up(stage: &Stage) -> Self {
        let hook = Self { folder: stage.world.beside("hook") };
        let (event, answer) = (stage.harness.before_tool(), stage.harness.deny(Self::REASON));
        let script = format!(
            r#"#!/bin/bash
cd '{folder}' || exit 0
input=$(cat)
printf '%s\n' "$input" >> inputs
case $input in *'"hook_event_name":"{event}"'*) ;; *) exit 0 ;; esac
# The agent is the nearest ancestor that is no shell.
agent=$PPID
while case $(cat "/proc/$agent/comm") in sh | bash | dash) true ;; *) false ;; esac; do
    agent=$(awk '{{ print $4 }}' "/proc/$agent/stat")
done
echo "$agent" > agent
[ -e deny ] && printf '%s' '{answer}'
exit 0
"#,
            folder = hook.folder.display()
        );
        let path = hook.folder.join("hook");
        files::write(&path, &script);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        stage.harness.set_up(&stage.world, path.to_str().expect("a path of a test is text"), LIMIT);
        hook
    }

    /// Denies every call of a tool from now on.
    pub fn deny(&self) {
        files::write(&self.folder.join("deny"), "");
    }

    /// The agent's process, as the hook saw it before a call of a tool.
    pub fn agent(&self) -> u32 {
        processes::pid_in(&self.folder.join("agent"))
    }

    /// Every input until now.
    pub fn inputs(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.folder.join("inputs")).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
    }
}
