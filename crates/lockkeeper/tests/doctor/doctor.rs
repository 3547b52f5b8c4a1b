//! A repository of its own for each test, and the doctor's diagnosis of it.

use std::path::{Path, PathBuf};
use std::process::Command;

use lockkeeper_testing::{Finished, World, files, processes, skip, world};
use serde_json::Value;

/// A number that no process has.
pub const GONE: u32 = processes::NEVER_A_PID;
/// The time of an old record.
pub const LONG_AGO: &str = "2026-01-31T12:00:00.000Z";

/// A world, and the doctor in it.
pub struct Doctor {
    pub world: World,
}

impl Doctor {
    /// The doctor in a git repository.
    pub fn new() -> Self {
        Self { world: world!().git() }
    }

    /// The doctor in a folder that is not a repository.
    pub fn without_git() -> Self {
        Self { world: world!() }
    }

    pub fn root(&self) -> &Path {
        self.world.cwd()
    }

    /// The state folder of a repository.
    pub fn state(&self) -> PathBuf {
        self.root().join(".git/lockkeeper")
    }

    /// The folder of group locks.
    pub fn groups(&self) -> PathBuf {
        self.world.beside("groups")
    }

    /// The folder of task locks.
    pub fn tasks(&self) -> PathBuf {
        self.world.beside("swarm/locks")
    }

    /// The folder of request locks.
    pub fn requests(&self) -> PathBuf {
        self.root().join(".aiflow/locks")
    }

    /// Writes a file, and makes its folder.
    pub fn write(&self, path: &Path, text: &str) {
        files::write(path, text);
    }

    /// Makes the store: takes a lease and releases it.
    pub fn with_store(self) -> Self {
        self.world.run(["exec", "first", "--", "true"]).code(0);
        self
    }

    /// The quick pass.
    pub fn quick(&self) -> Diagnosis {
        self.examine(&[])
    }

    /// The full pass, which also recovers.
    pub fn full(&self) -> Diagnosis {
        self.examine(&["--full"])
    }

    /// `doctor` with more arguments.
    pub fn examine(&self, args: &[&str]) -> Diagnosis {
        Diagnosis::of(self.world.lockkeeper(["doctor", "--json"]).args(args))
    }

    /// `doctor`, started by another program such as strace.
    pub fn under(&self, wrapper: &[&str], args: &[&str]) -> Diagnosis {
        Diagnosis::of(self.world.lockkeeper_under(wrapper, &["doctor", "--json"]).args(args))
    }

    /// Runs a line of bash in a mount namespace of its own. `doctor` in that line is the doctor; it comes last.
    pub fn in_own_mounts(&self, line: &str) -> Option<Diagnosis> {
        let probe = ["-m", "mount", "-t", "tmpfs", "none", "/mnt"];
        if !Finished::of(Command::new("unshare").args(probe)).succeeded() {
            skip("the right to mount: root or CAP_SYS_ADMIN");
            return None;
        }
        let doctor = format!("set -e; doctor() {{ '{}' doctor --json \"$@\"; }}", self.world.program());
        let line = format!("{doctor}; {line}");
        Some(Diagnosis::of(self.world.command("unshare").args(["-m", "bash", "-c", &line])))
    }
}

/// The doctor's answer.
#[derive(Debug)]
pub struct Diagnosis {
    pub value: Value,
    pub code: Option<i32>,
}

impl Diagnosis {
    /// Runs the doctor. Asserts that it exits with 1 when a check fails, and with 0 otherwise.
    #[track_caller]
    pub fn of(command: &mut Command) -> Self {
        let finished = Finished::of(command);
        let diagnosis = Self { value: finished.json(), code: finished.exit_code() };
        let failed = diagnosis.value["summary"]["status"] == "FAIL";
        finished.code(i32::from(failed));
        diagnosis
    }

    pub fn check(&self, id: &str) -> &Value {
        let checks = self.value["checks"].as_array().unwrap();
        checks.iter().find(|check| check["id"] == id).unwrap_or_else(|| panic!("no {id}: {}", self.value))
    }

    pub fn text(&self, id: &str, key: &str) -> &str {
        self.check(id)[key].as_str().unwrap_or_default()
    }

    /// Asserts the status of a check, and that its detail contains a text.
    #[track_caller]
    pub fn says(&self, id: &str, status: &str, detail: &str) -> &Self {
        let check = self.check(id);
        assert_eq!(check["status"], status, "{check}");
        assert!(self.text(id, "detail").contains(detail), "no {detail:?}: {check}");
        // A check has a fix exactly when it did not pass.
        assert_eq!(check["fix"].is_string(), status != "PASS", "{check}");
        self
    }

    /// Asserts that the fix of a check contains a text.
    #[track_caller]
    pub fn fix(&self, id: &str, text: &str) -> &Self {
        assert!(self.text(id, "fix").contains(text), "no {text:?}: {}", self.check(id));
        self
    }

    /// The checks that did not pass.
    pub fn troubles(&self) -> Vec<&str> {
        let checks = self.value["checks"].as_array().unwrap().iter();
        checks.filter(|check| check["status"] != "PASS").map(|check| check["id"].as_str().unwrap()).collect()
    }

    /// What a check recovered. Asserts the reason code of each.
    pub fn recovered(&self, id: &str) -> Vec<&str> {
        let recovered = self.check(id)["recovered"].as_array().unwrap();
        let code = if id == "runs" { "LOST" } else { "LOCK_STALE_RECOVERED" };
        assert!(recovered.iter().all(|one| one["reason_code"] == code), "{recovered:?}");
        recovered.iter().map(|one| one["what"].as_str().unwrap()).collect()
    }

    pub fn alerts(&self) -> Vec<&str> {
        let alerts = self.value["alerts"].as_array().unwrap();
        alerts.iter().map(|alert| alert["code"].as_str().unwrap()).collect()
    }
}
