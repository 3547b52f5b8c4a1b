//! Missing abilities of the machine, simulated with strace, limits and namespaces.

use lockkeeper_core::time::Ttl;
use lockkeeper_engine::doctor::{Diagnosis, Inputs, Opened, Pass, Status, examine};
use lockkeeper_engine::location::{Location, LocationSource};
use lockkeeper_formats::group::Folders;
use lockkeeper_formats::swarm::{self, Swarm};
use lockkeeper_platform::wall_clock::WallTime;
use lockkeeper_testing::{Finished, skip};

use crate::doctor::Doctor;

/// The doctor under strace, with injected results of system calls.
fn with_calls(doctor: &Doctor, calls: &[&str], args: &[&str]) -> crate::doctor::Diagnosis {
    let log = doctor.world.home().join("strace.log");
    let strace = [&["strace", "-qq", "-f", "-o", log.to_str().unwrap()], calls].concat();
    doctor.under(&strace, args)
}

#[test]
fn flock_that_is_refused_fails() {
    let doctor = Doctor::new().with_store();
    let diagnosis = with_calls(&doctor, &["-e", "trace=flock", "-e", "inject=flock:error=ENOLCK"], &[]);
    diagnosis.says("flock", "FAIL", "cannot try to lock").fix("flock", "another file system");
}

#[test]
fn flock_that_lets_two_processes_in_fails() {
    let doctor = Doctor::new().with_store();
    let diagnosis = with_calls(&doctor, &["-e", "trace=flock", "-e", "inject=flock:retval=0"], &[]);
    diagnosis.says("flock", "FAIL", "two processes at once");
}

#[test]
fn kernel_locks_that_are_refused_fail() {
    let doctor = Doctor::new().with_store();
    let life = doctor.state().join("life");
    let calls = ["-P", life.to_str().unwrap(), "-e", "trace=fcntl", "-e", "inject=fcntl:error=ENOLCK"];
    with_calls(&doctor, &calls, &[]).says("kernel-locks", "FAIL", "cannot take a kernel lock");
    doctor.quick().says("kernel-locks", "PASS", "was free afterwards");
}

#[test]
fn a_file_system_that_cannot_exchange_names_is_warned_of() {
    let doctor = Doctor::new().with_store();
    std::fs::create_dir_all(doctor.tasks()).unwrap();
    let calls = ["-e", "trace=renameat2", "-e", "inject=renameat2:error=EINVAL"];
    let diagnosis = with_calls(&doctor, &calls, &["--full"]);
    diagnosis.says("exchange", "WARN", "replaced in two steps").fix("exchange", "AI_SWARM_DIR");
    let names = std::fs::read_dir(doctor.tasks()).unwrap().count();
    assert_eq!(names, 0, "a trial leaves nothing behind");
    let tasks = doctor.tasks();
    let calls = ["-P", tasks.to_str().unwrap(), "-e", "trace=flock", "-e", "inject=flock:error=EOPNOTSUPP"];
    let diagnosis = with_calls(&doctor, &calls, &["--full"]);
    diagnosis.says("exchange", "FAIL", "cannot be locked").fix("exchange", "flock(2)");
}

#[test]
fn listeners_that_are_used_up_are_warned_of() {
    let doctor = Doctor::new();
    let calls = ["-e", "trace=inotify_init1", "-e", "inject=inotify_init1:error=EMFILE"];
    with_calls(&doctor, &calls, &[])
        .says("file-watching", "WARN", "open files")
        .fix("file-watching", "sysctl");
    let calls = ["-e", "trace=inotify_add_watch", "-e", "inject=inotify_add_watch:error=ENOSPC"];
    with_calls(&doctor, &calls, &[]).says("file-watching", "WARN", "cannot watch");
}

