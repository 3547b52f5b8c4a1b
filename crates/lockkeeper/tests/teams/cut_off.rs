//! A machine whose link to the server is cut without a word.

use lockkeeper_testing::until;

use super::team::{Machine, Team};

/// Invariant 1. The command is stopped before its session can end, so the next holder never runs beside it.
#[test]
fn a_holder_that_is_cut_off_stops_its_command_before_another_machine_gets_the_lease() {
    let Some(team) = Team::with_session("8s") else { return };
    // It ignores TERM, so that only KILL ends it.
    is_stopped_before_the_next_begins(&team, &team.machine(), "trap '' TERM;");
}

/// Invariant 1. A call that waits for the server, for almost as long as the session lasts, does not delay the stop.
#[test]
fn a_holder_that_is_cut_off_is_stopped_in_time_although_calls_wait_long_for_the_server() {
    let Some(team) = Team::with_session("10s") else { return };
    let Machine { world, link } = team.machine();
    let world = world.set("LOCKKEEPER_CONNECT_TIMEOUT", "9s").set("LOCKKEEPER_GRACE", "2s");
    is_stopped_before_the_next_begins(&team, &Machine { world, link }, "");
}

fn is_stopped_before_the_next_begins(team: &Team, one: &Machine, first: &str) {
    let other = team.machine();
    let record = one.world.path("record");
    let script = format!("{first} > up; while :; do echo A >> '{}'; sleep 0.05; done", record.display());
    let holder = one.world.start(["exec", "db", "--", "sh", "-c", &script]);
    until("the command runs", || one.world.path("up").exists());
    let next = other.world.start([
        "exec",
        "db",
        "--",
        "sh",
        "-c",
        &format!("echo B >> '{}'; sleep 1", record.display()),
    ]);
    other.world.until_waiting(1);
    one.link.silence(true);
    holder.wait().code(76).says("could not be renewed in time");
    next.wait().code(0);
    let lines = std::fs::read_to_string(&record).unwrap();
    let after = lines.lines().skip_while(|line| *line == "A").collect::<Vec<_>>();
    assert_eq!(after, ["B"], "nothing of the first holder came after the second began");
}

/// Invariant 1. The wrapper is killed, and its guardian cannot reach the server: it stops the command in time.
#[test]
fn a_command_whose_wrapper_was_killed_is_stopped_before_another_machine_gets_the_lease() {
    let Some(team) = Team::with_session("10s") else { return };
    let (one, other) = (team.machine(), team.machine());
    let record = one.world.path("record");
    let script = format!("> up; while :; do echo A >> '{}'; sleep 0.05; done", record.display());
    let mut holder = one.world.start(["exec", "db", "--", "sh", "-c", &script]);
    until("the command runs", || one.world.path("up").exists());
    let line = format!("echo B >> '{}'; sleep 1", record.display());
    let next = other.world.start(["exec", "db", "--", "sh", "-c", &line]);
    other.world.until_waiting(1);
    one.link.silence(true);
    holder.kill();
    next.wait().code(0);
    let lines = std::fs::read_to_string(&record).unwrap();
    let after = lines.lines().skip_while(|line| *line == "A").collect::<Vec<_>>();
    assert_eq!(after, ["B"], "nothing of the first holder came after the second began");
}

#[test]
fn a_machine_that_is_cut_off_gets_no_lease_and_does_not_hang() {
    let Some(team) = Team::new() else { return };
    let machine = team.machine();
    machine.world.run(["exec", "db", "--", "true"]).code(0);
    machine.link.silence(true);
    machine.world.run(["exec", "db", "--", "touch", "ran"]).code(69).says("no answer within");
    machine.world.run(["locks"]).code(69);
    assert!(!machine.world.path("ran").exists());
    machine.link.silence(false);
    machine.world.run(["exec", "db", "--", "true"]).code(0);
}

/// A short break is nothing: the session is renewed when the link is back.
#[test]
fn a_link_that_comes_back_in_time_costs_nothing() {
    let Some(team) = Team::with_session("1m") else { return };
    let (one, other) = (team.machine(), team.machine());
    let holder = one.world.hold(&["db"]);
    one.link.close_all();
    other.world.run(["exec", "db", "--no-wait", "--", "true"]).code(75);
    holder.finish().code(0);
    other.world.run(["exec", "db", "--no-wait", "--", "true"]).code(0);
}
