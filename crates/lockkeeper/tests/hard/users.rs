//! Several users in one state folder: root beside its owner, and the members of a group.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use lockkeeper_testing::{Signal, Started, is_root, processes, skip, until};

pub(crate) const GROUP: u32 = 65_530;

/// A folder that other users may enter, with a copy of the program: they may not reach the folder of the build.
pub(crate) struct Place {
    temp: tempfile::TempDir,
}

impl Place {
    pub(crate) fn new(owner: u32) -> Self {
        let temp = tempfile::tempdir().unwrap();
        fs::copy(env!("CARGO_BIN_EXE_lockkeeper"), temp.path().join("lockkeeper")).unwrap();
        fs::set_permissions(temp.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let place = Self { temp };
        fs::create_dir(place.work()).unwrap();
        chown(place.work(), Some(owner), Some(GROUP)).unwrap();
        place
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.temp.path().join("work")
    }

    /// A program as this user.
    pub(crate) fn program(&self, user: u32, program: &Path) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", &user.to_string(), "--regid", &GROUP.to_string(), "--clear-groups"]);
        command
            .arg(program)
            .current_dir(self.work())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap());
        command
    }

    pub(crate) fn lockkeeper(&self, user: u32, args: &[&str]) -> Command {
        let mut command = self.program(user, &self.temp.path().join("lockkeeper"));
        command.args(args);
        command
    }

    /// Stops a worker, but not while it writes: nobody else could write before it goes on.
    pub(crate) fn freeze(&self, worker: &Started) {
        let state = self.work().join(".git/lockkeeper");
        // A file that does not exist is not locked.
        let is_free =
            |name: &str| !fs::File::open(state.join(name)).is_ok_and(|file| file.try_lock().is_err());
        loop {
            worker.signal(Signal::STOP);
            until("it is stopped", || processes::is_stopped(worker.pid()));
            if is_free("gate") && is_free("runs.gate") {
                return;
            }
            worker.signal(Signal::CONT);
        }
    }

    /// One holds, the other waits for it: both write every file of the store, and each wakes the other.
    fn take_turns(&self, first: u32, second: u32) {
        for (holder, waiter) in [(first, second), (second, first)] {
            let holding = ["exec", "db", "--", "sh", "-c", "echo held; read line"];
            let mut held = Started::of(&mut self.lockkeeper(holder, &holding));
            assert_eq!(held.line(), "held", "user {holder}");
            let waits = Started::of(&mut self.lockkeeper(waiter, &["exec", "db", "--quiet", "--", "true"]));
            until("the other waits", || {
                let listing = self.lockkeeper(holder, &["locks", "--json"]).output().unwrap();
                String::from_utf8(listing.stdout).unwrap().contains("\"position\"")
            });
            held.send("\n");
            held.wait().code(0);
            waits.wait().code(0);
        }
    }
}

/// Everything below a folder.
pub(crate) fn below(folder: &Path) -> Vec<PathBuf> {
    let mut found = vec![folder.to_owned()];
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        found.extend(if path.is_dir() { below(&path) } else { vec![path] });
    }
    found
}

/// `sudo lockkeeper`, or a container whose root is root.
#[test]
fn root_does_not_lock_the_owner_of_the_folder_out() {
    if !is_root() {
        return skip("root, to become another user");
    }
    let owner = 65_531;
    let place = Place::new(owner);
    place.take_turns(0, owner);
    let queued = place.lockkeeper(0, &["submit", "--", "true"]).output().unwrap();
    assert!(queued.status.success(), "{queued:?}");
    assert!(place.lockkeeper(owner, &["work", "--drain"]).output().unwrap().status.success());
    fs::remove_file(place.work().join(".lockkeeper/status.log")).unwrap();
    place.lockkeeper(0, &["submit", "--", "echo", "x"]).output().unwrap();
    assert!(place.lockkeeper(0, &["work", "--drain"]).output().unwrap().status.success());
    for path in below(&place.work()) {
        let facts = path.symlink_metadata().unwrap();
        assert_eq!((facts.uid(), facts.gid()), (owner, GROUP), "{}", path.display());
    }
    let doctor = place.lockkeeper(owner, &["doctor", "--json"]).output().unwrap();
    assert!(doctor.status.success(), "{doctor:?}");
}

#[test]
fn a_shared_repository_is_used_by_its_group() {
    if !is_root() {
        return skip("root, to become other users");
    }
    let (one, two) = (65_531, 65_532);
    let place = Place::new(one);
    fs::set_permissions(place.work(), fs::Permissions::from_mode(0o2775)).unwrap();
    let mut git = place.program(one, Path::new("git"));
    assert!(git.args(["init", "--quiet", "--shared=group"]).output().unwrap().status.success());
    place.take_turns(one, two);
    let state = place.work().join(".git/lockkeeper");
    for path in below(&state) {
        let facts = path.symlink_metadata().unwrap();
        let wanted = if facts.is_dir() { 0o2770 } else { 0o660 };
        assert_eq!((facts.gid(), facts.mode() & 0o7777), (GROUP, wanted), "{}", path.display());
    }
    let doctor = place.lockkeeper(two, &["doctor", "--json"]).output().unwrap();
    let text = String::from_utf8(doctor.stdout).unwrap();
    assert!(text.contains("shared by group 65530"), "{text}");
}

