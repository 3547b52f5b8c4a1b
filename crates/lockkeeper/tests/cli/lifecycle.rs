//! `renew`, `release`, `upgrade`, `downgrade`, `fence`.

use lockkeeper_testing::{Started, World, until, world};

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

/// A lease of `exec` without a TTL: a stranger is refused, and the command goes on.
#[test]
fn a_stranger_neither_releases_nor_changes_a_live_lease() {
    let world = world!();
    let mut holder =
        world.start(["exec", "db", "--shared", "--", "sh", "-c", "echo begun; read line; echo done"]);
    holder.line();
    for command in
        [&["release", "L1"][..], &["downgrade", "L1"], &["upgrade", "L1"], &["renew", "L1", "--ttl", "1s"]]
    {
        world.run(command).code(75).says("L1 belongs to exec:").says("--token").says("locks break L1 --yes");
        world.run([command, &["--owner", "worker:two"]].concat()).code(75).says("belongs to");
        world.run([command, &["--json"]].concat()).code(75).prints("NOT_THE_OWNER");
    }
    holder.send("\n");
    assert_eq!(holder.line(), "done");
    holder.wait().code(0);
}

/// Invariant 10. The owner, and a caller that names the token, may end a lease. The command is stopped first, also without a TTL.
#[test]
fn a_command_whose_lease_its_owner_releases_is_stopped_before_the_next_holder_begins() {
    for proof in [&["--owner", "worker:one"][..], &["--token", "1"]] {
        let world = world!();
        let script = "trap 'echo > stopped; exit 0' TERM; echo begun; sleep 600 & wait";
        let mut holder = world.start(["exec", "db", "--owner", "worker:one", "--", "sh", "-c", script]);
        holder.line();
        let next = world.start(["exec", "db", "--quiet", "--", "test", "-e", "stopped"]);
        world.until_waiting(1);
        world.run([&["release", "L1"][..], proof].concat()).code(0).says("released");
        holder.wait().code(76);
        next.wait().code(0);
    }
}

/// The process that a lease was made for, and its descendants, need neither owner nor token.
#[test]
fn a_lease_by_time_alone_is_released_by_the_family_that_made_it() {
    let world = world!();
    let lease = world.acquire(&["db"]);
    world.run(["release", &lease]).code(0);
    let other = Started::of(std::process::Command::new("sleep").arg("600"));
    let world = world.set("LOCKKEEPER_PID", other.pid().to_string());
    let of_another = world.acquire(&["db"]);
    world.run(["release", &of_another]).code(75).says("belongs to");
}

/// Without `--ticket`, tickets end with their command. With it, they stay in line, and their owner may leave.
#[test]
fn a_ticket_is_released_by_its_owner_and_called_a_ticket() {
    let world = world!();
    world.run(["release", "T1"]).code(75).says("T1 is not in line");
    world.run(["acquire", "db", "--ttl", "1m", "--owner", "worker:1"]).code(0);
    world.run(["release", "T9"]).code(75).says("T9 is not in line").says("whether L9 is held");
    let wait = |owner: &str| {
        let words = ["acquire", "db", "--ttl", "1m", "--wait=1ms", "--ticket", "x", "--owner", owner];
        world.run(words).code(75);
        world.json(&["locks"])["waiters"][0]["id"].as_str().unwrap().to_owned()
    };
    let ticket = wait("worker:2");
    for command in ["renew", "upgrade", "downgrade"] {
        let words = [command, &ticket, "--owner", "worker:2"];
        world.run(words).code(75).says(&format!("{ticket} waits in line")).says("release T");
    }
    let stranger = ["release", &ticket, "--owner", "worker:3"];
    world.run(stranger).code(75).says(&format!("{ticket} belongs to worker:2")).says("locks break T");
    assert_eq!(world.json(&["locks"])["waiters"].as_array().unwrap().len(), 1);
    world
        .run(["release", &ticket, "--owner", "worker:2"])
        .code(0)
        .says(&format!("{ticket} (db) left the line"));
    assert!(world.json(&["locks"])["waiters"].as_array().unwrap().is_empty());
    let ticket = wait("worker:2");
    world.run(["locks", "break", &ticket]).code(2).says(&format!("locks break {ticket} --yes"));
    world.run(["locks", "break", &ticket, "--yes"]).code(0).says("left the line");
    assert!(world.json(&["locks"])["waiters"].as_array().unwrap().is_empty());
}

/// A process that sleeps with its ticket hears that the ticket is gone.
#[test]
fn a_waiter_whose_ticket_is_broken_is_told() {
    let world = world!();
    world.run(["acquire", "db", "--ttl", "1m", "--owner", "worker:1"]).code(0);
    let waiter = world.start(["exec", "db", "--owner", "worker:2", "--", "touch", "executed"]);
    let mut ticket = None;
    until("it waits", || {
        ticket = world.json(&["locks"])["waiters"][0]["ticket"].as_str().map(str::to_owned);
        ticket.is_some()
    });
    world.run(["locks", "break", &ticket.unwrap(), "--yes"]).code(0);
    waiter.wait().code(75);
    assert!(!world.cwd().join("executed").exists());
}
