//! `renew`, `release`, `upgrade`, `downgrade`, `fence`.

use crate::env::Env;

fn token_of(env: &Env, lease: &str) -> String {
    let listing = env.run(["locks", "--json"]).code(0).json();
    let leases = listing["leases"].as_array().unwrap().clone();
    leases.iter().find(|one| one["id"] == lease).unwrap()["token"].to_string()
}

#[test]
fn a_lease_is_renewed_and_released_under_its_token_only() {
    let env = Env::new();
    let lease = env.acquire(&["db"]);
    let token = token_of(&env, &lease);
    env.run(["renew", &lease, "--token", &token, "--ttl", "1h"]).code(0).says("renewed");
    let stale = (token.parse::<u64>().unwrap() + 1).to_string();
    for command in ["renew", "release", "upgrade", "downgrade"] {
        env.run([command, &lease, "--token", &stale]).code(75).says("is not current").says("hint: ");
    }
    let answer = env.run(["release", &lease, "--token", &token, "--json"]).code(0).json();
    assert_eq!((&answer["status"], &answer["lease"]["id"]), (&"released".into(), &lease.as_str().into()));
    env.run(["release", &lease]).code(75).says("is not held");
}

#[test]
fn nothing_is_made_by_asking_about_a_lease_that_never_was() {
    let env = Env::new();
    let before = env.tree();
    for command in ["renew", "release", "upgrade", "downgrade"] {
        env.run([command, "L1"]).code(75).says("L1 is not held");
    }
    env.run(["fence", "db", "1"]).code(75).says("nobody holds it");
    assert_eq!(env.tree(), before);
}

/// Invariant 2.
#[test]
fn only_the_current_token_passes_the_fence() {
    let env = Env::new();
    let old = env.acquire(&["db"]);
    let old_token = token_of(&env, &old);
    env.run(["fence", "db", &old_token]).code(0).in_silence();
    env.run(["locks", "break", &old, "--yes"]).code(0);
    let new = env.acquire(&["db"]);
    let new_token = token_of(&env, &new);
    assert!(new_token.parse::<u64>().unwrap() > old_token.parse::<u64>().unwrap());
    env.run(["fence", "db", &old_token]).code(75).says(&new_token).says("hint: ");
    env.run(["renew", &old]).code(75);
    let passed = env.run(["fence", "db", &new_token, "--json"]).code(0).json();
    assert_eq!((&passed["status"], &passed["leases"][0]["id"]), (&"current".into(), &new.as_str().into()));
}

/// Requirements 154 and 156.
#[test]
fn a_reader_becomes_a_writer_when_it_is_alone_and_back() {
    let env = Env::new();
    let (one, two) = (env.acquire(&["docs", "--shared"]), env.acquire(&["docs", "--shared"]));
    env.run(["upgrade", &one]).code(75).says("docs").says("hint: ");
    env.run(["release", &two]).code(0);
    let stronger = env.run(["upgrade", &one, "--json"]).code(0).json();
    assert_eq!(
        (&stronger["status"], &stronger["lease"]["resources"][0]["mode"]),
        (&"upgraded".into(), &"exclusive".into())
    );
    env.run(["acquire", "docs", "--shared"]).code(75);
    env.run(["downgrade", &one]).code(0).says("downgraded");
    env.acquire(&["docs", "--shared"]);
}

#[test]
fn an_upgrade_waits_for_the_other_readers() {
    let env = Env::new();
    let (one, two) = (env.acquire(&["docs", "--shared"]), env.acquire(&["docs", "--shared"]));
    let waiter = env.start(["upgrade", &one, "--wait=60s"]);
    env.until_waiting(1);
    env.run(["release", &two]).code(0);
    waiter.wait().code(0).says("upgraded");
}

#[test]
fn a_stranger_does_not_release_by_accident() {
    let env = Env::new();
    let lease = env.acquire(&["db", "--owner", "worker:one"]);
    let env = env.set("LOCKKEEPER_OWNER", "worker:two");
    env.run(["release", &lease]).code(75).says("belongs to worker:one").says("hint: ");
    env.run(["release", &lease, "--json"]).code(75).prints("NOT_THE_OWNER");
}
