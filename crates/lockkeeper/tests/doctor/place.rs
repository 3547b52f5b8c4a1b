//! The folder of the state, its file system, its room, and git.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::clinic::{Clinic, Diagnosis};
use crate::env::PROGRAM;

fn chmod(path: &std::path::Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn modes_that_let_others_in_are_warned_of_and_the_fix_mends_them() {
    let clinic = Clinic::new().with_store();
    chmod(&clinic.state(), 0o755);
    chmod(&clinic.state().join("tokens"), 0o644);
    let diagnosis = clinic.quick();
    assert_eq!(diagnosis.troubles(), ["state-folder", "store-files"]);
    diagnosis.says("state-folder", "WARN", "mode 755").says("store-files", "WARN", "tokens has mode 644");
    for id in ["state-folder", "store-files"] {
        let fix = diagnosis.text(id, "fix");
        assert!(fix.starts_with("chmod "), "{fix}");
        let _ = clinic.env.shell(fix).code(0);
    }
    assert_eq!(clinic.quick().troubles(), [""; 0]);
}

#[test]
fn a_file_in_the_place_of_the_folder_fails() {
    let clinic = Clinic::new();
    fs::write(clinic.state(), "").unwrap();
    clinic.quick().says("state-folder", "FAIL", "is not a folder").says("store", "FAIL", "lockkeeper");
}

#[test]
fn another_user_cannot_use_the_folder_and_is_told_so() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: becoming another user needs root; nothing was checked");
        return;
    }
    let clinic = Clinic::without_git().with_store();
    let above = clinic.env.home().parent().unwrap().to_owned();
    let program = above.join("program");
    fs::copy(PROGRAM, &program).unwrap();
    for folder in [&above, &above.join("work")] {
        chmod(folder, 0o755);
    }
    let doctor = |state: &str| {
        let mut command = clinic.env.command("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        Diagnosis::of(command.arg(&program).args(["--dir", state, "doctor", "--json"]))
    };
    doctor(".lockkeeper").says("state-folder", "FAIL", "belongs to user 0").fix("state-folder", "--dir");
    doctor("new").says("state-folder", "FAIL", "cannot be made").says("store", "PASS", "none yet");
    let theirs = above.join("theirs");
    fs::create_dir(&theirs).unwrap();
    std::os::unix::fs::chown(&theirs, Some(65534), Some(65534)).unwrap();
    chmod(&theirs, 0o700);
    let theirs = theirs.to_str().unwrap();
    doctor(theirs).says("state-folder", "PASS", "owner only");
    clinic.doctor(&["--dir", theirs]).says("state-folder", "WARN", "belongs to user 65534");
}

#[test]
fn a_disk_that_is_nearly_full_is_warned_of_and_a_full_one_fails() {
    let clinic = Clinic::new();
    let trials = [
        ("size=50m", ":", "WARN", "room for"),
        ("size=512k", ":", "FAIL", "KiB"),
        ("size=1g,nr_inodes=100", ":", "WARN", "files only"),
        ("size=1g,nr_inodes=12", ":", "FAIL", "files only"),
        ("size=1g", "dd if=/dev/zero of=.git/lockkeeper/fill bs=1M 2>dd.log || :", "FAIL", "room for 0 KiB"),
    ];
    for (options, fill, status, detail) in trials {
        let options = if options == "size=1g" && fill != ":" { "size=8m" } else { options };
        let line = format!(
            "mkdir -p .git/lockkeeper; mount -t tmpfs -o mode=700,{options} none .git/lockkeeper; {fill}; doctor"
        );
        let Some(diagnosis) = clinic.in_own_mounts(&line) else { return };
        diagnosis.says("free-space", status, detail).fix("free-space", "free some space");
    }
}

#[test]
fn a_read_only_file_system_fails() {
    let clinic = Clinic::new().with_store();
    let line = "mount --bind .git .git; mount -o remount,bind,ro .git; doctor";
    let Some(diagnosis) = clinic.in_own_mounts(line) else { return };
    diagnosis.says("file-system", "FAIL", "read-only").fix("file-system", "--dir");
    diagnosis.says("state-folder", "FAIL", "cannot be written");
}

