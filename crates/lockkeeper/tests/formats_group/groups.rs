//! A lock folder of its own for each test, and processes that hold a group lock.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use lockkeeper_testing::{Finished, Started, World, until, world};
use serde_json::Value;

/// The script of a holder: it says `held`, and ends with its input.
const HOLD: &str = "echo held; read line || :";

/// A world whose scripts find the program in `$LK` and the lock folder in `$LOCK_DIR`.
pub struct Groups {
    pub world: World,
}

impl Groups {
    pub fn new() -> Self {
        let world = world!().with_state();
        let program = world.program().to_owned();
        Self { world: world.set("LK", program) }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.world.path(name)
    }

    pub fn locks(&self) -> PathBuf {
        self.world.beside("groups")
    }

    pub fn lock_file(&self, group: &str) -> PathBuf {
        self.locks().join(format!("{group}.lock"))
    }

    /// The folder that is used when the lock folder cannot be.
    pub fn fallback(&self) -> PathBuf {
        self.world.home().join(".cache/ce_locks")
    }

    /// The command `group`, with arguments.
    pub fn group(&self, args: &[&str]) -> Command {
        self.world.lockkeeper([&["group"], args].concat())
    }

    pub fn run(&self, args: &[&str]) -> Finished {
        Finished::of(&mut self.group(args))
    }

    /// What `group` prints as JSON, whatever its exit code is.
    #[track_caller]
    pub fn json(&self, args: &[&str]) -> Value {
        self.run(&[&["--json"], args].concat()).json()
    }

    /// Starts `group` for each of these arguments at once, and asserts that all succeed.
    #[track_caller]
    pub fn run_at_once(&self, all: &[Vec<&str>]) {
        let started: Vec<Started> = all.iter().map(|args| Started::of(&mut self.group(args))).collect();
        for one in started {
            one.wait().code(0);
        }
    }

    /// Runs a bash script.
    pub fn sh(&self, script: &str) -> Finished {
        Finished::of(self.world.command("bash").args(["-c", script]))
    }

    /// Makes the folder with its registry, and appends lines to the registry.
    pub fn write_registry(&self, lines: &str) {
        self.run(&["path", "first"]).code(0);
        let mut file = std::fs::File::options().append(true).open(self.locks().join("registry.log")).unwrap();
        file.write_all(lines.as_bytes()).unwrap();
    }

    pub fn registry(&self) -> String {
        std::fs::read_to_string(self.locks().join("registry.log")).unwrap()
    }

    /// The status of each line of a group in the registry.
    pub fn statuses(&self, group: &str) -> Vec<String> {
        let registry = self.registry();
        let fields = registry.lines().map(|line| line.split(':').collect::<Vec<_>>());
        fields.filter(|fields| fields.get(2) == Some(&group)).map(|fields| fields[4].to_owned()).collect()
    }

    /// Whether flock(1) gets the lock at once.
    pub fn flock_is_free(&self, group: &str) -> bool {
        Finished::of(Command::new("flock").arg("-n").arg(self.lock_file(group)).arg("true")).succeeded()
    }

    /// Holds a group with `group exec` until [`Started::finish`].
    #[track_caller]
    pub fn hold(&self, group: &str) -> Started {
        let holder = held(&mut self.group(&["exec", group, "--", "sh", "-c", HOLD]));
        until("its command is registered", || {
            self.statuses(group).last().is_some_and(|last| last == "ACTIVE")
        });
        holder
    }

    /// Holds a group with flock(1) until [`Started::finish`].
    #[track_caller]
    pub fn hold_with_flock(&self, group: &str) -> Started {
        held(self.world.command("flock").arg(self.lock_file(group)).args(["sh", "-c", HOLD]))
    }

    /// Starts a command that has to wait for a group, and waits until it says so.
    #[track_caller]
    pub fn start_waiter(&self, group: &str, command: &[&str]) -> Started {
        let mut waiter = Started::of(&mut self.group(&[&["exec", group, "--"], command].concat()));
        assert_eq!(waiter.until_stderr("waiting for group"), "");
        waiter
    }
}

/// Starts a command that says `held` once it holds a lock.
#[track_caller]
pub fn held(command: &mut Command) -> Started {
    let mut started = Started::of(command);
    assert_eq!(started.line(), "held");
    started
}

/// The time as the registry writes it.
pub fn now() -> i64 {
    lockkeeper_platform::wall_clock::epoch_seconds()
}

/// Sets the permission bits of a file or folder.
pub fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
}
