//! Programs that run other programs: shells, `env`, `sudo`, `xargs`, package runners.

use super::Call;
use crate::shell::arguments::{Arguments, long_name};
use crate::shell::outcome::Outcome;
use crate::shell::reader::{Extent, Input, Reader};
use crate::shell::state::State;
use crate::shell::value::Value;

/// Options with a value of the programs that run the rest of their arguments.
fn options_of(name: &str) -> Option<&'static [&'static str]> {
    Some(match name {
        "sudo" | "doas" => &[
            "-u", "-g", "-h", "-p", "-C", "-r", "-t", "-U", "-D", "-R", "-T", "--user", "--group", "--chdir",
        ],
        "env" => &["-u", "--unset", "-S", "--split-string", "-C", "--chdir"],
        "chroot" => &["--userspec", "--groups"],
        "runuser" => &["-u", "--user", "-g", "--group", "-G", "--supp-group"],
        "watch" => &["-n", "--interval", "-q", "--equexit"],
        "unshare" => &["-S", "--setuid", "-G", "--setgid", "-R", "--root", "-w", "--wd"],
        "setpriv" => &["--reuid", "--regid", "--groups", "--inh-caps", "--ambient-caps", "--bounding-set"],
        "numactl" => &["-C", "-N", "-m", "-p"],
        "nice" => &["-n", "--adjustment"],
        "ionice" => &["-c", "-n", "-p"],
        "stdbuf" => &["-i", "-o", "-e"],
        "timeout" => &["-s", "-k", "--signal", "--kill-after"],
        "time" => &["-f", "--format", "-o", "--output"],
        "npx" | "bunx" => &["-p", "--package", "-c", "--call"],
        "xargs" => &[
            "-I",
            "-n",
            "-P",
            "-L",
            "-d",
            "-E",
            "-s",
            "-a",
            "--max-args",
            "--max-procs",
            "--delimiter",
            "--arg-file",
        ],
        "flock" => &["-w", "--timeout", "-E", "--conflict-exit-code"],
        "strace" => &["-o", "-e", "-s", "-p", "-P", "-u", "-E", "-a", "-b", "-I", "-O", "-S", "-X"],
        "xvfb-run" => &["-s", "-n", "-e", "-f"],
        "taskset" | "chrt" | "fakeroot" | "nohup" | "setsid" | "chronic" | "unbuffer" | "busybox"
        | "noglob" | "nocorrect" | "toybox" | "entr" | "prlimit" | "linux32" | "linux64"
        | "dbus-run-session" => &[],
        _ => return None,
    })
}