/// No network is at hand: the kernel's answer is changed on its way to the doctor.
#[test]
fn a_network_file_system_fails() {
    let clinic = Clinic::new();
    let log = clinic.env.home().join("strace.log");
    let nfs = "inject=statfs:poke_exit=@arg2=6969000000000000";
    let strace = ["strace", "-qq", "-o", log.to_str().unwrap(), "-e", "trace=statfs", "-e", nfs];
    let diagnosis = clinic.under(&strace, &[]);
    diagnosis.says("file-system", "FAIL", "is on nfs").fix("file-system", "LOCKKEEPER_DIR");
    clinic.quick().says("file-system", "PASS", "is on");
}

#[test]
fn git_is_asked_what_it_would_track() {
    let clinic = Clinic::new();
    clinic.write(&clinic.root().join(".sprint-running"), "pid: 1\nstarted_at: \"2099-01-01T00:00:00Z\"\n");
    clinic.write(&clinic.requests().join("other"), "");
    let _ = clinic.env.run(["--dir", "inside", "exec", "a", "--", "true"]).code(0);
    let diagnosis = clinic.doctor(&["--dir", "inside"]);
    let tracked = "git would track inside, .sprint-running, .aiflow/locks/queue.lock.json";
    diagnosis.says("git", "WARN", tracked).fix("git", ".gitignore");
    clinic.write(&clinic.root().join(".gitignore"), "inside/\n.sprint-running\n.aiflow/locks/\n");
    clinic.doctor(&["--dir", "inside"]).says("git", "PASS", "is a repository");
    Clinic::without_git().quick().says("git", "PASS", "no repository");
}

#[test]
fn a_git_folder_that_leads_nowhere_is_warned_of() {
    let clinic = Clinic::without_git();
    clinic.write(&clinic.root().join(".git"), "gitdir: /nowhere/worktrees/a\n");
    clinic.quick().says("git", "WARN", "leads to no repository").fix("git", "git worktree repair");
    let made = Command::new("git").args(["init", "-q"]).arg(clinic.root().join("below")).status().unwrap();
    assert!(made.success());
}

/// A hook that cannot run stops nothing, and nobody would notice.
#[test]
fn hooks_that_call_a_program_which_cannot_are_named() {
    let mut clinic = Clinic::new();
    clinic.quick().says("hooks", "PASS", "no hook");
    let bin = clinic.env.home().join("bin");
    let path = format!("{}:/usr/bin:/bin", bin.display());
    clinic.env = clinic.env.set("PATH", path);
    let hook = r#"{"hooks":{"PreToolUse":[{"hooks":[{"command":"lockkeeper","args":["hook","claude"]}]}]}}"#;
    clinic.write(&clinic.root().join(".claude/settings.json"), hook);
    clinic.quick().says("hooks", "FAIL", "not in PATH").fix("hooks", ".claude/settings.json");
    let program = |knows: &str| {
        let script = format!("#!/bin/sh\n[ \"$1 $2\" = '{knows} --help' ]\n");
        clinic.write(&bin.join("lockkeeper"), &script);
        fs::set_permissions(bin.join("lockkeeper"), fs::Permissions::from_mode(0o755)).unwrap();
    };
    program("other");
    clinic.quick().says("hooks", "FAIL", "which it does not know").fix("hooks", "`hook`");
    program("hook");
    clinic.quick().says("hooks", "PASS", "every hook");
    let guard = clinic.root().join(".git/hooks/pre-commit");
    clinic.write(&guard, "#!/bin/sh\nexec lockkeeper hook git\n");
    clinic.quick().says("hooks", "FAIL", "not executable").fix("hooks", "chmod +x");
    fs::set_permissions(&guard, fs::Permissions::from_mode(0o755)).unwrap();
    clinic.quick().says("hooks", "PASS", "every hook");
    clinic.write(&clinic.root().join(".codex/hooks.json"), "{");
    clinic.quick().says("hooks", "WARN", ".codex/hooks.json");
}
