//! The lock itself: taken, waited for, given back, lost by death.

use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use crate::site::{Holder, Site, Waiter, signal, text, until};

/// Requirements 95, 100, 104.
#[test]
fn what_flock_holds_we_do_not_get() {
    let site = Site::new();
    assert!(site.run(&["path", "g"]).status.success());
    let mut flock = site.command("flock");
    flock.arg(site.lock_file("g")).args(["sh", "-c", "echo held; read line || :"]);
    let holder = Holder::start(flock);
    let refused = site.run(&["exec", "g", "--timeout", "0", "--", "true"]);
    assert_eq!(refused.status.code(), Some(75), "{refused:?}");
    holder.end();
    assert!(site.run(&["exec", "g", "--timeout", "0", "--", "true"]).status.success());
}

/// Requirements 97, 104.
#[test]
fn what_we_hold_flock_does_not_get() {
    let site = Site::new();
    let holder = site.hold("g");
    assert!(!site.flock_is_free("g"));
    assert_eq!(site.statuses("g"), ["ACTIVE"]);
    assert_eq!(holder.end(), Some(0));
    assert!(site.flock_is_free("g"));
    assert_eq!(site.statuses("g"), ["RELEASED"]);
}

/// Requirement 97.
#[test]
fn the_commands_exit_code_is_passed_on() {
    let site = Site::new();
    let code = |script: &str| site.run(&["exec", "g", "--", "sh", "-c", script]).status.code();
    assert_eq!(code("exit 7"), Some(7));
    assert_eq!(code("kill -9 $$"), Some(137));
    assert_eq!(site.run(&["exec", "g", "--", "/no/such/program"]).status.code(), Some(127));
    assert_eq!(site.statuses("g"), ["RELEASED"; 3]);
}

/// Requirements 96, 98.
#[test]
fn the_shells_own_descriptor_carries_the_lock() {
    let site = Site::new();
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
    let output = site.sh(script);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let shell = text(&output.stdout).trim().to_owned();
    let registry = site.registry();
    assert!(registry.lines().skip(1).all(|line| line.starts_with(&format!("g:{shell}:g:"))), "{registry}");
    assert_eq!(site.statuses("g"), ["RELEASED", "ACTIVE"]);
}

