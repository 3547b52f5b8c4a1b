//! The process that holds a lease for a command that runs under real shells and wrappers.
#![expect(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

use std::path::Path;
use std::process::Command;

use lockkeeper_platform::holder_process::choose;
use lockkeeper_testing::{Started, this_test_line};

/// Not a test, but the command that the tests below start under shells.
#[test]
#[ignore = "a process that other tests start"]
fn other_side() {
    let holder = choose(None, &|_| None).unwrap().unwrap();
    println!("\nholder {} {}", holder.process.pid, holder.reason);
}

/// Runs `program` with `args`, in which `@` stands for the command to run, and returns what the command chose.
fn chosen_under(program: &str, args: &[&str]) -> (u32, String, u32) {
    let args = args.iter().map(|arg| arg.replace('@', &this_test_line("other_side")));
    let mut process = Started::of(Command::new(program).args(args));
    let pid = process.pid();
    let line = process.line_with("holder ");
    process.wait().code(0);
    let (holder, reason) = line.split_once(' ').unwrap();
    (holder.parse().unwrap(), reason.to_owned(), pid)
}

#[test]
fn shells_and_wrappers_that_run_one_command_are_skipped() {
    // A command after it keeps the shell from turning into the command.
    for args in [["-c", "@; true"], ["-ec", "timeout 60 sh -c \"@; true\"; true"]] {
        let (holder, reason, _) = chosen_under("sh", &args);
        assert_eq!(holder, std::process::id(), "{args:?}: {reason}");
    }
}

/// How scripts call the command. `@` stands for it. In many of these forms a shell forks a subshell, which has the command
/// line of the script and ends at once.
const FORMS: [&str; 18] = [
    "@",
    "@ | cat",
    "x=$(@); echo \"$x\"",
    "x=$(@ 2>/dev/null); echo \"$x\"",
    "x=$(@ 2>&1 </dev/null); echo \"$x\"",
    "x=`@ 2>/dev/null`; echo \"$x\"",
    "x=$(@ | cat); echo \"$x\"",
    "x=$(@ || true); echo \"$x\"",
    "x=$(cd / && @ && true); echo \"$x\"",
    "f() { @; }; x=$(f); echo \"$x\"",
    "f() { @ 2>/dev/null; true; }; x=$( (f; true) | cat ); echo \"$x\"",
    "if x=$(@ || false); then echo \"$x\"; fi",
    "{ @ || true; } | cat",
    "( @; true )",
    "x=$(y=$(@ 2>/dev/null); echo \"$y\"); echo \"$x\"",
    "f() { @; true; }; f </dev/null | cat",
    "f() { @; true; }; : | f",
    "( trap '' INT; @; true ) </dev/null",
];
/// Forms that dash does not have. The shell reads what the subshell prints while both run.
const MORE_FORMS: [&str; 5] = [
    "cat <(@ || true)",
    "cat < <(@ 2>/dev/null)",
    "while read -r x; do echo \"$x\"; done < <(@ || true)",
    "f() { @; }; exec 3< <(f 2>/dev/null); cat <&3",
    "f() { @; true; }; bash -c 'cat \"$1\"; true' reader <(f)",
];
const SHELLS: [&str; 3] = ["bash", "dash", "zsh"];

/// How a shell gets the script.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// A file.
    File,
    /// A step of a CI job: a file and options.
    CiStep,
    /// A step of a CI job that is written to the shell's stdin.
    CiStdin,
    /// `-c`.
    Command,
    /// The shell of an agent, which lives for one call.
    AgentShell,
}

const PLACES: [Place; 5] = [Place::File, Place::CiStep, Place::CiStdin, Place::Command, Place::AgentShell];