/// What an earlier version, or a container that does not know the owner, has left.
#[test]
fn files_of_another_user_are_told_with_the_way_out() {
    if !is_root() {
        return skip("root, to become another user");
    }
    let owner = 65_531;
    let place = Place::new(owner);
    assert!(place.lockkeeper(owner, &["exec", "db", "--", "true"]).output().unwrap().status.success());
    let state = place.work().join(".lockkeeper");
    chown(state.join("tokens"), Some(0), Some(0)).unwrap();
    let refused = place.lockkeeper(owner, &["exec", "db", "--", "true"]).output().unwrap();
    let text = String::from_utf8(refused.stderr).unwrap();
    assert!(text.contains("made by user 0 (root, or the root of a container)"), "{text}");
    assert!(text.contains("chown -R 65531 "), "{text}");
    let doctor = place.lockkeeper(0, &["doctor", "--json"]).output().unwrap();
    let text = String::from_utf8(doctor.stdout).unwrap();
    assert!(text.contains(&format!("chown -R 65531:{GROUP} ")), "{text}");
    assert!(text.contains(&format!("{}/tokens", state.display())), "{text}");
}

/// A process that reads the token of root's server can run commands as root.
#[test]
fn the_server_of_root_has_a_token_of_its_own_and_the_owner_can_start_one_too() {
    if !is_root() {
        return skip("root, to become another user");
    }
    let owner = 65_531;
    let place = Place::new(owner);
    let state = place.work().join(".lockkeeper");
    for (user, file) in [(0, "server-0.token"), (owner, "server.token")] {
        let mut serve = place.lockkeeper(user, &["serve", "--listen", "127.0.0.1:0", "--json"]);
        let mut server = Started::of(serve.env("HOME", place.work()));
        let said = server.line();
        assert!(said.contains(&format!("/{file}\"")), "{said}");
        let facts = state.join(file).metadata().unwrap();
        assert_eq!((facts.uid(), facts.mode() & 0o777), (user, 0o600));
        drop(server);
    }
    let doctor = place.lockkeeper(owner, &["doctor", "--json"]).output().unwrap();
    let text = String::from_utf8(doctor.stdout).unwrap();
    assert!(doctor.status.success() && !text.contains("server-0.token"), "{text}");
}

#[test]
fn doctor_says_that_a_private_folder_is_in_a_shared_repository() {
    if !is_root() {
        return skip("root, to become other users");
    }
    let (one, two) = (65_531, 65_532);
    let place = Place::new(one);
    fs::set_permissions(place.work(), fs::Permissions::from_mode(0o2775)).unwrap();
    let git = |args: &[&str]| {
        let done = place.program(one, Path::new("git")).args(args).output().unwrap();
        assert!(done.status.success(), "{done:?}");
    };
    git(&["init", "--quiet"]);
    assert!(place.lockkeeper(one, &["exec", "db", "--", "true"]).output().unwrap().status.success());
    git(&["config", "core.sharedRepository", "group"]);
    let refused = place.lockkeeper(two, &["exec", "db", "--", "true"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(69), "{refused:?}");
    let doctor = place.lockkeeper(one, &["doctor", "--json"]).output().unwrap();
    let found: serde_json::Value = serde_json::from_slice(&doctor.stdout).unwrap();
    let check =
        found["checks"].as_array().unwrap().iter().find(|check| check["id"] == "state-folder").unwrap();
    assert_eq!(check["status"], "WARN", "{check}");
    // The fix works.
    let fix = check["fix"].as_str().unwrap();
    let fixed = place.program(one, Path::new("sh")).args(["-c", fix]).output().unwrap();
    assert!(fixed.status.success(), "{fix}: {fixed:?}");
    place.take_turns(one, two);
    let doctor = place.lockkeeper(two, &["doctor", "--json"]).output().unwrap();
    assert!(String::from_utf8(doctor.stdout).unwrap().contains("shared by group 65530"));
}

/// A folder of another user cannot be given away by that user, so the hint does not ask for it.
#[test]
fn the_folder_of_another_user_is_refused_with_a_way_out_that_works() {
    if !is_root() {
        return skip("root, to become another user");
    }
    let (owner, other) = (65_531, 65_532);
    let place = Place::new(owner);
    assert!(place.lockkeeper(owner, &["exec", "db", "--", "true"]).output().unwrap().status.success());
    let refused = place.lockkeeper(other, &["exec", "db", "--", "true"]).output().unwrap();
    let text = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(69), "{text}");
    assert!(text.contains("belongs to user 65531, and only its owner may use it"), "{text}");
    assert!(text.contains("let root run `chown") && text.contains("core.sharedRepository"), "{text}");
    // A folder that is not one of ours is not given away.
    for folder in ["/etc", "/etc/none", "/root", "/"] {
        let refused =
            place.lockkeeper(other, &["--dir", folder, "exec", "db", "--", "true"]).output().unwrap();
        let text = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(69), "{text}");
        assert!(text.contains("belongs to user 0: choose a folder") && !text.contains("chown"), "{text}");
    }
    let elsewhere = ["--dir", "/tmp/none/of/it", "locks"];
    assert!(place.lockkeeper(other, &elsewhere).output().unwrap().status.success());
}