/// Requirement 96.
#[test]
fn a_descriptor_of_another_file_is_a_mistake() {
    let site = Site::new();
    let output = site.sh(r#""$LK" group path g; exec 200<>other; "$LK" group acquire g --fd 200"#);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(text(&output.stderr).contains("hint: open it in the shell first"));
    let output = site.sh(r#""$LK" group acquire g --fd 77"#);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(text(&output.stderr).contains("descriptor 77 is not open"));
    assert!(site.flock_is_free("g"));
}

/// Requirements 95, 102, 105, 113, 115, 150.
#[test]
fn a_wait_in_vain_ends_in_time_and_names_the_holder() {
    let site = Site::new();
    let holder = site.hold("g");
    let began = Instant::now();
    let mut waiter = site.group(&["exec", "g", "--", "touch", "ran"]);
    let output = waiter.env("LOCK_TIMEOUT", "0.3").output().unwrap();
    assert!(began.elapsed() >= Duration::from_millis(300));
    assert_eq!(output.status.code(), Some(75));
    let told = text(&output.stderr);
    assert!(told.contains("timeout") && told.contains(&holder.pid().to_string()), "{told}");
    assert!(!site.dir.path().join("ran").exists());
    assert_eq!(site.statuses("g"), ["ACTIVE", "TIMEOUT"]);
    assert_eq!(site.registry().lines().last().unwrap().split(':').count(), 6);
    let json = site.json(&["exec", "g", "--timeout", "10ms", "--", "true"]);
    assert_eq!(json["error"]["reason_code"], "LOCK_TIMEOUT");
    assert!(!json["error"]["context"]["holders"].as_array().unwrap().is_empty());
    holder.end();
    let bad = site.group(&["exec", "g", "--", "true"]).env("LOCK_TIMEOUT", "soon").output().unwrap();
    assert_eq!(bad.status.code(), Some(2));
}

/// Requirement 109.
#[test]
fn a_signal_ends_a_wait_at_once_and_leaves_nothing() {
    for (name, code) in [("INT", 130), ("TERM", 143)] {
        let site = Site::new();
        let holder = site.hold("g");
        let waiter = Waiter::start(site.group(&["exec", "g", "--", "echo", "ran"]));
        signal(name, waiter.process.id());
        let (ended, data, _) = waiter.end();
        assert_eq!((ended, data.as_str()), (Some(code), ""));
        assert_eq!(site.statuses("g"), ["ACTIVE"]);
        holder.end();
        assert!(site.flock_is_free("g"));
    }
}

/// Requirement 95.
#[test]
fn a_waiter_gets_the_lock_when_it_is_given_back() {
    let site = Site::new();
    let holder = site.hold("g");
    let waiter = Waiter::start(site.group(&["exec", "g", "--", "echo", "ran"]));
    let status = site.json(&["status"]);
    let group = &status["groups"][0];
    assert_eq!(group["waiters"].as_array().unwrap().len(), 1, "{status}");
    holder.end();
    let (code, data, _) = waiter.end();
    assert_eq!((code, data.as_str()), (Some(0), "ran\n"));
}

/// Requirement 110. Invariant 10.
#[test]
fn a_killed_wrapper_holds_until_its_command_is_gone() {
    let site = Site::new();
    let mut holder =
        Holder::start(site.group(&["exec", "g", "--", "sh", "-c", "echo held; echo $$; sleep 600"]));
    let command: u32 = holder.line().parse().unwrap();
    holder.kill();
    assert!(!site.flock_is_free("g"));
    assert_eq!(site.run(&["exec", "g", "--timeout", "0", "--", "true"]).status.code(), Some(75));
    let cleaned = site.json(&["cleanup"]);
    assert_eq!(cleaned["still_locked"][0]["group"], "g", "{cleaned}");
    // The whole group: the shell's own child shares the lock as well.
    assert!(
        std::process::Command::new("kill")
            .args(["-9", "--", &format!("-{command}")])
            .status()
            .unwrap()
            .success()
    );
    until("the lock is free", || site.flock_is_free("g"));
}

/// Requirements 104, 110, 111.
#[test]
fn the_lock_of_a_killed_shell_is_free_and_its_line_is_cleaned() {
    let site = Site::new();
    let mut shell = site.command("bash");
    shell.args([
        "-c",
        r#"exec 200<>"$("$LK" group path g)"; "$LK" group acquire g --fd 200; echo held; read line"#,
    ]);
    let shell = Holder::start(shell);
    assert!(site.registry().contains(&format!("g:{}:g:", shell.pid())));
    assert!(!site.flock_is_free("g"));
    shell.kill();
    assert!(site.flock_is_free("g"));
    assert_eq!(site.statuses("g"), ["ACTIVE"]);
    assert!(site.run(&["cleanup"]).status.success());
    assert_eq!(site.statuses("g"), ["ORPHAN_CLEANED"]);
    assert!(site.lock_file("g").exists());
    assert!(site.run(&["exec", "g", "--timeout", "0", "--", "true"]).status.success());
}

/// Requirement 108.
#[test]
fn the_next_holder_strikes_the_dead_one_off() {
    let site = Site::new();
    site.write_registry(&format!("g:{}:g:{}:ACTIVE\n", crate::site::dead_pid(), crate::site::now()));
    assert!(site.run(&["exec", "g", "--", "true"]).status.success());
    assert_eq!(site.statuses("g"), ["ORPHAN_CLEANED", "RELEASED"]);
}

/// Requirements 112, 152.
#[test]
fn a_missing_folder_is_made_again_for_its_owner_alone() {
    let site = Site::new();
    for _ in 0..2 {
        assert!(site.run(&["exec", "g", "--", "true"]).status.success());
        assert_eq!(site.locks().metadata().unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(site.registry().lines().next(), Some("# Format: lock_id:pid:group_id:timestamp:status"));
        assert_eq!(site.lock_file("g").metadata().unwrap().len(), 0);
        std::fs::remove_dir_all(site.locks()).unwrap();
    }
}

/// Requirement 151.
#[test]
fn a_lock_file_that_was_replaced_meanwhile_is_not_held_by_two() {
    let site = Site::new();
    let holder = site.hold("g");
    let waiter = Waiter::start(site.group(&[
        "exec",
        "g",
        "--",
        "sh",
        "-c",
        "flock -n \"$LOCK_DIR/g.lock\" true || echo mine",
    ]));
    std::fs::rename(site.lock_file("g"), site.dir.path().join("away")).unwrap();
    std::fs::write(site.lock_file("g"), "").unwrap();
    holder.end();
    let (code, data, _) = waiter.end();
    assert_eq!((code, data.as_str()), (Some(0), "mine\n"));
}

/// Requirements 143, 146, 147, 153.
#[test]
fn fifty_processes_on_five_groups_never_overlap() {
    let site = Site::new();
    let script = r#"mkdir "busy.$1" || exit 99; sleep 0.1; rmdir "busy.$1""#;
    let processes: Vec<_> = (0..50)
        .map(|number| {
            let group = format!("g{}", number % 5);
            site.group(&["exec", &group, "--", "sh", "-c", script, "sh", &group]).spawn().unwrap()
        })
        .collect();
    let codes: Vec<_> = processes.into_iter().map(|mut process| process.wait().unwrap().code()).collect();
    assert_eq!(codes, [Some(0); 50]);
    assert!(site.run(&["check-deadlock"]).status.success());
    for group in 0..5 {
        assert_eq!(site.statuses(&format!("g{group}")), ["RELEASED"; 10]);
    }
}

/// Requirements 146, 147.
#[test]
fn ten_phases_of_three_groups_at_once_leave_no_deadlock() {
    let site = Site::new();
    let processes: Vec<_> = (0..10)
        .flat_map(|phase| (0..3).map(move |group| format!("group-{phase}-{group}")))
        .map(|group| site.group(&["exec", &group, "--", "true"]).spawn().unwrap())
        .collect();
    assert!(processes.into_iter().all(|mut process| process.wait().unwrap().success()));
    let checked = site.json(&["check-deadlock"]);
    assert_eq!(checked["deadlocks"].as_array().unwrap().len(), 0);
    assert_eq!(site.registry().lines().filter(|line| line.contains(":RELEASED:")).count(), 30);
}

/// Requirement 148.
#[test]
fn a_forged_line_in_the_registry_keeps_nobody_out() {
    let site = Site::new();
    site.write_registry(&format!("g:1:g:{}:ACTIVE\n", crate::site::now()));
    assert!(site.run(&["exec", "g", "--timeout", "0", "--", "true"]).status.success());
}

/// Requirement 145.
#[test]
fn a_held_lock_costs_the_shell_one_descriptor() {
    let site = Site::new();
    let script = r#"
        eval "$("$LK" shell-init)"
        count() { set -- /proc/$$/fd/*; echo $#; }
        for n in 0 1 2 3 4 5 6 7 8; do
            [ $n = 0 ] || acquire_lock "g$n"
            count
        done"#;
    let output = site.sh(script);
    let counts: Vec<u32> = text(&output.stdout).lines().map(|line| line.parse().unwrap()).collect();
    let expected: Vec<u32> = (0..9).map(|held| counts[0] + held).collect();
    assert_eq!(counts, expected, "{output:?}");
}

/// Requirement 153.
#[test]
fn commits_under_one_group_do_not_collide() {
    let site = Site::new();
    let setup =
        "git init -q repo && cd repo && git config user.name t && git config user.email t@example.org";
    assert!(site.sh(setup).status.success());
    let commits: Vec<_> = (0..8)
        .map(|n| {
            let script = format!("cd repo && echo {n} >package.json && git add -A && git commit -qm {n}");
            site.group(&["exec", "git", "--", "sh", "-c", &script]).spawn().unwrap()
        })
        .collect();
    assert!(commits.into_iter().all(|mut process| process.wait().unwrap().success()));
    let log = site.sh("cd repo && git rev-list --count HEAD && git status --porcelain");
    assert_eq!(text(&log.stdout), "8\n");
}

/// Requirements 104, 110. Invariant 10.
#[test]
fn wrappers_that_are_killed_at_work_let_nobody_in_beside_their_commands() {
    let site = Site::new();
    let script = "mkdir busy || touch overlap; echo held; sleep 0.02; rmdir busy";
    std::thread::scope(|scope| {
        for number in 0..30 {
            let site = &site;
            scope.spawn(move || {
                let holder = Holder::start(site.group(&["exec", "g", "--", "sh", "-c", script]));
                if number % 3 == 0 {
                    holder.kill();
                } else {
                    assert_eq!(holder.end(), Some(0));
                }
            });
        }
    });
    until("the last command is gone", || site.flock_is_free("g"));
    assert!(!site.dir.path().join("overlap").exists());
    assert!(site.run(&["cleanup"]).status.success());
    let statuses = site.statuses("g");
    assert_eq!(statuses.len(), 30);
    assert!(statuses.iter().all(|status| status == "RELEASED" || status == "ORPHAN_CLEANED"), "{statuses:?}");
    assert!(statuses.iter().filter(|status| *status == "RELEASED").count() >= 20);
}
