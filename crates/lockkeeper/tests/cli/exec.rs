//! `exec`: hold, run, release.

use std::os::unix::fs::PermissionsExt;

use lockkeeper_testing::{Finished, Signal, World, files, skip, world};

/// Requirement 97.
#[test]
fn the_commands_own_code_is_passed_on() {
    let world = world!().with_state();
    world.run(["exec", "db", "--", "true"]).code(0).silent();
    world.run(["exec", "db", "--", "sh", "-c", "exit 42"]).code(42).silent();
    world.run(["exec", "db", "--", "sh", "-c", "kill -TERM $$"]).code(128 + 15);
    world.run(["locks"]).code(0).prints("nothing is held");
}

#[test]
fn what_cannot_be_started_is_told_as_a_shell_does_and_frees_the_lease() {
    let world = world!().write("plain", "no program");
    world.run(["exec", "db", "--", "./no-such-program"]).code(127).says("no-such-program").says("hint: ");
    world.run(["exec", "db", "--", "./plain"]).code(126).says("hint: ");
    let report = world.run(["exec", "db", "--json", "--", "./plain"]).code(126).json();
    assert_eq!(report["error"]["reason_code"], "COMMAND_NOT_STARTED");
    world.run(["exec", "db", "--no-wait", "--", "true"]).code(0);
}

#[test]
fn the_command_reads_our_input_and_knows_its_lease() {
    let world = world!();
    let done = world
        .shell("echo typed | lockkeeper exec db -- sh -c 'cat; echo $LOCKKEEPER_LEASE $LOCKKEEPER_TOKEN'");
    let text = done.code(0).stdout();
    let (typed, names) = text.trim_end().split_once('\n').unwrap();
    let (lease, token) = names.split_once(' ').unwrap();
    assert_eq!(typed, "typed");
    assert!(lease.starts_with('L') && token.parse::<u64>().is_ok(), "{names}");
}

#[test]
fn signals_reach_the_command() {
    let world = world!();
    let script = "trap 'echo caught; exit 9' TERM; echo up; while :; do read -r x || sleep 1; done";
    let mut running = world.start(["exec", "db", "--", "sh", "-c", script]);
    assert_eq!(running.line(), "up");
    running.signal(Signal::TERM);
    assert_eq!(running.line(), "caught");
    running.wait().code(9);
}

#[test]
fn no_wait_is_refused_with_the_holder_and_a_hint() {
    let world = world!();
    let holder = world.hold(&["db", "--owner", "worker:one", "--reason", "a migration"]);
    let refused = world.run(["exec", "db", "--no-wait", "--", "touch", "ran"]).code(75);
    refused.says("worker:one").says("a migration").says("hint: ");
    let report = world.run(["exec", "db", "--no-wait", "--json", "--", "touch", "ran"]).code(75).json();
    assert_eq!(report["error"]["reason_code"], "LOCK_HELD");
    assert_eq!(report["error"]["context"]["holders"][0]["owner"], "worker:one");
    assert!(!world.cwd().join("ran").exists());
    holder.finish().code(0);
}

#[test]
fn a_wait_ends_in_its_time_and_leaves_no_ticket() {
    let world = world!();
    let holder = world.hold(&["db"]);
    let refused = world.run(["exec", "db", "--wait=50ms", "--", "touch", "ran"]).code(75).says("hint: ");
    assert!(!refused.stderr().contains("waiting for"), "a short wait is silent: {}", refused.stderr());
    world.run(["exec", "db", "--wait=1200ms", "--", "touch", "ran"]).code(75).says("waiting for db");
    assert_eq!(world.run(["locks", "--json"]).code(0).json()["waiters"].as_array().unwrap().len(), 0);
    assert!(!world.cwd().join("ran").exists());
    holder.finish().code(0);
}

/// Invariant 7.
#[test]
fn the_next_in_line_runs_as_soon_as_the_holder_is_done() {
    let world = world!();
    let holder = world.hold(&["db"]);
    let waiter = world.start(["exec", "db", "--", "echo", "ran"]);
    world.until_waiting(1);
    holder.finish().code(0);
    waiter.wait().code(0).prints("ran");
}

/// A process that waited removes the FIFO on which it slept, also when it exits without its destructors.
#[test]
fn a_wait_leaves_no_waker_behind() {
    let world = world!().with_state();
    let holder = world.hold(&["db"]);
    let waiter = world.start(["exec", "db", "--", "true"]);
    world.until_waiting(1);
    assert!(!files::names(&world.path("state/wake")).is_empty(), "it sleeps on a FIFO");
    holder.finish().code(0);
    waiter.wait().code(0);
    assert_eq!(files::names(&world.path("state/wake")), [""; 0]);
}

