//! Editors that write files in place: `perl -i`, `ruby -i`, `vim -es`; `sed`, `awk` and `ed` have files of their own.

use super::Call;
use crate::shell::arguments::Arguments;
use crate::shell::reader::{Extent, Reader};
use crate::shell::state::State;
use crate::shell::value::Value;

impl Reader<'_> {
    pub(super) fn editor(&mut self, call: &Call<'_>, state: &State) -> bool {
        match call.name {
            "sed" => self.sed(call, state),
            "perl" | "ruby" => self.one_liner(call, state),
            "awk" | "gawk" | "mawk" | "nawk" => self.awk(call, state),
            "ed" | "ex" => self.ed(call, state),
            "vim" | "vi" | "nvim" => self.vim(call, state),
            _ => return false,
        }
        true
    }

    fn vim(&mut self, call: &Call<'_>, state: &State) {
        // `-es` and `-Es` are two options; `-s` alone has a value.
        let is_silent = |value: &Value| matches!(value.text(), Some("-es" | "-Es" | "-e" | "-E"));
        let mut with_value = vec!["-c", "--cmd", "-S", "-u", "-i", "-w", "-W", "-T", "-t", "-q"];
        with_value.extend(Some("-s").filter(|_| !call.arguments.iter().any(is_silent)));
        let arguments = Arguments::parse(call.arguments, &with_value);
        // Only a command can write then.
        let is_read_only = arguments.has(&["-R", "-M"]);
        let is_command = |value: &Value| value.text().is_some_and(|text| text.starts_with('+'));
        let commands = ["-c", "--cmd", "-S", "-s", "-e", "-E", "-w", "-W"];
        if is_read_only && !arguments.has(&commands) && !arguments.operands.iter().any(is_command) {
            return;
        }
        let is_file = |value: &&Value| !value.text().is_some_and(|text| text.starts_with('+'));
        let files: Vec<Value> = arguments.operands.iter().filter(is_file).cloned().collect();
        self.write_all(if is_read_only { &[] } else { &files }, state, Extent::File);
        self.writes.not_known("an editor that may write more than the files that it is given");
    }

    /// `perl -pi -e …`, `ruby -i -pe …`: with `-i` the operands are written; a program of its own may write anything.
    fn one_liner(&mut self, call: &Call<'_>, state: &State) {
        let short = |text: &&str| text.starts_with('-') && !text.starts_with("--");
        let mut suffix = None;
        let mut operands = Vec::new();
        let mut script_follows = false;
        for argument in call.arguments {
            let text = argument.text().unwrap_or_default();
            if std::mem::take(&mut script_follows) {
                continue;
            }
            if operands.is_empty() && short(&text) && text.len() > 1 {
                // What follows these letters is their value: `-Mstrict`.
                let values: &[char] = if call.name == "perl" {
                    &['M', 'm', 'I', 'D', 'F', 'V', 'x', 'C', 'd']
                } else {
                    &['r', 'I', 'C', 'F', 'K', 'T', 'W', 'x']
                };
                let letters = text[1..].split(values).next().unwrap_or_default();
                let script = letters.find(['e', 'E']);
                let in_place = letters.find('i').filter(|at| script.is_none_or(|script| *at < script));
                // All that follows `-i` is the suffix of a copy.
                if let Some(at) = in_place {
                    suffix = Some(&letters[at + 1..]);
                }
                script_follows = in_place.is_none() && letters.ends_with(['e', 'E']);
            } else {
                operands.push(argument.clone());
            }
        }
        let Some(suffix) = suffix else {
            if !self.interpreter(call, state) {
                self.writes.not_known(format!("a program of {}", call.name));
            }
            return;
        };
        self.write_names(&operands, state, Extent::File);
        self.write_backups(&operands, suffix, state);
    }

    /// Copies of files that an editor makes before it writes them.
    pub(super) fn write_backups(&mut self, files: &[Value], suffix: &str, state: &State) {
        for file in files.iter().filter(|_| !suffix.is_empty()) {
            let backup = match file {
                Value::Text(file) if !suffix.contains(['*', '/']) => Value::Text(format!("{file}{suffix}")),
                _ => Value::Unknown,
            };
            self.write(&backup, state, Extent::File);
        }
    }
}
