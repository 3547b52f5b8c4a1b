//! Executions of a STAGES.yml whose groups run until a file is there.

use crate::{Finished, Signal, Started, World, files};

/// Two groups that share a file, and one without conflicts. Each runs until [`let_end`].
pub const GATED: &str = r#"
parallel_groups:
  P3:
    - {group_id: api, name: Backend, agents: [architect], conflict_paths: ["src/api/**", "package.json"]}
    - {group_id: web, agents: [designer], conflict_paths: ["src/web/**", "package.json"]}
    - {group_id: docs, agents: [writer], conflict_paths: ["docs/**"]}
conflict_detection:
  rules: [{name: config, severity: FATAL, action: mutex_lock, paths: ["package.json"]}]
"#;

/// The command of an agent. It also ends when the world is gone, so that a failed test leaves no process.
const UNTIL_LET_END: &str =
    "sh -c 'until test -e go-$LOCKKEEPER_GROUP || ! test -e STAGES.yml; do sleep 0.02; done'";

/// Lets a group of [`GATED`] end.
pub fn let_end(world: &World, group: &str) {
    world.touch(&format!("go-{group}"));
}

/// Executes a phase to its end, with agents that do nothing.
#[must_use]
pub fn execute(world: &World, stages: &str, phase: &str) -> Finished {
    files::write(&world.path("STAGES.yml"), stages);
    world.run(["stages", "run", "STAGES.yml", phase, "--load", "0", "--agent-command", "true {agent}"])
}

/// An execution of the phase of [`GATED`] in the background. Dropping it ends it and its agents.
pub struct Execution(Started);

impl Execution {
    /// Starts it.
    #[must_use]
    pub fn begin(world: &World) -> Self {
        files::write(&world.path("STAGES.yml"), GATED);
        let args = ["stages", "run", "STAGES.yml", "P3", "--load", "0", "--agent-command", UNTIL_LET_END];
        Self(world.start(args))
    }

    /// Waits for its end. Returns whether it succeeded.
    pub fn end(&mut self) -> bool {
        self.0.end().success()
    }

    /// Kills it. Its agents live on.
    pub fn kill(&mut self) {
        self.0.kill();
    }
}

impl Drop for Execution {
    fn drop(&mut self) {
        if !self.0.has_ended() {
            self.0.signal(Signal::TERM);
            self.0.end();
        }
    }
}
