//! The lock itself: taking, waiting, releasing, and the death of its holder.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::{Duration, Instant};

use lockkeeper_testing::{Finished, Signal, processes, until};

use crate::groups::{Groups, held, now};

/// Requirements 95, 100, 104.
#[test]
fn what_flock_holds_we_do_not_get() {
    let groups = Groups::new();
    groups.run(&["path", "g"]).code(0);
    let holder = groups.hold_with_flock("g");
    groups.run(&["exec", "g", "--timeout", "0", "--", "true"]).code(75);
    holder.finish().code(0);
    groups.run(&["exec", "g", "--timeout", "0", "--", "true"]).code(0);
}

/// Requirements 97, 104.
#[test]
fn what_we_hold_flock_does_not_get() {
    let groups = Groups::new();
    let holder = groups.hold("g");
    assert!(!groups.flock_is_free("g"));
    assert_eq!(groups.statuses("g"), ["ACTIVE"]);
    holder.finish().code(0);
    assert!(groups.flock_is_free("g"));
    assert_eq!(groups.statuses("g"), ["RELEASED"]);
}

/// Requirement 97.
#[test]
fn the_commands_exit_code_is_passed_on() {
    let groups = Groups::new();
    let run = |script: &str| groups.run(&["exec", "g", "--", "sh", "-c", script]);
    run("exit 7").code(7);
    run("kill -9 $$").code(137);
    groups.run(&["exec", "g", "--", "/no/such/program"]).code(127);
    assert_eq!(groups.statuses("g"), ["RELEASED"; 3]);
}

/// Requirements 96, 98.
#[test]
fn the_shells_own_descriptor_carries_the_lock() {
    let groups = Groups::new();
    let script = r#"
        exec 200<>"$("$LK" group path g)" 201<>"$LOCK_DIR/g.lock"
        "$LK" group acquire g --fd 200 || exit 10
        flock -n "$LOCK_DIR/g.lock" true && exit 11
        "$LK" group try g --fd 201; [ $? = 75 ] || exit 12
        "$LK" group release g --fd 201; [ $? = 75 ] || exit 13
        "$LK" group acquire g --fd 200 || exit 14
        "$LK" group release g --fd 200 || exit 15
        "$LK" group release g --fd 200; [ $? = 75 ] || exit 16
        "$LK" group try g --fd 201 || exit 17
        exec 201>&-
        flock -n "$LOCK_DIR/g.lock" true || exit 18
        echo $$"#;
    let output = groups.sh(script).code(0);
    let shell = output.stdout().trim().to_owned();
    let registry = groups.registry();
    assert!(registry.lines().skip(1).all(|line| line.starts_with(&format!("g:{shell}:g:"))), "{registry}");
    assert_eq!(groups.statuses("g"), ["RELEASED", "ACTIVE"]);
}

/// Requirement 96.
#[test]
fn a_descriptor_of_another_file_is_a_mistake() {
    let groups = Groups::new();
    groups
        .sh(r#""$LK" group path g; exec 200<>other; "$LK" group acquire g --fd 200"#)
        .code(2)
        .says("hint: open it in the shell first");
    groups.sh(r#""$LK" group acquire g --fd 77"#).code(2).says("descriptor 77 is not open");
    assert!(groups.flock_is_free("g"));
}

/// Requirements 95, 102, 105, 113, 115, 150.
#[test]
fn a_wait_in_vain_ends_in_time_and_names_the_holder() {
    let groups = Groups::new();
    let holder = groups.hold("g");
    let began = Instant::now();
    let mut waiter = groups.group(&["exec", "g", "--", "touch", "ran"]);
    let refused = Finished::of(waiter.env("LOCK_TIMEOUT", "0.3")).code(75);
    assert!(began.elapsed() >= Duration::from_millis(300));
    refused.says("timeout").says(&holder.pid().to_string());
    assert!(!groups.path("ran").exists());
    assert_eq!(groups.statuses("g"), ["ACTIVE", "TIMEOUT"]);
    assert_eq!(groups.registry().lines().last().unwrap().split(':').count(), 6);
    let json = groups.json(&["exec", "g", "--timeout", "10ms", "--", "true"]);
    assert_eq!(json["error"]["reason_code"], "LOCK_TIMEOUT");
    assert!(!json["error"]["context"]["holders"].as_array().unwrap().is_empty());
    holder.finish().code(0);
    Finished::of(groups.group(&["exec", "g", "--", "true"]).env("LOCK_TIMEOUT", "soon")).code(2);
}

/// Requirement 109.
#[test]
fn a_signal_ends_a_wait_at_once_and_leaves_nothing() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let groups = Groups::new();
        let holder = groups.hold("g");
        let waiter = groups.start_waiter("g", &["echo", "ran"]);
        waiter.signal(signal);
        assert_eq!(waiter.wait().code(code).stdout(), "");
        assert_eq!(groups.statuses("g"), ["ACTIVE"]);
        holder.finish().code(0);
        assert!(groups.flock_is_free("g"));
    }
}

