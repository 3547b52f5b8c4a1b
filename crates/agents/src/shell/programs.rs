//! What programs do with their arguments: builtins of the shell are here, other programs in the modules below.
//!
//! A program that is in no table may write anything: that is a reason in [`Writes::unknown`](crate::Writes::unknown).

mod archives;
mod awk;
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
use super::reader::{Extent, Input, Reader};
use super::state::State;
use super::value::Value;
use super::words::changed_names;
use crate::writes::Command;

/// A call of a program within a script.
pub(super) struct Call<'a> {
    pub(super) name: &'a str,
    pub(super) arguments: &'a [Value],
    pub(super) input: &'a Input,
}

impl Reader<'_> {
    /// Reads the call of a program, builtin or function.
    pub(super) fn program(&mut self, program: &Value, arguments: &[Value], state: &mut State, input: &Input) {
        let Some(path) = program.text() else {
            self.writes.not_known("a program that only the shell knows");
            return;
        };
        if self.function(path, arguments, state, input) {
            return;
        }
        // `/usr/bin/tee` is tee; `./tee` is somebody's script.
        let name = if path.starts_with('/') { path.rsplit('/').next().unwrap_or(path) } else { path };
        self.note_command(name, arguments, state);
        let only_asks = matches!(arguments, [only] if matches!(only.text(), Some("--help" | "--version")));
        if only_asks && !name.contains('/') {
            return;
        }
        let call = Call { name, arguments, input };
        let known = self.builtin(&call, state)
            || self.wrapper(&call, state)
            || self.find(&call, state)
            || self.git(&call, state)
            || self.formatter(&call, state)
            || self.editor(&call, state)
            || self.interpreter(&call, state)
            || self.archive(&call, state)
            || self.file_program(&call, state)
            || reading::only_reads(name, arguments);
        if !known {
            let name: String = name.chars().take(40).collect();
            self.writes.not_known(format!("the program {name:?} is not known"));
        }
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

    fn builtin(&mut self, call: &Call<'_>, state: &mut State) -> bool {
        let arguments = Arguments::parse(call.arguments, &[]);
        match call.name {
            "cd" | "chdir" => self.change_folder(arguments.operands.first(), state),
            "pushd" | "popd" => self.folder_stack(call, state),
            "export" | "local" | "declare" | "typeset" | "readonly" => declare(&arguments, state),
            "unset" => {
                for name in arguments.operands.iter().filter_map(Value::text) {
                    state.set(name, vec![Value::Text(String::new())]);
                    state.functions.remove(name);
                }
            }
            "read" | "mapfile" | "readarray" | "getopts" => {
                for name in arguments.operands.iter().filter_map(Value::text) {
                    state.set(name, vec![Value::Unknown]);
                }
            }
            "printf" if arguments.has(&["-v"]) => {
                if let Some(name) = arguments.operands.first().and_then(Value::text) {
                    state.set(name, vec![Value::Unknown]);
                }
            }
            "let" => {
                for text in arguments.operands.iter().filter_map(Value::text) {
                    changed_names(text).iter().for_each(|name| state.set(name, vec![Value::Unknown]));
                }
            }
            "set" if arguments.before_dashes == Some(0) => {
                for number in 1..=9 {
                    let value = arguments.operands.get(number - 1).cloned();
                    state.set(&number.to_string(), vec![value.unwrap_or(Value::Text(String::new()))]);
                }
            }
            "shift" => (1..=9).for_each(|number| state.set(&number.to_string(), vec![Value::Unknown])),
            "trap" => {
                if let [script, _, ..] = arguments.operands.as_slice()
                    && let Some(script) = script.text()
                    && script != "-"
                {
                    self.run_text(script, &mut state.clone());
                }
            }
            "eval" => {
                let words: Option<Vec<&str>> = call.arguments.iter().map(Value::text).collect();
                match words {
                    Some(words) => self.run_text(&words.join(" "), state),
                    None => self.writes.not_known("eval of what only the shell knows"),
                }
            }
            "source" | "." => {
                self.writes.not_known("a script that is read in");
                // It may set any variable and change the folder.
                state.variables.clear();
            }
            "mkdir" => {
                // A folder alone is nobody's work, and git does not keep it.
                let arguments = Arguments::parse(call.arguments, &["-m", "--mode", "-Z", "--context"]);
                arguments.operands.iter().for_each(|folder| self.make_folder(folder, state));
            }
            _ => return false,
        }
        true
    }

    /// `pushd` and `popd`. Places in the stack by number, such as `+1`, are not followed.
    fn folder_stack(&mut self, call: &Call<'_>, state: &mut State) {
        let before = state.cwd.clone();
        match (call.name, call.arguments) {
            ("pushd", [Value::Text(folder)]) if !folder.starts_with(['+', '-']) => {
                self.change_folder(Some(&Value::Text(folder.clone())), state);
                state.folders.push(before.clone());
            }
            // With an empty stack both fail, and the folder stays.
            ("pushd", []) => {
                if let Some(top) = state.folders.pop() {
                    state.folders.push(std::mem::replace(&mut state.cwd, top));
                }
            }
            ("popd", []) => {
                if let Some(top) = state.folders.pop() {
                    state.cwd = top;
                }
            }
            _ => {
                state.cwd = None;
                state.folders.clear();
            }
        }
        let old = before.as_deref().and_then(Path::to_str).map(str::to_owned);
        state.set("OLDPWD", vec![old.map_or(Value::Unknown, Value::Text)]);
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
