//! Executions of a STAGES.yml in the folder of a server.

use std::fs;
use std::process::{Child, Command, Output, Stdio};

use rustix::process::Pid;

use super::server::Server;

/// Two groups that share a file, and one that has nothing to do with them; each waits for a file of its name.
pub const GATED: &str = r#"
parallel_groups:
  P3:
    - {group_id: api, name: Backend, agents: [architect], conflict_paths: ["src/api/**", "package.json"]}
    - {group_id: web, agents: [designer], conflict_paths: ["src/web/**", "package.json"]}
    - {group_id: docs, agents: [writer], conflict_paths: ["docs/**"]}
conflict_detection:
  rules: [{name: config, severity: FATAL, action: mutex_lock, paths: ["package.json"]}]
"#;
/// It ends with the folder, too, whatever becomes of the test.
const UNTIL_THERE: &str =
    "sh -c 'until test -e go-$LOCKKEEPER_GROUP || ! test -e STAGES.yml; do sleep 0.02; done'";

/// An execution that runs; ended with its agents when dropped.
pub struct Conducted(Child);

/// A command of the program in the server's folder and store.
pub fn lockkeeper(server: &Server, args: &[&str]) -> Command {
    let folder = server.folder();
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockkeeper"));
    command.args(args).current_dir(folder).env_clear();
    command.env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", folder);
    command.env("LOCKKEEPER_DIR", folder.join("state")).env("AI_SWARM_DIR", folder.join("swarm"));
    command.env("LOCK_DIR", folder.join("locks")).stdin(Stdio::null());
    command
}

/// What the program says in JSON.
pub fn told(server: &Server, args: &[&str]) -> serde_json::Value {
    let Output { status, stdout, stderr } = lockkeeper(server, args).arg("--json").output().unwrap();
    assert!(status.success(), "{args:?}: {}", String::from_utf8_lossy(&stderr));
    serde_json::from_slice(&stdout).unwrap()
}

/// Lets a group end.
pub fn let_end(server: &Server, group: &str) {
    fs::write(server.folder().join(format!("go-{group}")), "").unwrap();
}

/// Executes a phase to its end.
pub fn execute(server: &Server, stages: &str, phase: &str) -> Output {
    fs::write(server.folder().join("STAGES.yml"), stages).unwrap();
    let args = ["stages", "run", "STAGES.yml", phase, "--load", "0", "--agent-command", "true {agent}"];
    lockkeeper(server, &args).output().unwrap()
}

impl Conducted {
    /// Begins with the phase of [`GATED`].
    pub fn begin(server: &Server) -> Self {
        fs::write(server.folder().join("STAGES.yml"), GATED).unwrap();
        let args = ["stages", "run", "STAGES.yml", "P3", "--load", "0", "--agent-command", UNTIL_THERE];
        let mut command = lockkeeper(server, &args);
        Self(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    /// Waits for its end; says whether it succeeded.
    pub fn end(&mut self) -> bool {
        self.0.wait().unwrap().success()
    }

    /// Ends it as nobody expects.
    pub fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Conducted {
    fn drop(&mut self) {
        if self.0.try_wait().is_ok_and(|ended| ended.is_none()) {
            let _ = rustix::process::kill_process(Pid::from_child(&self.0), rustix::process::Signal::TERM);
            let _ = self.0.wait();
        }
    }
}
