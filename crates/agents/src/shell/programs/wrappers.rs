//! Programs that run other programs: shells, `env`, `sudo`, `xargs`, package runners.

use super::Call;
use crate::shell::arguments::Arguments;
use crate::shell::reader::{Input, Reader};
use crate::shell::state::State;
use crate::shell::value::Value;

/// Options with a value of the programs that run the rest of their arguments.
fn options_of(name: &str) -> Option<&'static [&'static str]> {
    Some(match name {
        "sudo" | "doas" => {
            &["-u", "-g", "-h", "-p", "-C", "-r", "-t", "-U", "-D", "-R", "-T", "--user", "--group"]
        }
        "env" => &["-u", "--unset", "-S", "--split-string", "-C", "--chdir"],
        "nice" => &["-n", "--adjustment"],
        "ionice" => &["-c", "-n", "-p"],
        "stdbuf" => &["-i", "-o", "-e"],
        "timeout" => &["-s", "-k", "--signal", "--kill-after"],
        "time" => &["-f", "--format", "-o", "--output"],
        "exec" => &["-a"],
        "npx" | "bunx" => &["-p", "--package", "-c", "--call"],
        "xargs" => {
            &["-I", "-n", "-P", "-L", "-d", "-E", "-s", "-a", "--max-args", "--max-procs", "--delimiter"]
        }
        "nohup" | "setsid" | "command" | "builtin" | "chronic" | "unbuffer" | "busybox" => &[],
        _ => return None,
    })
}

impl Reader<'_> {
    pub(super) fn wrapper(&mut self, call: &Call<'_>, state: &mut State) -> bool {
        if matches!(call.name, "bash" | "sh" | "dash" | "zsh" | "ksh") {
            self.shell(call, state);
            return true;
        }
        if let Some(skip) = runner_words(call) {
            self.inner(&call.arguments[skip..], state, call.input);
            return true;
        }
        let Some(with_value) = options_of(call.name) else { return false };
        let (options, mut rest) = leading_options(call.arguments, with_value);
        match call.name {
            "command" if options.has(&["-v", "-V"]) => return true,
            "xargs" => {
                self.xargs(&options, rest, state);
                return true;
            }
            "env" if options.has(&["-S", "--split-string", "-C", "--chdir"]) => {
                self.writes.not_known("env with a folder or a split text");
                return true;
            }
            "env" => {
                while rest.first().and_then(Value::text).is_some_and(|text| text.contains('=')) {
                    rest = &rest[1..];
                }
            }
            "sudo" | "doas" => {
                while rest.first().and_then(Value::text).is_some_and(|text| text.contains('=')) {
                    rest = &rest[1..];
                }
                if rest.is_empty() && options.has(&["-i", "-s"]) {
                    self.writes.not_known("a shell of another user");
                }
            }
            "timeout" => rest = rest.get(1..).unwrap_or_default(),
            "time" => {
                if let Some(file) = options.value(&["-o", "--output"]).cloned() {
                    self.write(&file, state, crate::shell::reader::Extent::File);
                }
            }
            "npx" | "bunx" if options.has(&["-c", "--call"]) => {
                self.writes.not_known("a command line of a package");
                return true;
            }
            _ => {}
        }
        self.inner(rest, state, call.input);
        true
    }

    fn inner(&mut self, words: &[Value], state: &mut State, input: &Input) {
        if let Some((program, arguments)) = words.split_first() {
            self.program(program, arguments, state, input);
        }
    }

    /// `xargs`: the command has arguments more that only the shell knows.
    fn xargs(&mut self, options: &Arguments, rest: &[Value], state: &State) {
        let mut words: Vec<Value> = rest.to_vec();
        let replaced = options.value(&["-I"]).and_then(Value::text).map(str::to_owned);
        match replaced {
            Some(mark) if !mark.is_empty() => {
                for word in &mut words {
                    if word.text().is_some_and(|text| text.contains(&mark)) {
                        *word = Value::Unknown;
                    }
                }
            }
            _ => words.push(Value::Unknown),
        }
        self.inner(&words, &mut state.clone(), &Input::None);
    }

    fn shell(&mut self, call: &Call<'_>, state: &State) {
        let (options, rest) = leading_options(call.arguments, &["-o", "-O", "--rcfile", "--init-file"]);
        let mut inner = state.clone();
        inner.functions.clear();
        if options.has(&["-n"]) {
            return;
        }
        if options.has(&["-c"]) {
            for (number, value) in rest.iter().skip(1).enumerate() {
                inner.set(&number.to_string(), vec![value.clone()]);
            }
            match rest.first() {
                Some(Value::Text(script)) => self.run_text(script, &mut inner),
                Some(_) => self.writes.not_known("a command line that only the shell knows"),
                None => {}
            }
        } else if rest.is_empty() || options.has(&["-s"]) {
            match call.input {
                Input::Text(script) => self.run_text(script, &mut inner),
                Input::Unknown | Input::None => self.writes.not_known("a script from standard input"),
            }
        } else {
            self.writes.not_known("a script in a file");
        }
    }
}

/// Takes the options before the first operand apart; gives back the rest.
fn leading_options<'a>(arguments: &'a [Value], with_value: &[&str]) -> (Arguments, &'a [Value]) {
    let mut at = 0;
    while let Some(text) = arguments.get(at).and_then(Value::text) {
        if text == "--" {
            return (Arguments::parse(&arguments[..at], with_value), &arguments[at + 1..]);
        }
        if !text.starts_with('-') || text == "-" {
            break;
        }
        // The value is attached (`-n1`), or it is the next argument (`-n 1`, `-euo pipefail`).
        let letters: Vec<String> = text.chars().skip(1).map(|letter| format!("-{letter}")).collect();
        let takes = |name: &String| with_value.contains(&name.as_str());
        let takes_next = match text.starts_with("--") {
            true => with_value.contains(&text),
            false => letters.iter().position(takes).is_some_and(|at| at + 1 == letters.len()),
        };
        at += 1 + usize::from(takes_next);
    }
    let at = at.min(arguments.len());
    (Arguments::parse(&arguments[..at], with_value), &arguments[at..])
}

/// How many words of a package runner come before the program that it runs.
fn runner_words(call: &Call<'_>) -> Option<usize> {
    let first = call.arguments.first().and_then(Value::text);
    let after_dashes = |arguments: &[Value]| {
        arguments.iter().position(|argument| argument.text() == Some("--")).map(|at| at + 1)
    };
    match (call.name, first) {
        ("pnpm" | "yarn", Some("exec" | "dlx")) | ("npm", Some("exec" | "x")) => {
            Some(after_dashes(call.arguments).unwrap_or(1))
        }
        ("uv" | "poetry" | "pipenv" | "pdm" | "hatch", Some("run")) | ("bundle", Some("exec")) => Some(1),
        ("python" | "python3", Some("-m")) => Some(1),
        // Ours: `lockkeeper exec NAME -- COMMAND`.
        ("lockkeeper", Some("exec")) => after_dashes(call.arguments),
        _ => None,
    }
}
