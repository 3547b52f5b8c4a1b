//! What programs do with their arguments: builtins of the shell are here, other programs in the modules below.
//!
//! A program that is in no table may write anything: that is a reason in [`Writes::unknown`](crate::Writes::unknown).

mod archives;
mod awk;
mod ed;
mod editors;
mod files;
mod find;
mod formatters;
mod git;
mod interpreters;
mod reading;
mod sed;
mod wrappers;
mod xargs;

use std::path::Path;

pub(super) use find::found_by;

use super::arguments::Arguments;
use super::outcome::Outcome;
use super::reader::{Extent, Input, Reader};
use super::state::State;
use super::value::Value;
use super::words::changed_names;
use crate::place::join;
use crate::writes::Command;

/// A call of a program within a script.
pub(super) struct Call<'a> {
    pub(super) name: &'a str,
    pub(super) arguments: &'a [Value],
    pub(super) input: &'a Input,
}

impl Reader<'_> {
    /// Reads the call of a program, builtin or function.
    pub(super) fn program(
        &mut self,
        program: &Value,
        arguments: &[Value],
        state: State,
        input: &Input,
    ) -> Outcome {
        let Some(path) = program.text() else {
            self.writes.not_known("a program that only the shell knows");
            return Outcome::either(state);
        };
        if let Some(function) = state.functions.get(path).cloned() {
            return self.function(&function, arguments, state, input);
        }
        // `/usr/bin/tee` is tee; `./tee` is somebody's script.
        let name = if path.starts_with('/') { path.rsplit('/').next().unwrap_or(path) } else { path };
        self.note_command(name, arguments, &state);
        let only_asks = matches!(arguments, [only] if matches!(only.text(), Some("--help" | "--version")));
        if only_asks && !name.contains('/') {
            return Outcome::either(state);
        }
        let call = Call { name, arguments, input };
        let state = match self.builtin(&call, state) {
            Ok(outcome) => return outcome,
            Err(state) => state,
        };
        // A process of its own: it does not change the state of this shell.
        let known = self.wrapper(&call, &state)
            || self.find(&call, &state)
            || self.git(&call, &state)
            || self.formatter(&call, &state)
            || self.editor(&call, &state)
            || self.interpreter(&call, &state)
            || self.archive(&call, &state)
            || self.file_program(&call, &state)
            || reading::only_reads(name, arguments);
        if !known {
            let name: String = name.chars().take(40).collect();
            self.writes.not_known(format!("the program {name:?} is not known"));
        }
        Outcome::either(state)
    }

    fn note_command(&mut self, name: &str, arguments: &[Value], state: &State) {
        if self.is_coordinated {
            return;
        }
        let mut text = name.to_owned();
        for argument in arguments {
            text.push(' ');
            text.push_str(match argument {
                Value::Text(word) | Value::Pattern(word) => word,
                Value::Unknown => "…",
            });
        }
        self.spend(text.len());
        let (folder, background) = (state.cwd.clone(), self.in_background);
        self.writes.runs(Command { text, folder, background });
    }

    /// Reads a command that the shell itself runs. Gives the state back if it is none.
    #[expect(
        clippy::result_large_err,
        reason = "the state is no error: it is given back, so that most commands need no copy of it"
    )]
    fn builtin(&mut self, call: &Call<'_>, mut state: State) -> Result<Outcome, State> {
        let arguments = Arguments::parse(call.arguments, &[]);
        match call.name {
            "cd" | "chdir" => {
                return Ok(self.change_or_stay(state, |reader, state| {
                    reader.change_folder(arguments.operands.first(), state);
                }));
            }
            "pushd" | "popd" => return Ok(self.folder_stack(call, state)),
            "exit" => return Ok(Outcome::default()),
            "return" | "break" | "continue" => return Ok(Outcome::left(state)),
            "false" => return Ok(Outcome::failed(state)),
            "true" | ":" | "echo" | "pwd" => {}
            "printf" if !arguments.has(&["-v"]) => {}
            "test" | "[" => return Ok(self.test(call, state)),
            "command" | "builtin" | "exec" => return Ok(self.unwrapped(call, state)),
            "export" | "local" | "declare" | "typeset" | "readonly" => declare(&arguments, &mut state),
            "unset" => {
                for name in arguments.operands.iter().filter_map(Value::text) {
                    state.set(name, vec![Value::Text(String::new())]);
                    state.functions.remove(name);
                }
            }
            "read" if reads_line(call.arguments) => {
                let name = arguments.operands.first().and_then(Value::text).unwrap_or_default();
                let value = line_of(call.input, arguments.has(&["-r"]), &state);
                state.set(name, vec![value]);
                return Ok(Outcome::either(state));
            }
            "read" | "mapfile" | "readarray" | "getopts" => {
                for name in arguments.operands.iter().filter_map(Value::text) {
                    state.set(name, vec![Value::Unknown]);
                }
                return Ok(Outcome::either(state));
            }
            "printf" => {
                if let Some(name) = arguments.operands.first().and_then(Value::text) {
                    state.set(name, vec![Value::Unknown]);
                }
            }
            "let" => {
                for text in arguments.operands.iter().filter_map(Value::text) {
                    changed_names(text).iter().for_each(|name| state.set(name, vec![Value::Unknown]));
                }
                return Ok(Outcome::either(state));
            }
            "set" if arguments.before_dashes == Some(0) => {
                state.arguments = Some(arguments.operands);
            }
            "shift" => {
                let count = arguments.operands.first().map_or(Some(1), |count| count.text()?.parse().ok());
                state.arguments = match (state.arguments, count) {
                    (Some(arguments), Some(count)) if count <= arguments.len() => {
                        Some(arguments[count..].to_vec())
                    }
                    _ => None,
                };
                return Ok(Outcome::either(state));
            }
            "trap" => {
                if let [script, _, ..] = arguments.operands.as_slice()
                    && let Some(script) = script.text()
                    && script != "-"
                {
                    self.run_elsewhere(script, &state);
                }
            }
            "eval" => {
                let words: Option<Vec<&str>> = call.arguments.iter().map(Value::text).collect();
                if let Some(words) = words {
                    return Ok(self.run_text(&words.join(" "), state));
                }
                self.writes.not_known("eval of what only the shell knows");
                return Ok(Outcome::either(state));
            }
            "source" | "." => {
                self.writes.not_known("a script that is read in");
                // It may set any variable.
                state.variables.clear();
                return Ok(Outcome::either(state));
            }
            "mkdir" => {
                // A folder alone is nobody's work, and git does not keep it.
                let arguments = Arguments::parse(call.arguments, &["-m", "--mode", "-Z", "--context"]);
                let is_there = |folder: &Value| match (folder.text(), &state.cwd) {
                    (Some(text), Some(cwd)) => self.is_folder(&join(cwd, text)),
                    _ => true,
                };
                let may_fail =
                    !arguments.has(&["-p", "--parents"]) && arguments.operands.iter().any(is_there);
                arguments.operands.iter().for_each(|folder| self.make_folder(folder, &state));
                if may_fail {
                    return Ok(Outcome::either(state));
                }
            }
            _ => return Err(state),
        }
        Ok(Outcome::ok(state))
    }

    /// Changes the folder. If the folder is not there, that may also fail.
    fn change_or_stay(&mut self, state: State, change: impl FnOnce(&mut Self, &mut State)) -> Outcome {
        let mut changed = state.clone();
        change(self, &mut changed);
        let is_sure = changed.cwd.as_deref().is_none_or(|folder| self.is_surely_folder(folder));
        let failed = if is_sure { Outcome::default() } else { Outcome::failed(state) };
        Outcome::ok(changed).and(failed)
    }

    /// `[ -d PATH ]`, `[ -e PATH ]`: true for a folder that is there. Other tests are not worked out.
    fn test(&self, call: &Call<'_>, state: State) -> Outcome {
        let words: Vec<&str> = call.arguments.iter().filter_map(Value::text).collect();
        let path = match words.as_slice() {
            ["-d" | "-e", path] | ["-d" | "-e", path, "]"] if words.len() == call.arguments.len() => path,
            _ => return Outcome::either(state),
        };
        let folder = state.cwd.as_deref().map(|cwd| join(cwd, path));
        match folder.is_some_and(|folder| self.is_surely_folder(&folder)) {
            true => Outcome::ok(state),
            false => Outcome::either(state),
        }
    }

    /// `pushd` and `popd`. Places in the stack by number, such as `+1`, are not followed.
    fn folder_stack(&mut self, call: &Call<'_>, mut state: State) -> Outcome {
        let before = state.cwd.clone();
        match (call.name, call.arguments) {
            ("pushd", [Value::Text(folder)]) if !folder.starts_with(['+', '-']) => {
                return self.change_or_stay(state, |reader, state| {
                    reader.change_folder(Some(&Value::Text(folder.clone())), state);
                    state.folders.push(before);
                });
            }
            ("pushd", []) => {
                let Some(top) = state.folders.pop() else { return Outcome::failed(state) };
                state.folders.push(std::mem::replace(&mut state.cwd, top));
            }
            ("popd", []) => {
                let Some(top) = state.folders.pop() else { return Outcome::failed(state) };
                state.cwd = top;
            }
            _ => {
                state.cwd = None;
                state.folders.clear();
            }
        }
        let old = before.as_deref().and_then(Path::to_str).map(str::to_owned);
        state.set("OLDPWD", vec![old.map_or(Value::Unknown, Value::Text)]);
        Outcome::ok(state)
    }

    /// Notes that each operand is removed or gets another file.
    pub(super) fn write_names(&mut self, operands: &[Value], state: &State, extent: Extent) {
        operands.iter().for_each(|operand| self.write_name(operand, state, extent));
    }

    /// Notes a write of each operand.
    pub(super) fn write_all(&mut self, operands: &[Value], state: &State, extent: Extent) {
        operands.iter().for_each(|operand| self.write(operand, state, extent));
    }
}

/// `read NAME`, `read -r NAME`.
fn reads_line(arguments: &[Value]) -> bool {
    let texts: Option<Vec<&str>> = arguments.iter().map(Value::text).collect();
    matches!(texts.as_deref(), Some([name] | ["-r", name]) if !name.starts_with('-'))
}

/// The value that `read NAME` or `read -r NAME` gets: the first line of a text, without the blanks around it.
fn line_of(input: &Input, is_raw: bool, state: &State) -> Value {
    match input {
        Input::Text(text) if !state.variables.contains_key("IFS") => {
            let line = text.lines().next().unwrap_or_default().trim_matches([' ', '\t']);
            if is_raw || !line.contains('\\') { Value::Text(line.to_owned()) } else { Value::Unknown }
        }
        _ => Value::Unknown,
    }
}

fn declare(arguments: &Arguments, state: &mut State) {
    for operand in &arguments.operands {
        match operand.text() {
            Some(text) => {
                if let Some((name, value)) = text.split_once('=') {
                    state.set(name, vec![Value::Text(value.to_owned())]);
                }
            }
            // `export X=$(…)`: the name is lost with the value, so all of them are.
            None => state.variables.clear(),
        }
    }
}