/// Requirement 95.
#[test]
fn a_waiter_gets_the_lock_when_it_is_given_back() {
    let groups = Groups::new();
    let holder = groups.hold("g");
    let waiter = groups.start_waiter("g", &["echo", "ran"]);
    let status = groups.json(&["status"]);
    let group = &status["groups"][0];
    assert_eq!(group["waiters"].as_array().unwrap().len(), 1, "{status}");
    holder.finish().code(0);
    assert_eq!(waiter.wait().code(0).stdout(), "ran\n");
}

/// Requirement 110. Invariant 10.
#[test]
fn a_killed_wrapper_holds_until_its_command_is_gone() {
    let groups = Groups::new();
    let mut holder =
        held(&mut groups.group(&["exec", "g", "--", "sh", "-c", "echo held; echo $$; sleep 600"]));
    let command: u32 = holder.line().parse().unwrap();
    until("it is registered", || groups.statuses("g") == ["ACTIVE"]);
    holder.kill();
    assert!(!groups.flock_is_free("g"));
    groups.run(&["exec", "g", "--timeout", "0", "--", "true"]).code(75);
    // The shell scripts would remove the lock file of a process that is dead.
    groups.run(&["cleanup"]).code(0);
    let status = groups.json(&["status"]);
    assert_eq!(status["groups"][0]["active"][0]["pid"], command, "{status}");
    // The whole process group: the child of the shell shares the lock.
    Finished::of(Command::new("kill").args(["-9", "--", &format!("-{command}")])).code(0);
    until("the lock is free", || groups.flock_is_free("g"));
}

/// Requirements 104, 110, 111.
#[test]
fn the_lock_of_a_killed_shell_is_free_and_its_line_is_cleaned() {
    let groups = Groups::new();
    let script = r#"exec 200<>"$("$LK" group path g)"; "$LK" group acquire g --fd 200; echo held; read line"#;
    let mut shell = held(groups.world.command("bash").args(["-c", script]));
    assert!(groups.registry().contains(&format!("g:{}:g:", shell.pid())));
    assert!(!groups.flock_is_free("g"));
    shell.kill();
    assert!(groups.flock_is_free("g"));
    assert_eq!(groups.statuses("g"), ["ACTIVE"]);
    groups.run(&["cleanup"]).code(0);
    assert_eq!(groups.statuses("g"), ["ORPHAN_CLEANED"]);
    assert!(groups.lock_file("g").exists());
    groups.run(&["exec", "g", "--timeout", "0", "--", "true"]).code(0);
}

/// Requirement 108.
#[test]
fn the_next_holder_strikes_the_dead_one_off() {
    let groups = Groups::new();
    groups.write_registry(&format!("g:{}:g:{}:ACTIVE\n", processes::exited_pid(), now()));
    groups.run(&["exec", "g", "--", "true"]).code(0);
    assert_eq!(groups.statuses("g"), ["ORPHAN_CLEANED", "RELEASED"]);
}

