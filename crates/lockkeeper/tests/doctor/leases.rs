//! Native leases: what the dead left is put away, the living are not, and who cannot be judged is named.

use std::process::Command;

use crate::clinic::Clinic;

/// A process that has ended and was waited for, with a lease that it had.
fn lease_of_a_dead_process(clinic: &Clinic, name: &str) -> String {
    let line = format!("'{}' acquire {name} --pid $$", crate::env::PROGRAM);
    let output = clinic.env.command("sh").args(["-c", &format!("{line}; exit 0")]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

/// Requirement 193. The dead are told of and put away, the living stay, and a second full pass finds nothing left.
#[test]
fn the_full_pass_puts_away_what_the_dead_left_and_nothing_else() {
    let clinic = Clinic::new();
    let dead = lease_of_a_dead_process(&clinic, "dead");
    let expired = clinic.env.run(["acquire", "short", "--ttl", "1ms"]).code(0).stdout().trim_end().to_owned();
    let kept = clinic.env.acquire(&["kept"]);
    let mut holder = clinic.env.hold(&["held"]);
    let mut waiter = clinic.env.start(["exec", "held", "--", "true"]);
    clinic.env.until_waiting(1);
    waiter.kill();
    let quick = clinic.quick();
    assert_eq!(quick.troubles(), ["leases"], "{}", quick.value);
    quick
        .says("leases", "WARN", &dead)
        .says("leases", "WARN", &expired)
        .says("leases", "WARN", "T")
        .fix("leases", "--full");
    assert!(quick.recovered("leases").is_empty());
    let full = clinic.full();
    full.says("leases", "PASS", "none is left");
    let recovered = full.recovered("leases").join(", ");
    assert_eq!(full.recovered("leases").len(), 3, "{recovered}");
    assert!(
        recovered.contains(&dead) && recovered.contains(&expired) && recovered.contains("T"),
        "{recovered}"
    );
    assert_eq!(full.value["summary"]["recovered_count"], 3);
    let again = clinic.full();
    assert_eq!(again.troubles(), [""; 0]);
    assert_eq!(again.value["summary"]["recovered_count"], 0);
    let listing = clinic.env.run(["locks", "--json"]).code(0).json();
    let left: Vec<&str> =
        listing["leases"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap()).collect();
    assert!(left.len() == 2 && left.contains(&kept.as_str()), "{listing}");
    holder.kill();
}

/// Invariant 5.
#[test]
fn a_holder_of_another_pid_namespace_is_named_and_left_alone() {
    let clinic = Clinic::new();
    let line = format!("'{}' acquire db --pid $$ && read line", crate::env::PROGRAM);
    let unshare = ["--pid", "--fork", "--mount-proc", "sh", "-c", &line];
    if !Command::new("unshare").args(["--pid", "--fork", "--mount-proc", "true"]).status().unwrap().success()
    {
        eprintln!("SKIPPED: a pid namespace needs root (or CAP_SYS_ADMIN); nothing was checked");
        return;
    }
    let mut elsewhere = clinic.env.command("unshare");
    elsewhere.args(unshare).stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut elsewhere = elsewhere.spawn().unwrap();
    let mut lease = String::new();
    let mut output = std::io::BufReader::new(elsewhere.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut output, &mut lease).unwrap();
    let lease = lease.trim_end();
    let full = clinic.full();
    full.says("holders", "WARN", &format!("{lease} of ")).says("holders", "WARN", "another pid namespace");
    let fix = full.text("holders", "fix").to_owned();
    assert!(fix.ends_with(&format!("lockkeeper locks break {lease} --yes")), "{fix}");
    assert!(full.recovered("leases").is_empty());
    let _ = clinic.env.run(["acquire", "db", "--owner", "test:2"]).code(75);
    drop(elsewhere.stdin.take());
    elsewhere.wait().unwrap();
    let _ = clinic.env.shell(&format!("LOCKKEEPER_GRACE=0s lockkeeper locks break {lease} --yes")).code(0);
    assert_eq!(clinic.quick().troubles(), [""; 0]);
}
