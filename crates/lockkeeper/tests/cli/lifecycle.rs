//! `renew`, `release`, `upgrade`, `downgrade`, `fence`.

use lockkeeper_testing::{World, world};

fn token_of(world: &World, lease: &str) -> String {
    let listing = world.run(["locks", "--json"]).code(0).json();
    let leases = listing["leases"].as_array().unwrap().clone();
    leases.iter().find(|one| one["id"] == lease).unwrap()["token"].to_string()
}

#[test]
fn a_lease_is_renewed_and_released_under_its_token_only() {
    let world = world!();
    let lease = world.acquire(&["db"]);
    let token = token_of(&world, &lease);
    world.run(["renew", &lease, "--token", &token, "--ttl", "1h"]).code(0).says("renewed");
    let stale = (token.parse::<u64>().unwrap() + 1).to_string();
    for command in ["renew", "release", "upgrade", "downgrade"] {
        world.run([command, &lease, "--token", &stale]).code(75).says("is not current").says("hint: ");
    }
    let answer = world.run(["release", &lease, "--token", &token, "--json"]).code(0).json();
    assert_eq!((&answer["status"], &answer["lease"]["id"]), (&"released".into(), &lease.as_str().into()));
    world.run(["release", &lease]).code(75).says("is not held");
}

#[test]
fn nothing_is_made_by_asking_about_a_lease_that_never_was() {
    let world = world!();
    let before = world.tree();
    for command in ["renew", "release", "upgrade", "downgrade"] {
        world.run([command, "L1"]).code(75).says("L1 is not held");
    }
    world.run(["fence", "db", "1"]).code(75).says("nobody holds it");
    assert_eq!(world.tree(), before);
}

/// Invariant 2.
#[test]
fn only_the_current_token_passes_the_fence() {
    let world = world!();
    let old = world.acquire(&["db"]);
    let old_token = token_of(&world, &old);
    world.run(["fence", "db", &old_token]).code(0).silent();
    world.run(["locks", "break", &old, "--yes"]).code(0);
    let new = world.acquire(&["db"]);
    let new_token = token_of(&world, &new);
    assert!(new_token.parse::<u64>().unwrap() > old_token.parse::<u64>().unwrap());
    world.run(["fence", "db", &old_token]).code(75).says(&new_token).says("hint: ");
    world.run(["renew", &old]).code(75);
    let passed = world.run(["fence", "db", &new_token, "--json"]).code(0).json();
    assert_eq!((&passed["status"], &passed["leases"][0]["id"]), (&"current".into(), &new.as_str().into()));
}

/// Requirements 154 and 156.
#[test]
fn a_reader_becomes_a_writer_when_it_is_alone_and_back() {
    let world = world!();
    let (one, two) = (world.acquire(&["docs", "--shared"]), world.acquire(&["docs", "--shared"]));
    world.run(["upgrade", &one]).code(75).says("docs").says("hint: ");
    world.run(["release", &two]).code(0);
    let stronger = world.run(["upgrade", &one, "--json"]).code(0).json();
    assert_eq!(
        (&stronger["status"], &stronger["lease"]["resources"][0]["mode"]),
        (&"upgraded".into(), &"exclusive".into())
    );
    world.run(["acquire", "docs", "--shared"]).code(75);
    world.run(["downgrade", &one]).code(0).says("downgraded");
    world.acquire(&["docs", "--shared"]);
}

#[test]
fn an_upgrade_waits_for_the_other_readers() {
    let world = world!();
    let (one, two) = (world.acquire(&["docs", "--shared"]), world.acquire(&["docs", "--shared"]));
    let waiter = world.start(["upgrade", &one, "--wait=60s"]);
    world.until_waiting(1);
    world.run(["release", &two]).code(0);
    waiter.wait().code(0).says("upgraded");
}

#[test]
fn a_stranger_does_not_release_by_accident() {
    let world = world!();
    let lease = world.acquire(&["db", "--owner", "worker:one"]);
    let world = world.set("LOCKKEEPER_OWNER", "worker:two");
    world.run(["release", &lease]).code(75).says("belongs to worker:one").says("hint: ");
    world.run(["release", &lease, "--json"]).code(75).prints("NOT_THE_OWNER");
}
