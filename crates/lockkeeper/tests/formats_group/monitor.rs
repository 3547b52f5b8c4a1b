//! The background monitor.

use crate::site::{Site, dead_pid, now, until};

/// Requirements 106, 132, 163.
#[test]
fn one_monitor_runs_under_its_name_cleans_and_ends_when_told() {
    let site = Site::new();
    site.write_registry(&format!("a:{}:a:{}:ACTIVE\n", dead_pid(), now() - 700));
    let started = site.json(&["monitor", "start", "--interval", "50ms"]);
    assert_eq!(started["status"], "started", "{started}");
    let pid = started["pid"].as_u64().unwrap();
    until("the old line is cleaned", || site.statuses("a") == ["ORPHAN_CLEANED"]);
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    assert!(line.starts_with(b"deadlock_monitor\0"), "{line:?}");
    let again = site.json(&["monitor", "start"]);
    assert_eq!((again["status"].as_str(), again["pid"].as_u64()), (Some("running"), Some(pid)));
    assert_eq!(site.run(&["monitor", "run"]).status.code(), Some(75));
    assert_eq!(site.json(&["status"])["monitor"]["pid"].as_u64(), Some(pid));
    let stopped = site.json(&["monitor", "stop"]);
    assert_eq!((stopped["status"].as_str(), stopped["pid"].as_u64()), (Some("stopped"), Some(pid)));
    assert!(site.json(&["status"])["monitor"].is_null());
    assert!(site.json(&["monitor", "stop"])["pid"].is_null());
    let next = site.json(&["monitor", "start"]);
    assert_eq!(next["status"], "started");
    assert!(site.run(&["monitor", "stop"]).status.success());
}

/// Requirement 106.
#[test]
fn a_monitor_ends_with_its_folder() {
    let site = Site::new();
    let mut monitor = site.group(&["monitor", "run", "--interval", "20ms"]).spawn().unwrap();
    until("it runs", || !site.json(&["status"])["monitor"].is_null());
    std::fs::remove_dir_all(site.locks()).unwrap();
    assert!(monitor.wait().unwrap().success());
}