#[test]
fn a_wait_that_is_interrupted_ends_as_a_shell_tells_it_and_leaves_no_ticket() {
    let world = world!();
    let holder = world.hold(&["db"]);
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let waiter = world.start(["exec", "db", "--", "touch", "ran"]);
        world.until_waiting(1);
        waiter.signal(signal);
        waiter.wait().code(code);
    }
    assert_eq!(world.run(["locks", "--json"]).code(0).json()["waiters"].as_array().unwrap().len(), 0);
    assert!(!world.cwd().join("ran").exists());
    holder.finish().code(0);
}

#[test]
fn a_waiter_that_is_to_end_does_not_begin_with_a_lease_that_it_gets_at_that_moment() {
    let world = world!();
    let holder = world.hold(&["db"]);
    let waiter = world.start(["exec", "db", "--", "touch", "begun"]);
    world.until_waiting(1);
    // Both come while it cannot look.
    waiter.signal(Signal::STOP);
    holder.finish().code(0);
    waiter.signal(Signal::INT);
    waiter.signal(Signal::CONT);
    waiter.wait().code(130);
    assert!(!world.cwd().join("begun").exists());
    world.run(["exec", "db", "--no-wait", "--", "true"]).code(0);
}

#[test]
fn ctrl_c_at_a_terminal_ends_the_script_around_it() {
    let world = world!();
    let script = format!("'{}' exec db -- sh -c 'kill -INT $$'; echo went-on:$?\n", world.program());
    let world = world.write("script.sh", &script);
    let done = world.on_terminal("bash script.sh").code(130);
    assert!(!done.stdout().contains("went-on"), "{}", done.stdout());
    // Elsewhere the exit code tells.
    world.shell("lockkeeper exec db -- sh -c 'kill -INT $$'; echo went-on:$?").prints("went-on:130");
}

#[test]
fn arguments_of_the_command_are_any_bytes() {
    let world = world!();
    let done = world.shell("lockkeeper exec db -- printf %s $'\\xff' | od -An -tx1").code(0);
    assert_eq!(done.stdout().trim(), "ff");
    world.shell("lockkeeper exec $'\\xff' -- true").code(2).says("hint: ");
}

/// Requirement 104. Invariants 4 and 10: the lease outlives a wrapper that is killed, and ends with its command.
#[test]
fn a_killed_wrapper_frees_the_lease_only_when_its_command_is_gone() {
    let world = world!();
    let mut holder = world.start(["exec", "db", "--", "sh", "-c", "echo $$; exec sleep 600"]);
    let command = holder.line();
    holder.kill();
    world.run(["exec", "db", "--no-wait", "--", "true"]).code(75);
    let waiter = world.start(["exec", "db", "--", "echo", "ran"]);
    world.until_waiting(1);
    assert!(world.command("kill").args(["-KILL", &command]).status().unwrap().success());
    waiter.wait().code(0).prints("ran");
}

/// Invariant 10.
#[test]
fn a_broken_lease_stops_the_command_with_a_code_of_its_own() {
    let world = world!();
    let mut holder = world.start(["exec", "db", "--", "sh", "-c", "echo $LOCKKEEPER_LEASE; exec sleep 600"]);
    let lease = holder.line();
    world.run(["locks", "break", &lease, "--yes"]).code(0).prints(&lease);
    holder.wait().code(76).says("was lost").says("hint: ");
}

/// Invariant 8.
#[test]
fn a_command_does_not_wait_for_the_lease_that_it_runs_under() {
    let world = world!();
    let inner = ["exec", "db", "--", world.program(), "exec", "db", "--", "true"];
    world.run(inner).code(75).says("deadlock refused");
    world.run(["exec", "db", "--", world.program(), "exec", "other", "--", "sh", "-c", "exit 3"]).code(3);
    let same = [
        "exec",
        "db",
        "--owner",
        "worker:me",
        "--",
        world.program(),
        "exec",
        "db",
        "--owner",
        "worker:me",
        "--",
        "true",
    ];
    world.run(same).code(0);
}

/// Requirement 162. Invariants 1 and 6.
#[test]
fn several_things_are_held_together_or_not_at_all() {
    let world = world!();
    let holder = world.hold(&["db", "--path", "src/**/*.rs"]);
    world.run(["exec", "cache", "--path", "src/api/**", "--no-wait", "--", "true"]).code(75);
    world.run(["exec", "cache", "--path", "docs/**", "--no-wait", "--", "true"]).code(0);
    holder.finish().code(0);
}

