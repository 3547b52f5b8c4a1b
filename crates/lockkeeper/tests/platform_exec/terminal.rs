//! The wrapper on a terminal: Ctrl-C, Ctrl-Z, background jobs, pipelines.

use lockkeeper_testing::Terminal;

use crate::wrapped::{SCRIPT, command_line};

/// An interactive bash on a terminal. `run SCRIPT` runs a script under a wrapper.
fn bash() -> Terminal {
    let variables = [("PS1", "PROMPT "), ("TERM", "dumb")];
    let mut terminal = Terminal::start("bash --norc --noprofile -i", &variables);
    terminal.types(&format!("run() {{ {SCRIPT}=\"$1\" {}; }}; echo ready$((1+1))\n", command_line()));
    terminal.sees("ready2");
    terminal
}

/// Ends the bash.
fn leave(mut terminal: Terminal) {
    terminal.types("\nexit\n");
    drop(terminal.wait());
}

#[test]
fn ctrl_c_reaches_the_command_and_not_the_wrapper() {
    let mut terminal = bash();
    terminal
        .types("run 'trap \"echo caught$((1+1)); exit 9\" INT; echo up$((1+1)); while :; do read x; done'\n");
    terminal.sees("up2");
    terminal.types("\x03");
    terminal.sees("caught2");
    terminal.sees("ended: exited with code 9");
    terminal.types("echo back$((1+1))\n");
    terminal.sees("back2");
    leave(terminal);
}

#[test]
fn ctrl_c_ends_the_script_that_the_wrapper_was_called_from() {
    let mut terminal = bash();
    terminal
        .types("export -f run; bash -c 'run \"echo up\\$((1+1)); exec sleep 600\"; echo went-on$((1+1))'\n");
    terminal.sees("up2");
    terminal.types("\x03");
    terminal.types("echo back$((1+1))\n");
    let before = terminal.sees("back2");
    assert!(!before.contains("went-on2"), "{before}");
    leave(terminal);
}

#[test]
fn ctrl_z_stops_the_job_and_fg_continues_it() {
    let mut terminal = bash();
    terminal.types("run 'echo up$((1+1)); while read x; do echo got-$x-$((1+1)); done; exit 6'\n");
    terminal.sees("up2");
    for round in ["a", "b"] {
        terminal.types("\x1a");
        terminal.sees("Stopped");
        terminal.types("echo at-shell$((1+1))\n");
        terminal.sees("at-shell2");
        terminal.types("fg\n");
        terminal.types(&format!("{round}\n"));
        terminal.sees(&format!("got-{round}-2"));
    }
    terminal.types("\x04");
    terminal.sees("ended: exited with code 6");
    leave(terminal);
}

#[test]
fn a_job_in_the_background_that_reads_is_stopped_until_it_is_brought_back() {
    let mut terminal = bash();
    terminal.types("run 'echo up$((1+1)); read x; echo got-$x-$((1+1))'\n");
    terminal.sees("up2");
    terminal.types("\x1a");
    terminal.sees("Stopped");
    // With `set -b` the shell tells at once that it was stopped again, for reading.
    terminal.types("set -b; bg\n");
    terminal.sees("Stopped");
    terminal.types("fg\nz\n");
    terminal.sees("got-z-2");
    terminal.sees("ended: exited with code 0");
    leave(terminal);
}

#[test]
fn the_program_after_the_pipe_keeps_the_terminal() {
    let mut terminal = bash();
    terminal.types(
        "run 'echo data' | { cat >/dev/null; echo up$((1+1)); read k </dev/tty; echo key-$k-$((1+1)); }\n",
    );
    terminal.sees("up2");
    terminal.types("k\n");
    terminal.sees("key-k-2");
    leave(terminal);
}

#[test]
fn a_command_before_the_pipe_gets_the_terminal_when_it_asks() {
    let mut terminal = bash();
    terminal.types("run 'echo up$((1+1)); read k </dev/tty; echo key-$k-$((1+1))' | cat\n");
    terminal.sees("up2");
    terminal.types("k\n");
    terminal.sees("key-k-2");
    terminal.types("true | run 'echo up$((1+2)); read k </dev/tty; echo key-$k-$((1+2))'\n");
    terminal.sees("up3");
    terminal.types("k\n");
    terminal.sees("key-k-3");
    leave(terminal);
}
