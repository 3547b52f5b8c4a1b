//! Wall clocks that jump: our own leases are dated by a clock that nobody sets.

use std::process::Command;

use lockkeeper_testing::Finished;

use crate::site::{Site, Started, end};

/// Runs a command as if the wall clock stood a day off.
fn shifted(site: &Site, shift: &str, args: &[&str]) -> Finished {
    // These tests need faketime(1).
    Finished::of(&mut site.command_under(&["faketime", "-f", shift], args))
}

#[test]
fn faketime_shifts_the_wall_clock_here() {
    let year = |shift: &str| {
        let output = Command::new("faketime").args(["-f", shift, "date", "+%s"]).output();
        let text = String::from_utf8(output.expect("these tests need faketime(1)").stdout).unwrap();
        text.trim().parse::<i64>().unwrap()
    };
    assert!(year("+1d") - year("-1d") > 170_000);
}

/// Invariants 3, 5. A day forward frees nothing, a day back makes nothing last longer.
#[test]
fn a_wall_clock_that_jumps_neither_frees_nor_freezes() {
    for shift in ["+1d", "-1d"] {
        let site = Site::new();
        let taken = shifted(&site, "+0d", &["acquire", "db", "--ttl", "1h", "--owner", "test:1"]);
        assert_eq!(taken.exit_code(), Some(0), "{taken:?}");
        let refused = shifted(&site, shift, &["acquire", "db", "--ttl", "1h", "--owner", "test:2"]);
        assert_eq!(refused.exit_code(), Some(75), "{shift}: {refused:?}");
        let taken = taken.stdout();
        let lease = taken.trim();
        assert_eq!(shifted(&site, shift, &["renew", lease]).exit_code(), Some(0), "{shift}");
        assert_eq!(
            shifted(&site, shift, &["release", lease, "--owner", "test:1"]).exit_code(),
            Some(0),
            "{shift}"
        );
        // Taken a day off, it ends in its time all the same.
        assert_eq!(
            shifted(&site, shift, &["acquire", "db", "--ttl", "1s", "--owner", "test:1"]).exit_code(),
            Some(0)
        );
        let next = site.run(&["acquire", "db", "--wait=50s", "--quiet", "--ttl", "1h", "--owner", "test:2"]);
        assert_eq!(next.exit_code(), Some(0), "{shift}: {next:?}");
    }
}

/// Invariants 3, 4. A wait and a hand-off between processes whose wall clocks differ by two days.
#[test]
fn processes_with_different_wall_clocks_wait_for_each_other() {
    let site = Site::new();
    let script = "echo $$; exec sleep 600";
    let ahead = ["faketime", "-f", "+1d"];
    let mut holder = Started::of(
        &mut site.command_under(&ahead, &["exec", "db", "--ttl", "1s", "--", "sh", "-c", script]),
    );
    let command = holder.number();
    let mut waiter = Started::of(
        &mut site
            .command_under(&["faketime", "-f", "-1d"], &["exec", "db", "--quiet", "--", "echo", "entered"]),
    );
    site.until_waiting(1);
    let refused = shifted(&site, "+1d", &["acquire", "db", "--wait=2s", "--quiet", "--owner", "test:1"]);
    assert_eq!(refused.exit_code(), Some(75), "{refused:?}");
    end(command);
    assert_eq!(waiter.line(), "entered");
    assert!(waiter.end().success());
    assert_eq!(holder.end().code(), Some(137));
}
