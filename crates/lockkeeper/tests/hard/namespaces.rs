//! Other boots, time namespaces and pid namespaces (containers) that share one state folder. They are made with `unshare(1)`,
//! which needs root.

use std::process::Command;

use lockkeeper_testing::skip;

use lockkeeper_testing::Finished;

use crate::site::{Site, Started};

/// Whether namespaces can be made here.
fn can_unshare() -> bool {
    let made = Command::new("unshare").args(["-m", "-p", "-f", "-T", "--boottime", "1000", "true"]).output();
    made.is_ok_and(|made| made.status.success())
}

fn answer(command: &mut Command) -> Finished {
    Finished::of(command)
}

/// A command that sees another boot id, as a virtual machine does that shares the folder with its host.
fn in_another_boot(site: &Site, args: &[&str]) -> Command {
    let boot_id = site.folder().join("boot_id");
    std::fs::write(&boot_id, "11111111-2222-3333-4444-555555555555\n").unwrap();
    let script =
        format!("mount --bind '{}' /proc/sys/kernel/random/boot_id && exec \"$@\"", boot_id.display());
    site.command_under(&["unshare", "-m", "sh", "-c", &script, "sh"], args)
}

/// Invariants 1, 3. Two boots at the same time are two machines: neither removes what the other uses.
#[test]
fn another_boot_does_not_remove_leases_that_may_be_held() {
    if !can_unshare() {
        return skip("root, to make namespaces");
    }
    let site = Site::new();
    let script = "echo $$; read line";
    let mut holder = site.start(&["exec", "db", "--", "sh", "-c", script]);
    holder.line();
    let refused = answer(&mut in_another_boot(&site, &["exec", "db", "--no-wait", "--", "true"]));
    assert_eq!(refused.exit_code(), Some(69), "{refused:?}");
    assert!(
        refused.stderr().contains("processes hold locks there") && refused.stderr().contains("--dir"),
        "{refused:?}"
    );
    assert_eq!(site.leases().len(), 1);
    holder.close_input();
    assert!(holder.end().code().is_some());
    let refused = answer(&mut in_another_boot(&site, &["--json", "exec", "db", "--no-wait", "--", "true"]));
    let text = format!("{}{}", refused.stdout(), refused.stderr());
    assert!(text.contains("STORE_IN_USE_ELSEWHERE") && text.contains("since this machine started"), "{text}");
    // The way out that the hint names.
    let last = site.pass_through("db");
    for name in ["leases.db", "leases.db-wal", "leases.db-shm"] {
        let _ = std::fs::remove_file(site.store().join(name));
    }
    let next =
        answer(&mut in_another_boot(&site, &["exec", "db", "--", "sh", "-c", "echo $LOCKKEEPER_TOKEN"]));
    assert!(next.stdout().trim().parse::<u64>().unwrap() > last, "{next:?}");
}

/// Invariant 5. The clock since boot differs by a day in the namespace, but not the time that a lease has left.
#[test]
fn a_time_namespace_neither_frees_nor_freezes() {
    if !can_unshare() {
        return skip("root, to make namespaces");
    }
    for shift in ["86400", "1000"] {
        let site = Site::new();
        let inside = ["unshare", "-T", "--boottime", shift, "-f"];
        let taken = site.run(&["acquire", "db", "--ttl", "1h", "--owner", "test:1"]);
        assert_eq!(taken.exit_code(), Some(0), "{taken:?}");
        let refused = answer(&mut site.command_under(&inside, &["acquire", "db", "--ttl", "1h"]));
        assert_eq!(refused.exit_code(), Some(75), "{refused:?}");
        let other = ["acquire", "other", "--ttl", "1h", "--owner", "test:2"];
        assert_eq!(answer(&mut site.command_under(&inside, &other)).exit_code(), Some(0));
        assert_eq!(site.run(&["acquire", "other", "--ttl", "1h"]).exit_code(), Some(75));
        // A process has one start time, wherever it is read.
        let own = std::process::id().to_string();
        let tied = answer(&mut site.command_under(&inside, &["acquire", "tied", "--pid", &own]));
        assert_eq!(tied.exit_code(), Some(0), "{tied:?}");
        assert_eq!(site.run(&["acquire", "tied", "--ttl", "1h"]).exit_code(), Some(75));
        assert_eq!(site.run(&["acquire", "outside", "--pid", &own]).exit_code(), Some(0));
        let refused = answer(&mut site.command_under(&inside, &["acquire", "outside", "--ttl", "1h"]));
        assert_eq!(refused.exit_code(), Some(75), "{refused:?}");
    }
}

/// Invariants 3, 4. The initial pid namespace sees every process, so it knows when one of a container is gone.
#[test]
fn a_lease_of_a_container_that_is_gone_is_free() {
    if !can_unshare() {
        return skip("root, to make namespaces");
    }
    let site = Site::new();
    let script = "\"$0\" \"$@\" --pid $$ && echo held && read line";
    let wrapper = ["unshare", "-p", "-f", "--mount-proc", "--kill-child", "sh", "-c", script];
    let mut container = Started::of(&mut site.command_under(&wrapper, &["acquire", "db"]));
    while container.line() != "held" {}
    let is_initial = std::fs::read_link("/proc/self/ns/pid").unwrap().ends_with("pid:[4026531836]");
    assert_eq!(site.run(&["exec", "db", "--no-wait", "--", "true"]).exit_code(), Some(75));
    container.close_input();
    container.end();
    if !is_initial {
        return skip("the initial pid namespace, to see all processes");
    }
    site.pass_through("db");
}
