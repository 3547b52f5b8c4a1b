//! What is done about the dead, the stuck and the stubborn.

use crate::site::{Holder, Site, Waiter, dead_pid, now, text};

/// Requirements 99, 106, 107, 108, 115.
#[test]
fn only_what_died_long_ago_is_cleaned_by_the_check() {
    let site = Site::new();
    let (dead, alive, old) = (dead_pid(), 1, now() - 700);
    let young = now() - 100;
    site.write_registry(&format!(
        "a:{dead}:a:{old}:ACTIVE\nb:{dead}:b:{young}:ACTIVE\nc:{alive}:c:{old}:ACTIVE\nd:{alive}:d:{young}:ACTIVE\n"
    ));
    let output = site.run(&["check-deadlock"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let told = text(&output.stderr);
    assert!(told.contains("Stale lock detected: group c, process 1"), "{told}");
    assert_eq!(told.matches("Stale lock detected").count(), 1);
    let status = |group| site.statuses(group).join(" ");
    assert_eq!(
        [status("a"), status("b"), status("c"), status("d")],
        ["ORPHAN_CLEANED", "ACTIVE", "ACTIVE", "ACTIVE"]
    );
    let mut impatient = site.group(&["check-deadlock", "--json"]);
    let output = impatient.env("MAX_LOCK_AGE", "50").output().unwrap();
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["cleaned"][0]["group"], "b");
    assert_eq!(found["stale"].as_array().unwrap().len(), 2);
    assert_eq!(status("b"), "ORPHAN_CLEANED");
}

/// Requirements 99, 108, 111.
#[test]
fn the_dead_are_cleaned_at_any_age_and_the_living_kept() {
    let site = Site::new();
    let holder = site.hold("held");
    site.write_registry(&format!(
        "a:{}:a:{}:ACTIVE\nb:{}:b:{}:ACTIVE\n",
        dead_pid(),
        now(),
        std::process::id(),
        now()
    ));
    std::fs::write(site.lock_file("b"), "").unwrap();
    let cleaned = site.json(&["cleanup"]);
    assert_eq!(cleaned["cleaned"][0]["group"], "a");
    assert_eq!(cleaned["closed"][0]["group"], "b", "this process lives but has it not locked: {cleaned}");
    assert_eq!(site.statuses("held"), ["ACTIVE"]);
    assert_eq!(
        (site.statuses("a"), site.statuses("b")),
        (vec!["ORPHAN_CLEANED".into()], vec!["RELEASED".into()])
    );
    assert!(site.lock_file("b").exists() && site.lock_file("held").exists());
    holder.end();
}

/// Requirements 106, 140, 150.
#[test]
fn holders_that_wait_for_each_other_are_a_deadlock() {
    let site = Site::new();
    let script = r#"
        exec 200<>"$("$LK" group path "$1")" 201<>"$("$LK" group path "$2")"
        "$LK" group acquire "$1" --fd 200; echo held; read line
        exec "$LK" group acquire "$2" --fd 201"#;
    let start = |held: &str, wanted: &str| {
        let mut command = site.command("bash");
        command.args(["-c", script, "bash", held, wanted]).stderr(std::process::Stdio::piped());
        Holder::start(command)
    };
    let mut stuck = [start("a", "b"), start("b", "a")];
    assert!(site.run(&["check-deadlock"]).status.success());
    for one in &mut stuck {
        drop(one.process.stdin.take());
    }
    let output = {
        let mut last = None;
        crate::site::until("both wait", || {
            let output = site.run(&["check-deadlock"]);
            let found = output.status.code() == Some(75);
            last = Some(output);
            found
        });
        last.unwrap()
    };
    let told = text(&output.stderr);
    assert!(told.contains("a holder of a waits for b, and a holder of b waits for a"), "{told}");
    stuck.into_iter().for_each(Holder::kill);
    assert!(site.run(&["check-deadlock"]).status.success());
}

/// Requirements 136, 163.
#[test]
fn the_order_of_the_trouble_shooting_list_works() {
    let site = Site::new();
    let mut holder = Holder::start(site.group(&["exec", "g", "--", "sh", "-c", "echo held; exec sleep 600"]));
    let status = text(&site.run(&["status"]).stdout);
    assert!(status.contains("locked") && status.contains(&format!("ACTIVE {}", holder.pid())), "{status}");
    assert!(site.run(&["cleanup"]).status.success());
    assert_eq!(site.statuses("g"), ["ACTIVE"]);
    assert_eq!(site.run(&["force-release-all"]).status.code(), Some(2));
    let forced = site.run(&["force-release-all", "--yes"]);
    assert!(forced.status.success());
    assert!(text(&forced.stderr).contains("stays locked"), "{forced:?}");
    assert_eq!(site.statuses("g"), ["FORCE_RELEASED"]);
    assert!(!site.flock_is_free("g"));
    let killed = site.json(&["force-release-all", "--yes", "--kill"]);
    assert_eq!(killed["still_locked"].as_array().unwrap().len(), 0, "{killed}");
    assert!(site.flock_is_free("g"));
    assert!(!holder.process.wait().unwrap().success());
}

/// Requirement 136.
#[test]
fn the_status_tells_what_the_registry_and_the_kernel_say() {
    let site = Site::new();
    assert!(site.json(&["status"])["groups"].as_array().unwrap().is_empty());
    let holder = site.hold("g");
    let waiter = Waiter::start(site.group(&["exec", "g", "--", "true"]));
    site.write_registry("garbage\x1b[2J\n");
    let status = site.json(&["status"]);
    let groups = status["groups"].as_array().unwrap();
    let group = groups.iter().find(|group| group["group"] == "g").unwrap();
    assert_eq!((group["locked"].as_bool(), group["all_seen"].is_boolean()), (Some(true), true));
    let pids: Vec<u64> =
        group["holders"].as_array().unwrap().iter().map(|one| one["pid"].as_u64().unwrap()).collect();
    assert!(pids.contains(&u64::from(holder.pid())));
    assert_eq!(group["waiters"][0]["pid"].as_u64(), Some(u64::from(waiter.process.id())));
    assert_eq!(group["active"][0]["life"], "alive");
    assert_eq!(status["odd_lines"].as_array().unwrap().len(), 1);
    let told = text(&site.run(&["status"]).stderr);
    assert!(told.contains("is not understood and kept") && !told.contains('\x1b'), "{told}");
    holder.end();
    assert_eq!(waiter.end().0, Some(0));
}