impl Reader<'_> {
    /// `command`, `builtin` and `exec`: the shell itself runs the rest.
    pub(super) fn unwrapped(&mut self, call: &Call<'_>, state: State) -> Outcome {
        let (options, rest) =
            leading_options(call.arguments, if call.name == "exec" { &["-a"] } else { &[] });
        if call.name == "command" && options.has(&["-v", "-V"]) {
            return Outcome::either(state);
        }
        let outcome = self.inner(rest, state, call.input);
        // After `exec PROGRAM` there is no shell any more. Without a program it only redirects.
        if call.name == "exec" && !rest.is_empty() { Outcome::default() } else { outcome }
    }

    pub(super) fn wrapper(&mut self, call: &Call<'_>, state: &State) -> bool {
        if matches!(call.name, "bash" | "sh" | "dash" | "zsh" | "ksh" | "mksh" | "ash" | "rbash" | "fish") {
            self.shell(call, state);
            return true;
        }
        if self.line_program(call, state) {
            return true;
        }
        if let Some(line) = line_of_exec(call) {
            let was_coordinated = std::mem::replace(&mut self.is_coordinated, true);
            self.shell_line(&line, state);
            self.is_coordinated = was_coordinated;
            return true;
        }
        if let Some(skip) = runner_words(call) {
            let was_coordinated = self.is_coordinated;
            self.is_coordinated |= call.name == "lockkeeper";
            self.inner(&call.arguments[skip..], state.clone(), call.input);
            self.is_coordinated = was_coordinated;
            return true;
        }
        let Some(with_value) = options_of(call.name) else { return false };
        let (options, mut rest) = leading_options(call.arguments, with_value);
        let mut own = state.clone();
        let state = &mut own;
        let folder = match call.name {
            "env" => options.value(&["-C", "--chdir"]),
            "sudo" | "doas" => options.value(&["-D", "--chdir"]),
            "unshare" => options.value(&["-w", "--wd"]),
            _ => None,
        };
        if folder.is_some() {
            self.change_folder(folder, state);
        }
        match call.name {
            "xargs" => {
                self.xargs(&options, rest, state, call.input);
                return true;
            }
            "env" if options.has(&["-S", "--split-string"]) => {
                let words =
                    options.value(&["-S", "--split-string"]).and_then(Value::text).and_then(split_words);
                match words {
                    Some(words) => {
                        let env = vec![Value::Text(call.name.to_owned())];
                        let words = words.into_iter().map(Value::Text).collect();
                        self.inner(&[env, words, rest.to_vec()].concat(), own, call.input);
                    }
                    None => self.writes.not_known("env with a text that only env can split"),
                }
                return true;
            }
            "chroot" | "unshare" if options.has(&["-R", "--root"]) || call.name == "chroot" => {
                let is_same = call.name == "chroot" && rest.first().and_then(Value::text) == Some("/");
                if !is_same || rest.len() < 2 {
                    self.writes.not_known("a program in another root folder");
                    return true;
                }
                rest = &rest[1..];
                if !options.has(&["--skip-chdir"]) {
                    state.cwd = Some("/".into());
                }
            }
            "watch" if !options.has(&["-x", "--exec"]) => {
                self.shell_line(&joined(rest), state);
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
                // It begins in the home of that user.
                if options.has(&["-i", "--login"]) {
                    state.cwd = None;
                }
            }
            "flock" => {
                rest = rest.get(1..).unwrap_or_default();
                if let [option, Value::Text(script)] = rest
                    && matches!(option.text(), Some("-c" | "--command"))
                {
                    self.run_elsewhere(script, state);
                    return true;
                }
            }
            "strace" => {
                if let Some(file) = options.value(&["-o"]).cloned() {
                    self.write(&file, state, Extent::File);
                }
            }
            "taskset" | "timeout" | "chrt" => rest = rest.get(1..).unwrap_or_default(),
            "time" => {
                if let Some(file) = options.value(&["-o", "--output"]).cloned() {
                    self.write(&file, state, Extent::File);
                }
            }
            "npx" | "bunx" if options.has(&["-c", "--call"]) => {
                self.writes.not_known("a command line of a package");
                return true;
            }
            _ => {}
        }
        self.inner(rest, own, call.input);
        true
    }

    /// Programs that hand a text to a shell: `su -c`, `script -c`. False: another program.
    fn line_program(&mut self, call: &Call<'_>, state: &State) -> bool {
        let mut state = state.clone();
        match call.name {
            "su" | "runuser" => {
                let with_value = [
                    "-c",
                    "--command",
                    "--session-command",
                    "-s",
                    "--shell",
                    "-g",
                    "-G",
                    "-w",
                    "-u",
                    "--user",
                ];
                let arguments = Arguments::parse(call.arguments, &with_value);
                if call.name == "runuser" && arguments.has(&["-u", "--user"]) {
                    return false;
                }
                // A login begins in the home of the user.
                let is_dash = |operand: &Value| operand.text() == Some("-");
                if arguments.has(&["-l", "--login"]) || arguments.operands.iter().any(is_dash) {
                    state.cwd = None;
                }
                match arguments.value(&["-c", "--command", "--session-command"]) {
                    Some(line) => self.shell_line(line, &state),
                    None => self.writes.not_known("a shell of another user"),
                }
            }
            "script" => {
                let arguments =
                    Arguments::parse(call.arguments, &["-c", "--command", "-O", "-I", "-B", "-T"]);
                let usual = Value::Text("typescript".to_owned());
                self.write(arguments.operands.first().unwrap_or(&usual), &state, Extent::File);
                match arguments.value(&["-c", "--command"]) {
                    Some(line) => self.shell_line(line, &state),
                    None => self.writes.not_known("a shell whose input is recorded"),
                }
            }
            _ => return false,
        }
        true
    }

    /// Reads a text as a shell does that gets it as its command line.
    fn shell_line(&mut self, line: &Value, state: &State) {
        match line {
            Value::Text(script) => self.run_elsewhere(script, state),
            _ => self.writes.not_known("a shell line that only the shell knows"),
        }
    }

    fn shell(&mut self, call: &Call<'_>, state: &State) {
        let (options, rest) = leading_options(call.arguments, &["-o", "-O", "--rcfile", "--init-file"]);
        let mut inner = state.clone();
        inner.functions.clear();
        if options.has(&["-n"]) {
            return;
        }
        if options.has(&["-c"]) {
            inner.arguments = Some(rest.get(2..).unwrap_or_default().to_vec());
            inner.set("0", rest.get(1).cloned().into_iter().collect());
            match rest.first() {
                Some(Value::Text(script)) => self.run_elsewhere(script, &inner),
                Some(_) => self.writes.not_known("a command line that only the shell knows"),
                None => {}
            }
        } else if rest.is_empty() || options.has(&["-s"]) {
            inner.arguments = Some(rest.to_vec());
            match call.input {
                Input::Text(script) => self.run_elsewhere(script, &inner),
                Input::Names(_) | Input::File(_) | Input::Unknown | Input::None => {
                    self.writes.not_known("a script from standard input");
                }
            }
        } else {
            self.writes.not_known("a script in a file");
        }
    }
}