#[test]
fn few_descriptors_are_warned_of() {
    let doctor = Doctor::new();
    let limited = |number: &str| {
        let line = format!("ulimit -n {number}; exec \"$@\"");
        doctor.under(&["bash", "-c", &line, "bash"], &[])
    };
    limited("100").says("descriptors", "WARN", "100 files open").fix("descriptors", "ulimit -n");
    limited("256").says("descriptors", "PASS", "256 files open");
}

#[test]
fn a_missing_process_table_fails() {
    let doctor = Doctor::new().with_store();
    let Some(diagnosis) = doctor.in_own_mounts("mount -t tmpfs none /proc; doctor") else { return };
    diagnosis.says("processes", "FAIL", "cannot identify this machine").fix("processes", "mount -t proc");
    diagnosis.says("store", "FAIL", "cannot find out about this process");
}

#[test]
fn the_process_table_of_another_namespace_fails() {
    let doctor = Doctor::new().with_store();
    let probe = ["--pid", "--fork", "true"];
    if !Finished::of(doctor.world.command("unshare").args(probe)).succeeded() {
        return skip("a pid namespace: root or CAP_SYS_ADMIN");
    }
    let diagnosis = doctor.under(&["unshare", "--pid", "--fork"], &[]);
    diagnosis.says("processes", "FAIL", "does not find itself").fix("processes", "mount -t proc");
}

#[test]
fn records_from_the_future_are_warned_of() {
    let doctor = Doctor::new();
    let soon = WallTime::now().after(std::time::Duration::from_secs(3 * 3_600));
    let task = format!(
        r#"{{"worker_id":"w","task_id":"t","acquired_at":"{soon}","heartbeat_at":"{soon}","ttl":300}}"#
    );
    doctor.write(&doctor.tasks().join("t.lock"), &task);
    let diagnosis = doctor.quick();
    assert_eq!(diagnosis.troubles(), ["clock"], "{}", diagnosis.value);
    diagnosis.says("clock", "WARN", "the lock of task t is dated 2h 59m ahead").fix("clock", "set the clock");
    std::fs::remove_file(doctor.tasks().join("t.lock")).unwrap();
    let later = soon.as_micros() / 1_000_000;
    doctor.write(&doctor.groups().join("registry.log"), &format!("g:1:g:{later}:ACTIVE\n"));
    doctor.quick().says("clock", "WARN", "the lock of group g");
    std::fs::remove_dir_all(doctor.groups()).unwrap();
    let sprint = format!("pid: {}\nstarted_at: \"{soon}\"\n", std::process::id());
    doctor.write(&doctor.root().join(".sprint-running"), &sprint);
    doctor.quick().says("clock", "WARN", "the sprint lock");
}

/// Looks through the library, where the clock is an argument.
pub fn look(root: &std::path::Path, now: WallTime, downgrades: usize) -> Diagnosis {
    let location = Location {
        state: root.join("state"),
        root: root.to_owned(),
        source: LocationSource::Named,
        shared: None,
    };
    let groups = Folders::from_variables(&|name| (name == "LOCK_DIR").then(|| root.join("groups").into()));
    let swarm = Swarm::new(root.join("swarm"), Ttl::new(swarm::DEFAULT_TTL).unwrap());
    let max_group_age = std::time::Duration::from_secs(600);
    let store = Opened::Absent;
    let site =
        Inputs { location: &location, store, groups: &groups, max_group_age, swarm: &swarm, downgrades, now };
    examine(&site, Pass::Quick, &mut |_, _, _| {})
}

#[test]
fn a_clock_that_was_never_set_is_warned_of() {
    let folder = tempfile::tempdir().unwrap();
    let of = |now| {
        let diagnosis = look(folder.path(), now, 0);
        let clock = diagnosis.checks.iter().find(|check| check.id == "clock").unwrap();
        (clock.status, clock.detail.clone())
    };
    let (status, detail) = of(WallTime::UNIX_EPOCH);
    assert_eq!(status, Status::Warn);
    assert!(detail.contains("1970-01-01"), "{detail}");
    assert_eq!(of(WallTime::now()).0, Status::Pass);
}
