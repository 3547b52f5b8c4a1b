//! The background monitor.

use lockkeeper_testing::{Started, processes, until, until_seen};

use crate::groups::{Groups, now};

/// Requirements 106, 132, 163.
#[test]
fn one_monitor_runs_under_its_name_cleans_and_ends_when_told() {
    let groups = Groups::new();
    groups.write_registry(&format!("a:{}:a:{}:ACTIVE\n", processes::exited_pid(), now() - 700));
    let started = groups.json(&["monitor", "start", "--interval", "50ms"]);
    assert_eq!(started["status"], "started", "{started}");
    let pid = started["pid"].as_u64().unwrap();
    let cleaned = |statuses: &Vec<String>| statuses == &["ORPHAN_CLEANED"];
    until_seen("the monitor cleans the old line", || groups.statuses("a"), cleaned);
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    assert!(line.starts_with(b"deadlock_monitor\0"), "{line:?}");
    let again = groups.json(&["monitor", "start"]);
    assert_eq!((again["status"].as_str(), again["pid"].as_u64()), (Some("running"), Some(pid)));
    groups.run(&["monitor", "run"]).code(75);
    assert_eq!(groups.json(&["status"])["monitor"]["pid"].as_u64(), Some(pid));
    let stopped = groups.json(&["monitor", "stop"]);
    assert_eq!((stopped["status"].as_str(), stopped["pid"].as_u64()), (Some("stopped"), Some(pid)));
    assert!(groups.json(&["status"])["monitor"].is_null());
    assert!(groups.json(&["monitor", "stop"])["pid"].is_null());
    let next = groups.json(&["monitor", "start"]);
    assert_eq!(next["status"], "started");
    groups.run(&["monitor", "stop"]).code(0);
}

/// Requirement 106.
#[test]
fn a_monitor_ends_with_its_folder() {
    let groups = Groups::new();
    let monitor = Started::of(&mut groups.group(&["monitor", "run", "--interval", "20ms"]));
    until("the monitor runs", || !groups.json(&["status"])["monitor"].is_null());
    std::fs::remove_dir_all(groups.locks()).unwrap();
    monitor.wait().code(0);
}

/// Requirement 106. The monitor of the shell scripts writes its pid into the same file, and locks nothing.
#[test]
fn the_monitor_of_another_program_is_left_alone() {
    let groups = Groups::new();
    groups.run(&["init"]).code(0);
    let script = "echo $$ > \"$LOCK_DIR/deadlock_monitor.pid\"; echo up; read line || :";
    let mut foreign = Started::of(groups.world.command("sh").args(["-c", script]));
    foreign.line();
    let pid = u64::from(foreign.pid());
    let started = groups.json(&["monitor", "start"]);
    assert_eq!(
        (started["status"].as_str(), started["pid"].as_u64()),
        (Some("running"), Some(pid)),
        "{started}"
    );
    let written = std::fs::read_to_string(groups.locks().join("deadlock_monitor.pid")).unwrap();
    assert_eq!(written.trim(), pid.to_string());
    assert_eq!(groups.json(&["status"])["monitor"]["pid"].as_u64(), Some(pid));
    assert!(foreign.finish().succeeded());
    assert_eq!(groups.json(&["monitor", "start"])["status"], "started", "a dead one is replaced");
    groups.run(&["monitor", "stop"]).code(0);
}

/// Requirement 106. A pid file that somebody has written wrongly.
#[test]
fn a_process_that_is_no_monitor_is_not_stopped() {
    let groups = Groups::new();
    groups.run(&["init"]).code(0);
    let mut other = Started::of(groups.world.command("sleep").arg("600"));
    let pid_file = groups.locks().join("deadlock_monitor.pid");
    std::fs::write(&pid_file, format!("{}\n", other.pid())).unwrap();
    assert!(groups.json(&["status"])["monitor"].is_null());
    assert!(groups.json(&["monitor", "stop"])["pid"].is_null());
    assert!(!other.has_ended());
    let started = groups.json(&["monitor", "start"]);
    assert_eq!(started["status"], "started", "{started}");
    groups.run(&["monitor", "stop"]).code(0);
    // One that has locked the file is not a monitor, either.
    let script = "exec 9<>\"$1\"; flock 9; exec sleep 600";
    let mut locker = groups.world.command("sh");
    let mut locker = Started::of(locker.args(["-c", script, "sh"]).arg(&pid_file));
    until("the file is locked", || !groups.json(&["status"])["monitor"].is_null());
    let refused = groups.json(&["monitor", "stop"]);
    assert_eq!(refused["error"]["reason_code"], "MONITOR_NOT_STOPPED", "{refused}");
    assert!(!locker.has_ended() && !other.has_ended());
}
