//! Cleaning: dead holders, deadlocks, and holders that are forced to release.

use lockkeeper_testing::{Finished, processes, until, until_seen};

use crate::groups::{Groups, held, now};

/// Requirements 99, 106, 107, 108, 115.
#[test]
fn only_what_died_long_ago_is_cleaned_by_the_check() {
    let groups = Groups::new();
    let (dead, alive, old) = (processes::exited_pid(), 1, now() - 700);
    let young = now() - 100;
    groups.write_registry(&format!(
        "a:{dead}:a:{old}:ACTIVE\nb:{dead}:b:{young}:ACTIVE\nc:{alive}:c:{old}:ACTIVE\nd:{alive}:d:{young}:ACTIVE\n"
    ));
    let checked = groups.run(&["check-deadlock"]).code(0).says("Stale lock detected: group c, process 1");
    assert_eq!(checked.stderr().matches("Stale lock detected").count(), 1);
    let status = |group| groups.statuses(group).join(" ");
    assert_eq!(
        [status("a"), status("b"), status("c"), status("d")],
        ["ORPHAN_CLEANED", "ACTIVE", "ACTIVE", "ACTIVE"]
    );
    let mut impatient = groups.group(&["check-deadlock", "--json"]);
    let found = Finished::of(impatient.env("MAX_LOCK_AGE", "50")).json();
    assert_eq!(found["cleaned"][0]["group"], "b");
    assert_eq!(found["stale"].as_array().unwrap().len(), 2);
    assert_eq!(status("b"), "ORPHAN_CLEANED");
}

/// Requirements 99, 108, 111.
#[test]
fn the_dead_are_cleaned_at_any_age_and_the_living_kept() {
    let groups = Groups::new();
    let holder = groups.hold("held");
    groups.write_registry(&format!(
        "a:{}:a:{}:ACTIVE\nb:{}:b:{}:ACTIVE\n",
        processes::exited_pid(),
        now(),
        std::process::id(),
        now()
    ));
    std::fs::write(groups.lock_file("b"), "").unwrap();
    let cleaned = groups.json(&["cleanup"]);
    assert_eq!(cleaned["cleaned"][0]["group"], "a");
    assert_eq!(cleaned["closed"][0]["group"], "b", "this process lives but has it not locked: {cleaned}");
    assert_eq!(groups.statuses("held"), ["ACTIVE"]);
    assert_eq!(
        (groups.statuses("a"), groups.statuses("b")),
        (vec!["ORPHAN_CLEANED".into()], vec!["RELEASED".into()])
    );
    assert!(groups.lock_file("b").exists() && groups.lock_file("held").exists());
    holder.finish().code(0);
}

/// Requirements 106, 140, 150.
#[test]
fn holders_that_wait_for_each_other_are_a_deadlock() {
    let groups = Groups::new();
    let script = r#"
        exec 200<>"$("$LK" group path "$1")" 201<>"$("$LK" group path "$2")"
        "$LK" group acquire "$1" --fd 200; echo held; read line
        exec "$LK" group acquire "$2" --fd 201"#;
    let start = |held_group: &str, wanted: &str| {
        held(groups.world.command("bash").args(["-c", script, "bash", held_group, wanted]))
    };
    let mut stuck = [start("a", "b"), start("b", "a")];
    groups.run(&["check-deadlock"]).code(0);
    for one in &mut stuck {
        one.close_input();
    }
    let check = || groups.run(&["check-deadlock"]);
    until_seen("both wait", check, |checked| checked.exit_code() == Some(75))
        .says("a holder of a waits for b, and a holder of b waits for a");
    for one in &mut stuck {
        one.kill();
    }
    groups.run(&["check-deadlock"]).code(0);
}

/// Requirements 136, 163.
#[test]
fn the_order_of_the_trouble_shooting_list_works() {
    let groups = Groups::new();
    let holder = held(&mut groups.group(&["exec", "g", "--", "sh", "-c", "echo held; exec sleep 600"]));
    until("it is registered", || groups.statuses("g") == ["ACTIVE"]);
    groups.run(&["status"]).code(0).prints("locked").prints("ACTIVE ");
    groups.run(&["cleanup"]).code(0);
    assert_eq!(groups.statuses("g"), ["ACTIVE"]);
    groups.run(&["force-release-all"]).code(2);
    groups.run(&["force-release-all", "--yes"]).code(0).says("stays locked");
    assert_eq!(groups.statuses("g"), ["FORCE_RELEASED"]);
    assert!(!groups.flock_is_free("g"));
    let killed = groups.json(&["force-release-all", "--yes", "--kill"]);
    assert_eq!(killed["still_locked"].as_array().unwrap().len(), 0, "{killed}");
    assert!(groups.flock_is_free("g"));
    assert!(!holder.wait().succeeded());
}

/// Requirement 136.
#[test]
fn the_status_tells_what_the_registry_and_the_kernel_say() {
    let groups = Groups::new();
    assert!(groups.json(&["status"])["groups"].as_array().unwrap().is_empty());
    let holder = groups.hold("g");
    let waiter = groups.start_waiter("g", &["true"]);
    groups.write_registry("garbage\x1b[2J\n");
    let status = groups.json(&["status"]);
    let listed = status["groups"].as_array().unwrap();
    let group = listed.iter().find(|group| group["group"] == "g").unwrap();
    assert_eq!((group["locked"].as_bool(), group["all_seen"].is_boolean()), (Some(true), true));
    let pids: Vec<u64> =
        group["holders"].as_array().unwrap().iter().map(|one| one["pid"].as_u64().unwrap()).collect();
    assert!(pids.contains(&u64::from(holder.pid())));
    assert_eq!(group["waiters"][0]["pid"].as_u64(), Some(u64::from(waiter.pid())));
    assert_eq!(group["active"][0]["life"], "alive");
    assert_eq!(status["odd_lines"].as_array().unwrap().len(), 1);
    let told = groups.run(&["status"]).stderr();
    assert!(told.contains("cannot be parsed and is kept") && !told.contains('\x1b'), "{told}");
    holder.finish().code(0);
    waiter.wait().code(0);
}
