//! A hook of the tests: a shell script that records its inputs, and denies while a file exists.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fs};

use lockkeeper_testing::{files, processes};
use serde_json::Value;

use crate::stage::Stage;

/// How long a call of a hook may take: longer than anything takes on a loaded machine.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Variables by which harnesses are told apart. They are recorded with each input.
const VARIABLES: [&str; 3] = ["CLAUDE_CODE_SESSION_ID", "COPILOT_CLI", "GEMINI_SESSION_ID"];

/// Writes a script for bash into a folder, and returns its path: a command line for the settings of a harness.
pub fn write_script(folder: &Path, text: &str) -> String {
    let path = folder.join("hook");
    files::write(&path, format!("#!/bin/bash\n{text}"));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.to_str().expect("a path of a test is text").to_owned()
}

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
            r#"cd '{folder}' || exit 0
input=$(cat)
environment=
for name in {variables}; do
    if [ -n "${{!name}}" ]; then environment+="${{environment:+,}}\"$name\":\"${{!name}}\""; fi
done
printf '{{"environment":{{%s}},"input":%s}}\n' "$environment" "$input" >> inputs
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
            folder = hook.folder.display(),
            variables = VARIABLES.join(" ")
        );
        stage.harness.set_up(&stage.world, &write_script(&hook.folder, &script), LIMIT);
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
        self.lines().into_iter().map(|mut line| line["input"].take()).collect()
    }

    /// Writes all inputs to a file of the folder that `LOCKKEEPER_HOOK_DATA` names: data for tests of the reader of inputs.
    pub fn record(&self, stage: &Stage, name: &str) {
        let Some(folder) = env::var_os("LOCKKEEPER_HOOK_DATA") else { return };
        let scratch = stage.world.beside("");
        let scratch = scratch.to_str().expect("a path of a test is text");
        // Some harnesses make names of folders out of paths.
        let dashed = scratch.replace(['/', '.'], "-");
        let lines = self.lines().into_iter().map(|line| line.to_string() + "\n").collect::<String>();
        let lines = lines.replace(scratch, "/scratch/").replace(&dashed, "-scratch-");
        let file = format!("{}-{name}.jsonl", stage.harness.label());
        files::write(&Path::new(&folder).join(file), &lines);
    }

    fn lines(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.folder.join("inputs")).unwrap_or_default();
        let line = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        text.lines().map(line).collect()
    }
}
