//! Ctrl-C, again and again: each signal is more urgent than the one before.

use lockkeeper_testing::{Signal, World, until, world};

/// Longer than any test takes: only another signal can end it.
const GRACE: &str = "1h";
/// A command that does not end when it is asked to.
const STUBBORN: &str = "trap '' TERM; echo began > began; while :; do sleep 100; done";

fn until_it_began(world: &World) {
    until("the command began", || world.path("began").exists());
}

#[test]
fn the_third_signal_kills_what_a_worker_executes() {
    let world = world!().set("LOCKKEEPER_GRACE", GRACE);
    world.run(["submit", "--id", "a", "--", "sh", "-c", STUBBORN]).code(0);
    let mut worker = world.start(["work"]);
    until_it_began(&world);
    worker.signal(Signal::INT);
    worker.until_stderr("no more runs are started");
    worker.signal(Signal::INT);
    worker.until_stderr("a third signal kills them");
    worker.signal(Signal::INT);
    worker.wait().code(0);
    world.run(["run", "show", "a"]).code(0).prints("canceled");
}

#[test]
fn the_second_signal_kills_the_groups_of_a_phase() {
    let plan = format!(
        "parallel_groups:\n  P1:\n    - group_id: a\n      agents: [x]\n      command: [sh, -c, \"{STUBBORN}\"]\n"
    );
    let world = world!().git().set("LOCKKEEPER_GRACE", GRACE).write("STAGES.yml", &plan);
    let mut running = world.start(["stages", "run", "STAGES.yml", "P1"]);
    until_it_began(&world);
    running.signal(Signal::INT);
    running.until_stderr("kills what does not end");
    running.signal(Signal::INT);
    running.wait().code(130);
}
