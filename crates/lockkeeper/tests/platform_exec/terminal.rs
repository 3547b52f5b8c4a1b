//! A person at a terminal, played through `script`: Ctrl-C, Ctrl-Z, pipelines.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::wrapped::{SCRIPT, command_line};

/// An interactive bash on a terminal of its own, with `run SCRIPT` to run something under a wrapper.
struct Person {
    process: Child,
    keyboard: ChildStdin,
    screen: ChildStdout,
    seen: Vec<u8>,
}

impl Person {
    fn sits_down() -> Self {
        let mut process = Command::new("script")
            .args(["-qfec", "bash --norc --noprofile -i", "/dev/null"])
            .env("PS1", "PROMPT ")
            .env("TERM", "dumb")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("these tests need script(1) and bash");
        let keyboard = process.stdin.take().unwrap();
        let screen = process.stdout.take().unwrap();
        let mut person = Self { process, keyboard, screen, seen: Vec::new() };
        person.types(&format!("run() {{ {SCRIPT}=\"$1\" {}; }}; echo ready$((1+1))\n", command_line()));
        person.sees("ready2");
        person
    }

    fn types(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Reads the screen until `text` appears, and returns what came before it. What is typed is echoed, so tests
    /// wait for what only a running command can write.
    fn sees(&mut self, text: &str) -> String {
        loop {
            if let Some(place) = self.seen.windows(text.len()).position(|window| window == text.as_bytes()) {
                let rest = self.seen.split_off(place + text.len());
                let before = std::mem::replace(&mut self.seen, rest);
                return String::from_utf8_lossy(&before).into_owned();
            }
            let mut buffer = [0; 4096];
            let count = self.screen.read(&mut buffer).unwrap();
            assert_ne!(count, 0, "no {text:?} in {}", String::from_utf8_lossy(&self.seen));
            self.seen.extend_from_slice(&buffer[..count]);
        }
    }

    fn leaves(mut self) {
        self.types("\nexit\n");
        drop(self.keyboard);
        let _ = self.screen.read_to_end(&mut self.seen);
        self.process.wait().unwrap();
    }
}

#[test]
fn ctrl_c_reaches_the_command_and_not_the_wrapper() {
    let mut person = Person::sits_down();
    person
        .types("run 'trap \"echo caught$((1+1)); exit 9\" INT; echo up$((1+1)); while :; do read x; done'\n");
    person.sees("up2");
    person.types("\x03");
    person.sees("caught2");
    person.sees("ended: exited with code 9");
    person.types("echo back$((1+1))\n");
    person.sees("back2");
    person.leaves();
}

#[test]
fn ctrl_c_ends_the_script_that_the_wrapper_was_called_from() {
    let mut person = Person::sits_down();
    person
        .types("export -f run; bash -c 'run \"echo up\\$((1+1)); exec sleep 600\"; echo went-on$((1+1))'\n");
    person.sees("up2");
    person.types("\x03");
    person.types("echo back$((1+1))\n");
    let before = person.sees("back2");
    assert!(!before.contains("went-on2"), "{before}");
    person.leaves();
}

#[test]
fn ctrl_z_stops_the_job_and_fg_continues_it() {
    let mut person = Person::sits_down();
    person.types("run 'echo up$((1+1)); while read x; do echo got-$x-$((1+1)); done; exit 6'\n");
    person.sees("up2");
    for round in ["a", "b"] {
        person.types("\x1a");
        person.sees("Stopped");
        person.types("echo at-shell$((1+1))\n");
        person.sees("at-shell2");
        person.types("fg\n");
        person.types(&format!("{round}\n"));
        person.sees(&format!("got-{round}-2"));
    }
    person.types("\x04");
    person.sees("ended: exited with code 6");
    person.leaves();
}

#[test]
fn a_job_in_the_background_that_reads_is_stopped_until_it_is_brought_back() {
    let mut person = Person::sits_down();
    person.types("run 'echo up$((1+1)); read x; echo got-$x-$((1+1))'\n");
    person.sees("up2");
    person.types("\x1a");
    person.sees("Stopped");
    // With `set -b` the shell tells at once that it was stopped again, for reading.
    person.types("set -b; bg\n");
    person.sees("Stopped");
    person.types("fg\nz\n");
    person.sees("got-z-2");
    person.sees("ended: exited with code 0");
    person.leaves();
}

#[test]
fn the_program_after_the_pipe_keeps_the_terminal() {
    let mut person = Person::sits_down();
    person.types(
        "run 'echo data' | { cat >/dev/null; echo up$((1+1)); read k </dev/tty; echo key-$k-$((1+1)); }\n",
    );
    person.sees("up2");
    person.types("k\n");
    person.sees("key-k-2");
    person.leaves();
}

#[test]
fn a_command_before_the_pipe_gets_the_terminal_when_it_asks() {
    let mut person = Person::sits_down();
    person.types("run 'echo up$((1+1)); read k </dev/tty; echo key-$k-$((1+1))' | cat\n");
    person.sees("up2");
    person.types("k\n");
    person.sees("key-k-2");
    person.types("true | run 'echo up$((1+2)); read k </dev/tty; echo key-$k-$((1+2))'\n");
    person.sees("up3");
    person.types("k\n");
    person.sees("key-k-3");
    person.leaves();
}