/// The words of `env -S`: blanks separate them, quotes and backslashes hold them together. `None`: it has variables or escapes.
fn split_words(text: &str) -> Option<Vec<String>> {
    let mut words: Vec<String> = Vec::new();
    let (mut quote, mut in_word) = (None, false);
    for character in text.chars() {
        match character {
            '\\' | '$' => return None,
            '#' if !in_word && quote.is_none() => break,
            '\'' | '"' if quote == Some(character) => quote = None,
            _ if character.is_ascii_whitespace() && quote.is_none() => in_word = false,
            _ => {
                if !std::mem::replace(&mut in_word, true) {
                    words.push(String::new());
                }
                match character {
                    '\'' | '"' if quote.is_none() => quote = Some(character),
                    _ => words.last_mut()?.push(character),
                }
            }
        }
    }
    quote.is_none().then_some(words)
}

/// Words as one text, as `watch` and `eval` join them.
fn joined(words: &[Value]) -> Value {
    let texts: Option<Vec<&str>> = words.iter().map(Value::text).collect();
    texts.map_or(Value::Unknown, |texts| Value::Text(texts.join(" ")))
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
            true => long_name(text, with_value).is_some(),
            false => letters.iter().position(takes).is_some_and(|at| at + 1 == letters.len()),
        };
        at += 1 + usize::from(takes_next);
    }
    let at = at.min(arguments.len());
    (Arguments::parse(&arguments[..at], with_value), &arguments[at..])
}

/// The shell line of `lockkeeper exec NAME -c LINE`, also as one word `-cLINE`.
fn line_of_exec(call: &Call<'_>) -> Option<Value> {
    let is_exec = call.name == "lockkeeper" && call.arguments.first().and_then(Value::text) == Some("exec");
    let mut own = call.arguments.iter().take_while(|argument| argument.text() != Some("--"));
    let flag = own.find_map(|argument| argument.text()?.strip_prefix("-c")).filter(|_| is_exec)?;
    if flag.is_empty() { own.next().cloned() } else { Some(Value::Text(flag.to_owned())) }
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
