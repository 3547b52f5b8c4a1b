//! A repository of its own for each test, with its own lock folders, and what the doctor says of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::env::{Env, PROGRAM};

/// A number that no process has.
pub const GONE: u32 = 4_194_304;
/// A record of long ago.
pub const LONG_AGO: &str = "2026-01-31T12:00:00.000Z";

/// A git repository whose lock folders are nobody else's.
pub struct Clinic {
    pub env: Env,
}

impl Clinic {
    pub fn new() -> Self {
        Self::of(Env::new().git())
    }

    /// The same in a folder that is not a repository.
    pub fn without_git() -> Self {
        Self::of(Env::new())
    }

    fn of(env: Env) -> Self {
        let above = env.home().parent().unwrap().to_owned();
        let folder = |name: &str| above.join(name).to_str().unwrap().to_owned();
        Self { env: env.set("LOCK_DIR", folder("groups")).set("AI_SWARM_DIR", folder("swarm")) }
    }

    pub fn root(&self) -> &Path {
        self.env.cwd()
    }

    pub fn state(&self) -> PathBuf {
        self.root().join(".git/lockkeeper")
    }

    pub fn groups(&self) -> PathBuf {
        self.env.home().with_file_name("groups")
    }

    pub fn tasks(&self) -> PathBuf {
        self.env.home().with_file_name("swarm/locks")
    }

    pub fn requests(&self) -> PathBuf {
        self.root().join(".aiflow/locks")
    }

    /// Writes a file, and makes its folder.
    pub fn write(&self, path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Makes the store by taking a lease and giving it back.
    pub fn with_store(self) -> Self {
        let _ = self.env.run(["exec", "first", "--", "true"]).code(0);
        self
    }

    pub fn quick(&self) -> Diagnosis {
        self.doctor(&[])
    }

    pub fn full(&self) -> Diagnosis {
        self.doctor(&["--full"])
    }

    pub fn doctor(&self, args: &[&str]) -> Diagnosis {
        let mut command = self.env.command(PROGRAM);
        Diagnosis::of(command.args(["doctor", "--json"]).args(args))
    }

    /// The doctor under another program, such as strace.
    pub fn under(&self, wrapper: &[&str], args: &[&str]) -> Diagnosis {
        let mut command = self.env.command(wrapper[0]);
        command.args(&wrapper[1..]).arg(PROGRAM).args(["doctor", "--json"]).args(args);
        Diagnosis::of(&mut command)
    }

    /// Runs a line of shell in a mount namespace of its own, in which `doctor` is the doctor. It says its diagnosis last.
    pub fn in_own_mounts(&self, line: &str) -> Option<Diagnosis> {
        let possible = Command::new("unshare").args(["-m", "mount", "-t", "tmpfs", "none", "/mnt"]).output();
        if !possible.expect("these tests need unshare(1)").status.success() {
            eprintln!("SKIPPED: mounting needs root (or CAP_SYS_ADMIN); nothing was checked");
            return None;
        }
        let line = format!("set -e; doctor() {{ '{PROGRAM}' doctor --json \"$@\"; }}; {line}");
        Some(Diagnosis::of(self.env.command("unshare").args(["-m", "bash", "-c", &line])))
    }
}

/// What the doctor said.
#[derive(Debug)]
pub struct Diagnosis {
    pub value: Value,
    pub code: Option<i32>,
}

impl Diagnosis {
    pub fn of(command: &mut Command) -> Self {
        let output: Output = command.output().unwrap();
        let text = String::from_utf8(output.stdout.clone()).unwrap();
        let value =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {command:?}: {output:?}"));
        let diagnosis = Self { value, code: output.status.code() };
        let failed = diagnosis.value["summary"]["status"] == "FAIL";
        assert_eq!(diagnosis.code, Some(i32::from(failed)), "{command:?}: {output:?}");
        diagnosis
    }

    pub fn check(&self, id: &str) -> &Value {
        let checks = self.value["checks"].as_array().unwrap();
        checks.iter().find(|check| check["id"] == id).unwrap_or_else(|| panic!("no {id}: {}", self.value))
    }

    pub fn text(&self, id: &str, key: &str) -> &str {
        self.check(id)[key].as_str().unwrap_or_default()
    }

    /// The check ended so, and says this.
    #[track_caller]
    pub fn says(&self, id: &str, status: &str, detail: &str) -> &Self {
        let check = self.check(id);
        assert_eq!(check["status"], status, "{check}");
        assert!(self.text(id, "detail").contains(detail), "no {detail:?}: {check}");
        // Whatever is not well comes with a way out, and nothing else does.
        assert_eq!(check["fix"].is_string(), status != "PASS", "{check}");
        self
    }

    #[track_caller]
    pub fn fix(&self, id: &str, text: &str) -> &Self {
        assert!(self.text(id, "fix").contains(text), "no {text:?}: {}", self.check(id));
        self
    }

    /// Every check that did not pass.
    pub fn troubles(&self) -> Vec<&str> {
        let checks = self.value["checks"].as_array().unwrap().iter();
        checks.filter(|check| check["status"] != "PASS").map(|check| check["id"].as_str().unwrap()).collect()
    }

    /// What a check put away, each under the code for it.
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
