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