/// Requirement 154.
#[test]
fn readers_share_and_slots_are_counted() {
    let world = world!();
    let reader = world.hold(&["docs", "--shared"]);
    world.run(["exec", "docs", "--shared", "--no-wait", "--", "true"]).code(0);
    world.run(["exec", "docs", "--no-wait", "--", "true"]).code(75);
    let (one, two) = (world.hold(&["build", "--slots", "2"]), world.hold(&["build", "--slots", "2"]));
    world.run(["exec", "build", "--slots", "2", "--no-wait", "--", "true"]).code(75);
    for running in [reader, one, two] {
        running.finish().code(0);
    }
}

#[test]
fn a_script_of_the_folder_runs() {
    let world = world!().write("run.sh", "#!/bin/sh\nexit 5\n");
    let script = world.cwd().join("run.sh");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    world.run(["exec", "db", "--", "./run.sh"]).code(5);
}

/// Runs `exec db` in `folder`, and under it the same once more, which names the state folder in its own way.
fn nested(world: &World, folder: &std::path::Path, inner: &str) -> Finished {
    let line = format!("{inner} && exec '{}' exec db --wait=20s -- echo twice", world.program());
    let mut command = world.lockkeeper(["exec", "db", "--", "sh", "-c", &line]);
    Finished::of(command.current_dir(folder))
}

#[test]
fn ones_own_lock_is_recognised_by_any_path() {
    use std::os::unix::ffi::OsStrExt;

    let world = world!();
    let odd = world.path("work").join(std::ffi::OsStr::from_bytes(b"n\xffot-text"));
    std::fs::create_dir_all(odd.join("other")).unwrap();
    nested(&world, &odd, "true").code(75).says("deadlock refused");
    nested(&world, &odd, "export LOCKKEEPER_DIR=./other/../.lockkeeper").code(75).says("deadlock refused");
    // Another store is not one's own.
    nested(&world, &odd, "export LOCKKEEPER_DIR=other").code(0).prints("twice");
}

#[test]
fn ones_own_lock_is_recognised_without_the_environment() {
    let world = world!();
    let inner = format!("env -i '{}' exec db --wait=20s -- echo twice", world.program());
    let line = format!("{inner}; echo $?");
    world.run(["exec", "db", "--", "sh", "-c", &line]).code(0).prints("75").says("deadlock refused");
    // A command that does not wait for this one is another holder.
    let holder = world.hold(&["log"]);
    let other = format!("env -i '{}' exec log --no-wait -- true; echo $?", world.program());
    world.run(["exec", "db", "--", "sh", "-c", &other]).code(0).prints("75");
    holder.finish().code(0);
}

#[test]
fn links_on_the_way_to_the_state_folder_do_not_matter() {
    let world = world!();
    let program = world.program();
    world.shell("mkdir real && ln -s \"$PWD/real\" link").code(0);
    let by = |path: &str, rest: &str| format!("'{program}' --dir \"$PWD/{path}/state\" {rest}");
    world.shell(&by("link", "exec db -- echo ran")).code(0).prints("ran");
    world.shell(&by("link", "locks")).code(0);
    // It is the same store by both paths.
    world.shell(&by("link", "acquire db --ttl 1m --owner worker:one")).code(0);
    world.shell(&by("real", "exec db --no-wait -- true")).code(75).says("worker:one");
    let nested = by("link", &format!("exec log -- {}", by("real", "exec log --wait=20s -- true")));
    world.shell(&nested).code(75).says("deadlock refused");
}

#[test]
fn ones_own_lock_is_recognised_through_a_bind_mount() {
    let world = world!();
    if !Finished::of(world.command("unshare").args(["-m", "true"])).succeeded() {
        return skip("a mount namespace: root or CAP_SYS_ADMIN");
    }
    let inner = format!("cd alias && exec '{}' exec db --wait=20s -- echo twice", world.program());
    let line = format!(
        "mkdir real alias && mount --bind real alias && cd real && '{}' exec db -- sh -c 'cd .. && {}'",
        world.program(),
        inner.replace('\'', "'\\''"),
    );
    Finished::of(world.command("unshare").args(["-m", "sh", "-c", &line])).code(75).says("deadlock refused");
}

/// The command inherits its kernel lock at a number that the limit allows.
#[test]
fn few_descriptors_are_enough() {
    let world = world!();
    for limit in [32, 100, 101] {
        world.shell(&format!("ulimit -n {limit}; lockkeeper exec db -- echo ran")).code(0).prints("ran");
        let (a, b) = ("lockkeeper exec db --", format!("'{}'", world.program()));
        let nested = format!("ulimit -n {limit}; {a} {b} group exec g -- {b} exec log -- echo ran");
        world.shell(&nested).code(0).prints("ran");
    }
}
