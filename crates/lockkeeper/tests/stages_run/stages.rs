//! A folder with a STAGES.yml, and executions of its phases.

use std::path::PathBuf;

use lockkeeper_testing::{Finished, Started, World, processes, until, world};
use serde_json::Value;

/// The command of an agent that writes to `record` when it begins and when it ends.
pub(crate) const RECORDED: &str = r#"echo "begin $LOCKKEEPER_GROUP $LOCKKEEPER_AGENT" >> record; sleep 0.05; echo "end $LOCKKEEPER_GROUP $LOCKKEEPER_AGENT" >> record"#;

/// The command of a lease holder from outside: it holds until the file `go` is there.
const HOLD_UNTIL_GO: [&str; 4] = ["--", "sh", "-c", "touch held; until test -e go; do sleep 0.01; done"];

pub(crate) struct Stages {
    pub(crate) world: World,
}

impl Stages {
    /// A folder with this STAGES.yml.
    pub(crate) fn new(text: &str) -> Self {
        let world = world!().with_state().set("LOCKKEEPER_GRACE", "2s").write("STAGES.yml", text);
        let program = world.program().to_owned();
        Self { world: world.set("BIN", program) }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.world.path(name)
    }

    /// Executes a phase to its end, on a machine without other load.
    pub(crate) fn run(&self, phase: &str, more: &[&str]) -> Finished {
        Finished::of(self.world.lockkeeper(arguments(phase)).args(more))
    }

    /// Starts to execute a phase.
    pub(crate) fn start(&self, phase: &str, more: &[&str]) -> Started {
        Started::of(self.world.lockkeeper(arguments(phase)).args(more))
    }

    /// Holds a lease from outside until the file `go` is there.
    pub(crate) fn hold_until_go(&self, wanted: &[&str]) -> Started {
        let holder = self.world.start([&["exec"], wanted, &HOLD_UNTIL_GO].concat());
        self.until_there("held");
        holder
    }

    /// The lines that agents wrote to `record`.
    pub(crate) fn record(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.path("record")).unwrap_or_default();
        text.lines().map(ToOwned::to_owned).collect()
    }

    /// The lines of a log.
    pub(crate) fn log(&self, name: &str) -> Vec<Value> {
        let text = std::fs::read_to_string(self.path("logs").join(name)).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The lines with this status in the log of executions.
    pub(crate) fn logged(&self, status: &str) -> Vec<Value> {
        self.log("parallel_execution.log").into_iter().filter(|line| line["status"] == status).collect()
    }

    /// Asserts that nobody holds a lease, and that no process of an agent is left.
    #[track_caller]
    pub(crate) fn assert_settled(&self) {
        let listing = self.world.json(&["locks"]);
        assert_eq!(listing["leases"].as_array().map(Vec::len), Some(0), "{listing}");
        assert_eq!(self.processes(), [0; 0], "processes are left");
    }

    /// The processes of agents.
    pub(crate) fn processes(&self) -> Vec<u32> {
        processes::of_runs(&self.path("state"))
    }

    #[track_caller]
    pub(crate) fn until_there(&self, name: &str) {
        until(&format!("the file {name}"), || self.path(name).exists());
    }
}

fn arguments(phase: &str) -> [&str; 7] {
    ["--json", "stages", "run", "STAGES.yml", phase, "--load", "0"]
}
