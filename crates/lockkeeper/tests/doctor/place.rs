//! The state folder: its permissions, file system, free space, and git.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use lockkeeper_testing::{is_root, skip};

use crate::doctor::{Diagnosis, Doctor};

fn chmod(path: &std::path::Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn modes_that_let_others_in_are_warned_of_and_the_fix_mends_them() {
    let doctor = Doctor::new().with_store();
    chmod(&doctor.state(), 0o755);
    chmod(&doctor.state().join("tokens"), 0o644);
    let diagnosis = doctor.quick();
    assert_eq!(diagnosis.troubles(), ["state-folder", "store-files"]);
    diagnosis.says("state-folder", "WARN", "mode 755").says("store-files", "WARN", "tokens has mode 644");
    for id in ["state-folder", "store-files"] {
        let fix = diagnosis.text(id, "fix");
        assert!(fix.starts_with("chmod "), "{fix}");
        doctor.world.shell(fix).code(0);
    }
    assert_eq!(doctor.quick().troubles(), [""; 0]);
}

#[test]
fn a_file_in_the_place_of_the_folder_fails() {
    let doctor = Doctor::new();
    fs::write(doctor.state(), "").unwrap();
    doctor.quick().says("state-folder", "FAIL", "is not a folder").says("store", "FAIL", "lockkeeper");
}

#[test]
fn another_user_cannot_use_the_folder_and_is_told_so() {
    if !is_root() {
        return skip("root, to become another user");
    }
    let doctor = Doctor::without_git().with_store();
    // The other user may not reach the folder of the build, so a copy of the program runs.
    let program = doctor.world.beside("program");
    fs::copy(doctor.world.program(), &program).unwrap();
    for folder in [doctor.world.beside(""), doctor.root().to_owned()] {
        chmod(&folder, 0o755);
    }
    let of_nobody = |state: &str| {
        let mut command = doctor.world.command("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        Diagnosis::of(command.arg(&program).args(["--dir", state, "doctor", "--json"]))
    };
    of_nobody(".lockkeeper").says("state-folder", "FAIL", "belongs to user 0").fix("state-folder", "--dir");
    of_nobody("new").says("state-folder", "FAIL", "cannot be created").says("store", "PASS", "none yet");
    let theirs = doctor.world.beside("theirs");
    fs::create_dir(&theirs).unwrap();
    std::os::unix::fs::chown(&theirs, Some(65534), Some(65534)).unwrap();
    chmod(&theirs, 0o700);
    let theirs = theirs.to_str().unwrap();
    of_nobody(theirs).says("state-folder", "PASS", "owner only");
    doctor.examine(&["--dir", theirs]).says("state-folder", "PASS", "for user 65534 only");
}

#[test]
fn a_disk_that_is_nearly_full_is_warned_of_and_a_full_one_fails() {
    let doctor = Doctor::new();
    let trials = [
        ("size=50m", ":", "WARN", "has only"),
        ("size=512k", ":", "FAIL", "KiB"),
        ("size=1g,nr_inodes=100", ":", "WARN", "files free"),
        ("size=1g,nr_inodes=12", ":", "FAIL", "files free"),
        ("size=1g", "dd if=/dev/zero of=.git/lockkeeper/fill bs=1M 2>dd.log || :", "FAIL", "has only 0 KiB"),
    ];
    for (options, fill, status, detail) in trials {
        let options = if options == "size=1g" && fill != ":" { "size=8m" } else { options };
        let line = format!(
            "mkdir -p .git/lockkeeper; mount -t tmpfs -o mode=700,{options} none .git/lockkeeper; {fill}; doctor"
        );
        let Some(diagnosis) = doctor.in_own_mounts(&line) else { return };
        diagnosis.says("free-space", status, detail).fix("free-space", "free some space");
    }
}

#[test]
fn a_read_only_file_system_fails() {
    let doctor = Doctor::new().with_store();
    let line = "mount --bind .git .git; mount -o remount,bind,ro .git; doctor";
    let Some(diagnosis) = doctor.in_own_mounts(line) else { return };
    diagnosis.says("file-system", "FAIL", "read-only").fix("file-system", "--dir");
    diagnosis.says("state-folder", "FAIL", "is not writable");
}

/// No network is at hand: the kernel's answer is changed on its way to the doctor.
#[test]
fn a_network_file_system_fails() {
    let doctor = Doctor::new();
    let log = doctor.world.home().join("strace.log");
    let nfs = "inject=statfs:poke_exit=@arg2=6969000000000000";
    let strace = ["strace", "-qq", "-o", log.to_str().unwrap(), "-e", "trace=statfs", "-e", nfs];
    let diagnosis = doctor.under(&strace, &[]);
    diagnosis.says("file-system", "FAIL", "is on nfs").fix("file-system", "LOCKKEEPER_DIR");
    doctor.quick().says("file-system", "PASS", "is on");
}

#[test]
fn git_is_asked_what_it_would_track() {
    let doctor = Doctor::new();
    doctor.write(&doctor.root().join(".sprint-running"), "pid: 1\nstarted_at: \"2099-01-01T00:00:00Z\"\n");
    doctor.write(&doctor.requests().join("other"), "");
    doctor.world.run(["--dir", "inside", "exec", "a", "--", "true"]).code(0);
    let diagnosis = doctor.examine(&["--dir", "inside"]);
    let tracked = "git would track inside, .sprint-running, .aiflow/locks/queue.lock.json";
    diagnosis.says("git", "WARN", tracked).fix("git", ".gitignore");
    doctor.write(&doctor.root().join(".gitignore"), "inside/\n.sprint-running\n.aiflow/locks/\n");
    doctor.examine(&["--dir", "inside"]).says("git", "PASS", "is a repository");
    Doctor::without_git().quick().says("git", "PASS", "no repository");
}

#[test]
fn a_git_folder_that_leads_nowhere_or_is_empty_is_refused() {
    let doctor = Doctor::without_git();
    let dot_git = doctor.root().join(".git");
    doctor.write(&dot_git, "gitdir: /nowhere/worktrees/a\n");
    doctor.world.run(["doctor"]).code(69).says("/nowhere/worktrees/a").says("git worktree repair");
    fs::remove_file(&dot_git).unwrap();
    fs::create_dir(&dot_git).unwrap();
    doctor.world.run(["doctor"]).code(69).says("is not a git folder").says("--dir");
}

/// A hook that cannot run stops nothing, and nobody would notice.
#[test]
fn hooks_that_call_a_program_which_cannot_are_named() {
    let mut doctor = Doctor::new();
    doctor.quick().says("hooks", "PASS", "no hook");
    let bin = doctor.world.home().join("bin");
    let path = format!("{}:/usr/bin:/bin", bin.display());
    doctor.world = doctor.world.set("PATH", path);
    let hook = r#"{"hooks":{"PreToolUse":[{"hooks":[{"command":"lockkeeper","args":["hook","claude"]}]}]}}"#;
    doctor.write(&doctor.root().join(".claude/settings.json"), hook);
    doctor.quick().says("hooks", "FAIL", "not in PATH").fix("hooks", ".claude/settings.json");
    let program = |knows: &str| {
        let script = format!("#!/bin/sh\n[ \"$1 $2\" = '{knows} --help' ]\n");
        doctor.write(&bin.join("lockkeeper"), &script);
        fs::set_permissions(bin.join("lockkeeper"), fs::Permissions::from_mode(0o755)).unwrap();
    };
    program("other");
    doctor.quick().says("hooks", "FAIL", "which it does not know").fix("hooks", "`hook`");
    program("hook");
    doctor.quick().says("hooks", "PASS", "every hook");
    let guard = doctor.root().join(".git/hooks/pre-commit");
    doctor.write(&guard, "#!/bin/sh\nexec lockkeeper hook git\n");
    doctor.quick().says("hooks", "FAIL", "not executable").fix("hooks", "chmod +x");
    fs::set_permissions(&guard, fs::Permissions::from_mode(0o755)).unwrap();
    doctor.quick().says("hooks", "PASS", "every hook");
    doctor.write(&doctor.root().join(".codex/hooks.json"), "{");
    doctor.quick().says("hooks", "WARN", ".codex/hooks.json");
}