/// Requirements 112, 152.
#[test]
fn a_missing_folder_is_made_again_for_its_owner_alone() {
    let groups = Groups::new();
    for _ in 0..2 {
        groups.run(&["exec", "g", "--", "true"]).code(0);
        assert_eq!(groups.locks().metadata().unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(groups.registry().lines().next(), Some("# Format: lock_id:pid:group_id:timestamp:status"));
        assert_eq!(groups.lock_file("g").metadata().unwrap().len(), 0);
        std::fs::remove_dir_all(groups.locks()).unwrap();
    }
}

/// Requirement 151.
#[test]
fn a_lock_file_that_was_replaced_meanwhile_is_not_held_by_two() {
    let groups = Groups::new();
    let holder = groups.hold("g");
    let script = r#"flock -n "$LOCK_DIR/g.lock" true || echo mine"#;
    let waiter = groups.start_waiter("g", &["sh", "-c", script]);
    std::fs::rename(groups.lock_file("g"), groups.path("away")).unwrap();
    std::fs::write(groups.lock_file("g"), "").unwrap();
    holder.finish().code(0);
    assert_eq!(waiter.wait().code(0).stdout(), "mine\n");
}

/// Requirements 143, 146, 147, 153.
#[test]
fn fifty_processes_on_five_groups_never_overlap() {
    let groups = Groups::new();
    let script = r#"mkdir "busy.$1" || exit 99; sleep 0.1; rmdir "busy.$1""#;
    let names: Vec<String> = (0..50).map(|number| format!("g{}", number % 5)).collect();
    let all: Vec<Vec<&str>> =
        names.iter().map(|name| vec!["exec", name, "--", "sh", "-c", script, "sh", name]).collect();
    groups.run_at_once(&all);
    groups.run(&["check-deadlock"]).code(0);
    for group in 0..5 {
        assert_eq!(groups.statuses(&format!("g{group}")), ["RELEASED"; 10]);
    }
}

/// Requirements 146, 147.
#[test]
fn ten_phases_of_three_groups_at_once_leave_no_deadlock() {
    let groups = Groups::new();
    let names: Vec<String> = (0..30).map(|number| format!("group-{}-{}", number / 3, number % 3)).collect();
    let all: Vec<Vec<&str>> = names.iter().map(|name| vec!["exec", name, "--", "true"]).collect();
    groups.run_at_once(&all);
    let checked = groups.json(&["check-deadlock"]);
    assert_eq!(checked["deadlocks"].as_array().unwrap().len(), 0);
    assert_eq!(groups.registry().lines().filter(|line| line.contains(":RELEASED:")).count(), 30);
}

/// Requirement 148.
#[test]
fn a_forged_line_in_the_registry_keeps_nobody_out() {
    let groups = Groups::new();
    groups.write_registry(&format!("g:1:g:{}:ACTIVE\n", now()));
    groups.run(&["exec", "g", "--timeout", "0", "--", "true"]).code(0);
}

/// Requirement 145.
#[test]
fn a_held_lock_costs_the_shell_one_descriptor() {
    let groups = Groups::new();
    let script = r#"
        eval "$("$LK" shell-init)"
        count() { set -- /proc/$$/fd/*; echo $#; }
        for n in 0 1 2 3 4 5 6 7 8; do
            [ $n = 0 ] || acquire_lock "g$n"
            count
        done"#;
    let output = groups.sh(script);
    let counts: Vec<u32> = output.stdout().lines().map(|line| line.parse().unwrap()).collect();
    let expected: Vec<u32> = (0..9).map(|held| counts[0] + held).collect();
    assert_eq!(counts, expected, "{output:?}");
}

/// Requirement 153.
#[test]
fn commits_under_one_group_do_not_collide() {
    let groups = Groups::new();
    let setup =
        "git init -q repo && cd repo && git config user.name t && git config user.email t@example.org";
    groups.sh(setup).code(0);
    let scripts: Vec<String> = (0..8)
        .map(|n| format!("cd repo && echo {n} >package.json && git add -A && git commit -qm {n}"))
        .collect();
    let all: Vec<Vec<&str>> =
        scripts.iter().map(|script| vec!["exec", "git", "--", "sh", "-c", script]).collect();
    groups.run_at_once(&all);
    let log = groups.sh("cd repo && git rev-list --count HEAD && git status --porcelain");
    assert_eq!(log.stdout(), "8\n");
}

/// Requirements 104, 110. Invariant 10.
#[test]
fn wrappers_that_are_killed_at_work_let_nobody_in_beside_their_commands() {
    let groups = Groups::new();
    let script = "mkdir busy || touch overlap; echo held; sleep 0.02; rmdir busy";
    std::thread::scope(|scope| {
        for number in 0..30 {
            let groups = &groups;
            scope.spawn(move || {
                let mut holder = held(&mut groups.group(&["exec", "g", "--", "sh", "-c", script]));
                if number % 3 == 0 {
                    holder.kill();
                } else {
                    holder.wait().code(0);
                }
            });
        }
    });
    until("the last command is gone", || groups.flock_is_free("g"));
    assert!(!groups.path("overlap").exists());
    groups.run(&["cleanup"]).code(0);
    let statuses = groups.statuses("g");
    // A wrapper that is killed before it has registered its command leaves no line.
    assert!((20..=30).contains(&statuses.len()), "{statuses:?}");
    assert!(statuses.iter().all(|status| status == "RELEASED" || status == "ORPHAN_CLEANED"), "{statuses:?}");
    assert!(statuses.iter().filter(|status| *status == "RELEASED").count() >= 20);
}

/// Requirement 154. Shared locks are those of `flock -s`.
#[test]
fn shared_locks_exclude_only_exclusive_ones() {
    let groups = Groups::new();
    let path = groups.lock_file("g");
    let path = path.to_str().unwrap();
    let flock = |how: &str| {
        groups.run(&["exec", "g", "--shared", "--timeout", "0", "--", "flock", how, "-n", path, "true"])
    };
    flock("-s").code(0);
    flock("-x").code(1);
    let inner = [groups.world.program(), "group", "exec", "g", "--timeout", "0", "--", "true"];
    groups.run(&[&["exec", "g", "--shared", "--"], &inner[..]].concat()).code(75);
    let inner = [groups.world.program(), "group", "exec", "g", "--shared", "--timeout", "0", "--", "true"];
    groups.run(&[&["exec", "g", "--shared", "--"], &inner[..]].concat()).code(0);
}
