//! Leases: the full pass removes those of dead holders, keeps those of living ones, and names the unknown.

use std::process::Command;

use lockkeeper_testing::{Finished, Started, skip};

use crate::doctor::Doctor;

/// Takes a lease for a process that then ends, and returns the id of the lease.
fn lease_of_a_dead_process(doctor: &Doctor, name: &str) -> String {
    let line = format!("'{}' acquire {name} --pid $$", doctor.world.program());
    let finished = Finished::of(doctor.world.command("sh").args(["-c", &format!("{line}; exit 0")]));
    finished.code(0).stdout().trim_end().to_owned()
}

/// Requirement 193. The dead are told of and put away, the living stay, and a second full pass finds nothing left.
#[test]
fn the_full_pass_puts_away_what_the_dead_left_and_nothing_else() {
    let doctor = Doctor::new();
    let dead = lease_of_a_dead_process(&doctor, "dead");
    let expired =
        doctor.world.run(["acquire", "short", "--ttl", "1ms"]).code(0).stdout().trim_end().to_owned();
    let kept = doctor.world.acquire(&["kept"]);
    let mut holder = doctor.world.hold(&["held"]);
    let mut waiter = doctor.world.start(["exec", "held", "--", "true"]);
    doctor.world.until_waiting(1);
    waiter.kill();
    let quick = doctor.quick();
    assert_eq!(quick.troubles(), ["leases"], "{}", quick.value);
    quick
        .says("leases", "WARN", &dead)
        .says("leases", "WARN", &expired)
        .says("leases", "WARN", "T")
        .fix("leases", "--full");
    assert!(quick.recovered("leases").is_empty());
    let full = doctor.full();
    full.says("leases", "PASS", "none belongs to a dead holder");
    let recovered = full.recovered("leases").join(", ");
    assert_eq!(full.recovered("leases").len(), 3, "{recovered}");
    assert!(
        recovered.contains(&dead) && recovered.contains(&expired) && recovered.contains("T"),
        "{recovered}"
    );
    assert_eq!(full.value["summary"]["recovered_count"], 3);
    let again = doctor.full();
    assert_eq!(again.troubles(), [""; 0]);
    assert_eq!(again.value["summary"]["recovered_count"], 0);
    let listing = doctor.world.run(["locks", "--json"]).code(0).json();
    let left: Vec<&str> =
        listing["leases"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap()).collect();
    assert!(left.len() == 2 && left.contains(&kept.as_str()), "{listing}");
    holder.kill();
}

/// Invariant 5. One container cannot judge the processes of another one.
#[test]
fn a_holder_of_another_pid_namespace_is_named_and_left_alone() {
    let doctor = Doctor::new();
    let line = format!("'{}' acquire db --pid $$ && read line", doctor.world.program());
    let unshare = ["--pid", "--fork", "--mount-proc", "sh", "-c", &line];
    let probe = ["--pid", "--fork", "--mount-proc", "true"];
    if !Finished::of(Command::new("unshare").args(probe)).succeeded() {
        return skip("a pid namespace: root or CAP_SYS_ADMIN");
    }
    let mut elsewhere = Started::of(doctor.world.command("unshare").args(unshare));
    let lease = elsewhere.line();
    let full = doctor.under(&["unshare", "--pid", "--fork", "--mount-proc"], &["--full"]);
    full.says("holders", "WARN", &format!("{lease} of ")).says("holders", "WARN", "another pid namespace");
    let fix = full.text("holders", "fix").to_owned();
    assert!(fix.ends_with(&format!("lockkeeper locks break {lease} --yes")), "{fix}");
    assert!(full.recovered("leases").is_empty());
    doctor.world.run(["acquire", "db", "--owner", "test:2"]).code(75);
    elsewhere.finish().code(0);
    doctor.world.shell(&format!("LOCKKEEPER_GRACE=0s lockkeeper locks break {lease} --yes")).code(0);
    assert_eq!(doctor.quick().troubles(), [""; 0]);
}
