//! The process that a lease or a sprint is tied to when a script takes it.

use lockkeeper_testing::{Finished, Started, World, skip, world};

/// Ways to call a command in a script, each with a subshell that ends at once. `@` stands for the command.
const FORMS: [&str; 4] =
    ["x=$(@ 2>/dev/null)", "x=$(@ | head -n 9)", "x=$(@ || exit 1)", "f() { @; }; x=$(f)"];
const SHELLS: [&str; 3] = ["bash", "dash", "zsh"];

/// Starts a script that calls lockkeeper in one of the forms, says `taken`, and lives until its stdin is closed.
fn script(world: &World, shell: &str, form: &str, command: &str) -> Started {
    let call = format!("'{}' {command}", world.program());
    let text = format!("{}\necho \"taken $?\"\ncat\n", form.replace('@', &call));
    std::fs::write(world.path("deploy.sh"), text).unwrap();
    let mut process = Started::of(world.command(shell).arg("deploy.sh"));
    assert_eq!(process.line_with("taken "), "0", "{shell} {form}");
    process
}

/// Invariant 1.
#[test]
fn a_second_script_is_refused_while_the_first_one_lives() {
    for shell in SHELLS {
        for form in FORMS {
            let world = world!();
            let first = script(&world, shell, form, "acquire db");
            let refused = world.run(["acquire", "db", "--json"]).code(75).json();
            assert_eq!(refused["holders"][0]["pid"], first.pid(), "{shell} {form}");
            first.finish().code(0);
            // Its end frees the lease: the script did not release it.
            world.run(["acquire", "db"]).code(0);
        }
    }
}

#[test]
fn a_second_sprint_is_refused_while_the_script_of_the_first_one_lives() {
    for shell in SHELLS {
        for form in FORMS {
            let world = world!();
            let acquire = "sprint acquire --project-root . --session-id one --epic-spec epic1";
            let first = script(&world, shell, form, acquire);
            let check = world.run(["sprint", "check", "--project-root", ".", "--json"]).code(75).json();
            assert_eq!(check["status"], "blocked", "{shell} {form}: {check}");
            first.finish().code(0);
        }
    }
}

/// Runs a line of shell as the first process of a new pid namespace.
fn in_pid_namespace(world: &World, line: &str) -> Option<Finished> {
    let unshare = |line: &str| {
        let mut command = world.command("unshare");
        command.args(["--pid", "--fork", "--mount-proc", "sh", "-c", line]);
        Finished::of(&mut command)
    };
    unshare("true").succeeded().then(|| unshare(line))
}

#[test]
fn where_no_process_outlives_the_command_it_is_refused() {
    let world = world!();
    let line = format!("'{}' acquire db; code=$?; echo \"code $code\"", world.program());
    let Some(done) = in_pid_namespace(&world, &line) else { return skip("unshare --pid") };
    let done = done.prints("code 2").says("no process here outlives this command");
    done.says("--ttl").says("--pid").says("exec");
    world.run(["acquire", "db", "--ttl", "1m"]).code(0);
}

/// When the parents of a process have ended, process 1 is its parent, and would hold the lease for ever. The script that is process 1 of a
/// container holds leases like any other script.
#[test]
fn process_1_does_not_hold_the_lease_of_an_orphan() {
    let world = world!();
    let orphan = "until [ \"$(cut -d\" \" -f4 /proc/$$/stat)\" = 1 ]; do :; done; '@' acquire db 2>why; echo \"orphan $?\" >code";
    let orphan = orphan.replace('@', world.program());
    std::fs::write(world.path("orphan.sh"), orphan).unwrap();
    let entry = "'@' acquire own; echo \"own $?\"; setsid -f sh -c '. ./orphan.sh; true'; until [ -s code ]; do :; done; cat code why";
    std::fs::write(world.path("entry.sh"), entry.replace('@', world.program())).unwrap();
    let Some(done) = in_pid_namespace(&world, "exec sh entry.sh") else { return skip("unshare --pid") };
    let done = done.code(0).prints("own 0").says("while process 1 lives").prints("orphan 2");
    done.prints("no process here outlives").prints("--ttl").prints("--pid").prints("exec");
}

/// Nobody outside can see whether a process in a sandbox lives. Invariant 5.
#[test]
fn in_another_pid_namespace_only_a_ttl_holds() {
    let world = world!();
    let script =
        |text: &str| std::fs::write(world.path("inside.sh"), text.replace('@', world.program())).unwrap();
    script("'@' acquire db; echo \"code $?\"");
    if in_pid_namespace(&world, "true").is_none() {
        return skip("unshare --pid");
    }
    // A store that is made inside belongs to the namespace. The namespace stays: another one could get its number.
    let unshare = ["--pid", "--fork", "--mount-proc", "sh", "-c", "sh inside.sh; read -r line; true"];
    let mut first = Started::of(world.command("unshare").args(unshare));
    assert_eq!(first.line_with("code "), "0");
    // From a sibling. The first pid namespace of the machine could prove that the holder died.
    let sibling = |words: &str| {
        let line = format!("LOCKKEEPER_GRACE=0s '{}' {words}; exit $?", world.program());
        in_pid_namespace(&world, &line).unwrap().code(0)
    };
    let listed = sibling("locks").prints(" in pid:[");
    sibling("why db").prints("another pid namespace").prints("locks break");
    let lease = listed.stdout().lines().nth(1).unwrap().split(' ').next().unwrap().to_owned();
    sibling(&format!("locks break {lease} --yes"));
    first.finish().code(0);

    script(
        "'@' acquire log; echo \"code $?\"; '@' acquire log --ttl 1m; echo \"then $?\"; '@' exec db -- echo ran",
    );
    let done = in_pid_namespace(&world, "sh inside.sh; true").unwrap().prints("code 2").prints("then 0");
    done.prints("ran").says("pid namespace").says("--ttl").says("exec").says("MCP");
}

/// A command under `exec` is judged by its kernel lock from everywhere.
#[test]
fn the_pid_of_a_command_in_another_namespace_is_told_apart() {
    let world = world!();
    let line = format!("exec '{}' exec db -- sh -c 'echo ready; read line'", world.program());
    if in_pid_namespace(&world, "true").is_none() {
        return skip("unshare --pid");
    }
    let unshare = ["--pid", "--fork", "--mount-proc", "sh", "-c", &line];
    let mut inside = Started::of(world.command("unshare").args(unshare));
    inside.line_with("ready");
    world.run(["locks"]).code(0).prints("1 in pid:[").prints("alive");
    world.run(["why", "db"]).code(0).prints("held (taken by process 1 of another pid namespace)");
    inside.finish().code(0);
}

/// Programs that run one command and end with it do not hold the lease.
#[test]
fn a_lease_that_is_taken_below_a_wrapper_outlives_the_wrapper() {
    for form in ["flock file @", "find . -maxdepth 0 -exec @ ';'", "script -qec \"@\" /dev/null </dev/null"] {
        let world = world!();
        let first = script(&world, "bash", &format!("{form} >/dev/null"), "acquire db");
        let refused = world.run(["acquire", "db", "--json"]).code(75).json();
        assert_eq!(refused["holders"][0]["pid"], first.pid(), "{form}");
        first.finish().code(0);
    }
}