#[test]
fn a_subshell_of_a_script_is_never_chosen() {
    let dir = tempfile::tempdir().unwrap();
    let mut wrong = Vec::new();
    for shell in SHELLS {
        let more: &[&str] = if shell == "dash" { &[] } else { &MORE_FORMS };
        for form in FORMS.iter().chain(more) {
            for place in PLACES {
                let mut process = start_in(place, shell, form, dir.path());
                let holder: u32 = process.line_with("holder ").split(' ').next().unwrap().parse().unwrap();
                let expected = match place {
                    Place::File | Place::CiStep | Place::CiStdin => process.pid(),
                    Place::Command | Place::AgentShell => std::process::id(),
                };
                process.wait().code(0);
                if holder != expected {
                    wrong.push(format!("{shell} {place:?} {form}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// Jobs in the background. Each prints its own process number first, by `JOB`. `@` stands for the command.
const BACKGROUND_FORMS: [&str; 12] = [
    "( JOB; x=$(@ 2>/dev/null || true); echo \"$x\"; true ) & wait",
    "( JOB; @; true ) & wait",
    "trap : INT QUIT; { JOB; @; true; } & wait",
    // The job waits until its script has started the whole pipeline.
    "rm -f \"$UP\"; { JOB; until [ -e \"$UP\" ]; do :; done; @; true; } | cat & : >\"$UP\"; wait",
    "rm -f \"$UP\"; f() { JOB; until [ -e \"$UP\" ]; do :; done; @; true; }; f | cat & : >\"$UP\"; wait",
    "f() { JOB; @; true; }; f & wait",
    "f() { JOB; x=$(@ 2>/dev/null || true); echo \"$x\"; true; }; f & wait",
    "f() { JOB; @; true; }; f </dev/null 2>/dev/null & wait",
    "eval 'JOB; eval \"$LINE\"; true' & wait",
    "echo 'JOB; eval \"$LINE\"; true' >\"$UP\"; . \"$UP\" & wait",
    "nohup sh -c 'echo \"job $$\"; eval \"$LINE\"; true' 2>/dev/null & wait",
    "nice sh -c 'echo \"job $$\"; x=$(eval \"$LINE || true\"); echo \"$x\"' 2>/dev/null & wait",
];

/// A script may end before its background jobs. So a job in the background stands for itself.
#[test]
fn a_job_in_the_background_is_chosen() {
    let dir = tempfile::tempdir().unwrap();
    let mut wrong = Vec::new();
    for shell in SHELLS {
        for form in BACKGROUND_FORMS {
            for place in PLACES {
                let form = form.replace("JOB", "sh -c '\\''echo \"job $PPID\"'\\''");
                // Only the forms with quotes of their own need the quotes escaped.
                let form = if form.contains("eval '") || form.contains("echo '") {
                    form
                } else {
                    form.replace("'\\''", "'")
                };
                let mut process = start_in(place, shell, &form, dir.path());
                let job = process.line_with("job ");
                let chosen = process.line_with("holder ");
                process.wait().code(0);
                let (holder, reason) = chosen.split_once(' ').unwrap();
                if holder != job || !reason.contains("background job that runs") {
                    wrong.push(format!("{shell} {place:?} {form}: {reason}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// In a script that ignores SIGINT itself, and under `set -m`, nothing tells a job in the background from one in the foreground.
/// The message says what to do about it.
#[test]
fn where_a_background_job_cannot_be_seen_the_script_is_chosen_and_the_message_says_so() {
    let dir = tempfile::tempdir().unwrap();
    for (shell, form) in [
        ("bash", "trap '' INT QUIT; ( @; true ) & wait"),
        ("bash", "trap '' INT QUIT; ( @; true )"),
        ("bash", "set -m; ( @; true ) & wait"),
        ("dash", "trap '' INT QUIT; ( @; true ) & wait"),
        ("zsh", "trap '' INT QUIT; ( @; true ) & wait"),
    ] {
        let mut process = start_in(Place::File, shell, form, dir.path());
        let (script, chosen) = (process.pid(), process.line_with("holder "));
        process.wait().code(0);
        let (holder, reason) = chosen.split_once(' ').unwrap();
        assert_eq!(holder, script.to_string(), "{shell} {form}");
        assert!(reason.contains("in a background job use `exec` or --pid"), "{shell} {form}: {reason}");
    }
}

/// The program of an inner shell is loaded anew, so it is not a subshell, even if its command line is the same.
#[test]
fn a_script_that_calls_itself_holds_in_the_inner_process() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("again.sh");
    for shell in SHELLS {
        let line = this_test_line("other_side");
        let inner = "if [ -n \"$INNER\" ]; then echo \"inner $$\"; x=$(@ || true); echo \"$x\"; exit; fi";
        let outer = format!("INNER=1 {shell} {}; true", script.display());
        std::fs::write(&script, format!("{}\n{outer}\n", inner.replace('@', &line))).unwrap();
        let mut process = Started::of(Command::new(shell).arg(&script));
        let inner = process.line_with("inner ");
        let holder = process.line_with("holder ");
        process.wait().code(0);
        assert_eq!(holder.split(' ').next().unwrap(), inner, "{shell}");
    }
}

fn start_in(place: Place, shell: &str, form: &str, dir: &Path) -> Started {
    // A command after it keeps the shell from turning into the command.
    let text = format!("{}\ntrue\n", form.replace('@', &this_test_line("other_side")));
    let script = dir.join("deploy.sh");
    std::fs::write(&script, &text).unwrap();
    let mut command = Command::new(shell);
    command.env("LINE", this_test_line("other_side")).env("UP", dir.join("up"));
    match place {
        Place::File => command.arg(script),
        Place::CiStep if shell == "bash" => {
            command.args(["--noprofile", "--norc", "-eo", "pipefail"]).arg(script)
        }
        Place::CiStep => command.arg("-e").arg(script),
        Place::CiStdin => &mut command,
        Place::Command => command.arg("-c").arg(&text),
        Place::AgentShell => command.args(["-l", "-c", "eval \"$0\""]).arg(&text),
    };
    let mut process = Started::of(&mut command);
    if matches!(place, Place::CiStdin) {
        process.send(&text);
    }
    process.close_input();
    process
}

#[test]
fn a_shell_that_runs_a_script_is_chosen() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("deploy.sh");
    std::fs::write(&script, format!("{}\ntrue\n", this_test_line("other_side"))).unwrap();
    let (holder, reason, shell) = chosen_under("sh", &[script.to_str().unwrap()]);
    assert_eq!(holder, shell);
    assert!(reason.contains("outlives") && reason.contains("deploy.sh"), "{reason}");
}
