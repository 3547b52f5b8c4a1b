//! Programs that write the files which their arguments name.

use std::path::Path;

use super::Call;
use crate::patch;
use crate::shell::arguments::Arguments;
use crate::shell::reader::{Extent, Input, Reader};
use crate::shell::state::State;
use crate::shell::value::Value;

impl Reader<'_> {
    pub(super) fn file_program(&mut self, call: &Call<'_>, state: &State) -> bool {
        let parse = |with_value: &[&str]| Arguments::parse(call.arguments, with_value);
        let file = Extent::File;
        match call.name {
            "tee" | "sponge" | "unlink" | "dos2unix" | "unix2dos" | "ed" | "ex" => {
                self.write_all(&parse(&["-c"]).operands, state, file);
            }
            "touch" => {
                let with_value = ["-d", "-t", "-r", "--date", "--reference"];
                self.write_all(&parse(&with_value).operands, state, file);
            }
            "truncate" => {
                let with_value = ["-s", "-r", "--size", "--reference"];
                self.write_all(&parse(&with_value).operands, state, file);
            }
            "rm" | "shred" | "trash" => {
                let arguments = parse(&["-n", "-s"]);
                let recursive = arguments.has(&["-r", "-R", "--recursive"]);
                let extent = if recursive { Extent::Below } else { file };
                self.write_all(&arguments.operands, state, extent);
            }
            "rmdir" => self.write_all(&parse(&[]).operands, state, file),
            "chmod" | "chown" | "chgrp" => {
                let arguments = parse(&["--reference"]);
                let extent = if arguments.has(&["-R", "--recursive"]) { Extent::Below } else { file };
                // The mode `-x` looks like an option, so that all operands are files then.
                let mode = !arguments.has(&["--reference", "-x", "-r", "-w"]);
                self.write_all(
                    arguments.operands.get(usize::from(mode)..).unwrap_or_default(),
                    state,
                    extent,
                );
            }
            "cp" | "mv" | "install" | "ln" | "rsync" | "scp" => self.copy(call, state),
            "dd" => {
                for text in call.arguments.iter().map(|argument| argument.text()) {
                    match text {
                        Some(text) => {
                            if let Some(of) = text.strip_prefix("of=") {
                                self.write(&Value::Text(of.to_owned()), state, file);
                            }
                        }
                        None => self.writes.not_known("dd with an argument that only the shell knows"),
                    }
                }
            }
            "sed" => self.sed(call, state),
            "perl" | "ruby" => self.one_liner(call, state),
            "patch" => self.patch(call, state),
            "apply_patch" | "applypatch" => self.apply_patch(call, state),
            "sort" | "shuf" => {
                let with_value = ["-o", "--output", "-k", "-t", "-S", "-T", "--key", "-n", "--head-count"];
                let with_value = if call.name == "sort" { &with_value[..7] } else { &with_value[..] };
                if let Some(output) = parse(with_value).value(&["-o", "--output"]) {
                    self.write(&output.clone(), state, file);
                }
            }
            "uniq" => {
                let with_value = ["-f", "-s", "-w", "--skip-fields", "--skip-chars", "--check-chars"];
                if let Some(output) = parse(&with_value).operands.get(1) {
                    self.write(&output.clone(), state, file);
                }
            }
            "curl" => self.curl(call, state),
            "wget" => match parse(&["-O", "--output-document"]).value(&["-O", "--output-document"]) {
                Some(output) if output.text() == Some("-") => {}
                Some(output) => self.write(&output.clone(), state, file),
                None => self.writes.not_known("the name of a download"),
            },
            "yq" => {
                let arguments = parse(&["-I", "-o", "-p", "--output-format", "--input-format"]);
                if arguments.has(&["-i", "--inplace", "--in-place"]) {
                    self.write_all(arguments.operands.get(1..).unwrap_or_default(), state, file);
                }
            }
            "gzip" | "gunzip" | "xz" | "unxz" | "zstd" | "bzip2" | "bunzip2" => {
                let arguments = parse(&["-S", "-T"]);
                if !arguments.has(&["-c", "--stdout", "-l", "-t", "--list", "--test"]) {
                    self.writes.not_known("the name of a packed file");
                    self.write_all(&arguments.operands, state, file);
                }
            }
            "tar" => self.tar(call, state),
            _ => return false,
        }
        true
    }

    /// `cp`, `mv`, `install`, `ln`, `rsync`: the destination, and for `mv` the sources.
    fn copy(&mut self, call: &Call<'_>, state: &State) {
        let with_value: &[&str] = match call.name {
            "install" => {
                &["-t", "--target-directory", "-m", "--mode", "-o", "--owner", "-g", "--group", "-S"]
            }
            "rsync" => &["-e", "--rsh", "--exclude", "--include", "--filter", "-f", "--files-from"],
            "scp" => &["-i", "-P", "-o", "-F", "-l", "-c", "-J", "-S"],
            _ => &["-t", "--target-directory", "-S", "--suffix"],
        };
        let arguments = Arguments::parse(call.arguments, with_value);
        if call.name == "rsync" && arguments.has(&["-n", "--dry-run"]) {
            return;
        }
        if call.name == "install" && arguments.has(&["-d", "--directory"]) {
            arguments.operands.iter().for_each(|folder| self.make_folder(folder, state));
            return;
        }
        let mut sources = arguments.operands.clone();
        let folder = arguments.value(&["-t", "--target-directory"]).cloned();
        let into = folder.is_some();
        let Some(destination) = folder.or_else(|| if sources.len() > 1 { sources.pop() } else { None })
        else {
            // `ln -s ../a` makes `a` here.
            if let ("ln", [Value::Text(target)]) = (call.name, sources.as_slice()) {
                let name = target.rsplit('/').next().unwrap_or_default().to_owned();
                self.write(&Value::Text(name), state, Extent::File);
            }
            return;
        };
        if matches!(call.name, "rsync" | "scp") {
            let remote = destination.text().is_some_and(|text| text.contains(':'));
            if !remote {
                self.writes.not_known("which files of a folder are copied");
            }
            return;
        }
        if arguments.has(&["-b", "--backup"]) {
            self.writes.not_known("the name of a backup");
        }
        let recursive = call.name == "mv" || arguments.has(&["-r", "-R", "-a", "--recursive", "--archive"]);
        let extent = if recursive { Extent::Below } else { Extent::File };
        if call.name == "mv" {
            self.write_all(&sources, state, Extent::Below);
        }
        let plain = arguments.has(&["-T", "--no-target-directory"])
            || (call.name == "ln" && arguments.has(&["-n", "--no-dereference"]));
        let into = !plain && (into || sources.len() > 1 || self.names_folder(&destination, state));
        // A pattern may mean several sources: then the destination is a folder.
        let into = into || sources.iter().any(|source| matches!(source, Value::Pattern(_)));
        if !into {
            self.write(&destination, state, extent);
            return;
        }
        for source in &sources {
            let name = match source {
                Value::Text(path) => path.trim_end_matches('/').rsplit('/').next().map(str::to_owned),
                Value::Pattern(_) | Value::Unknown => None,
            };
            match (name, source, &destination) {
                (Some(name), _, Value::Text(folder)) if !matches!(name.as_str(), "" | "." | "..") => {
                    let path = format!("{}/{name}", folder.trim_end_matches('/'));
                    self.write(&Value::Text(path), state, extent);
                }
                (None, Value::Pattern(pattern), Value::Text(folder)) => {
                    let name = pattern.trim_end_matches('/').rsplit('/').next().unwrap_or("*");
                    let folder = crate::shell::value::escaped(folder.trim_end_matches('/'));
                    self.write(&Value::Pattern(format!("{folder}/{name}")), state, extent);
                }
                // `cp -r a/. b` writes some of b: not all of b is to be denied for that.
                (Some(_), _, Value::Text(_)) => self.writes.not_known("which files of a folder are copied"),
                _ => self.writes.not_known("a copy whose name only the shell knows"),
            }
        }
    }

    fn names_folder(&self, value: &Value, state: &State) -> bool {
        let Some(text) = value.text() else { return false };
        text.ends_with('/')
            || matches!(text, "." | "..")
            || state.cwd.as_deref().is_some_and(|cwd| self.is_folder(&crate::place::join(cwd, text)))
            || (text.starts_with('/') && self.is_folder(Path::new(text)))
    }

    fn sed(&mut self, call: &Call<'_>, state: &State) {
        // `-i` and `--in-place` have a suffix at most, so they are taken out before the other options are read.
        let suffix = call.arguments.iter().filter_map(Value::text).find_map(in_place_suffix);
        let in_place = |value: &&Value| value.text().and_then(in_place_suffix).is_some();
        let rest: Vec<Value> = call.arguments.iter().filter(|value| !in_place(value)).cloned().collect();
        let with_value = ["-e", "--expression", "-f", "--file", "-l", "--line-length"];
        let arguments = Arguments::parse(&rest, &with_value);
        let script = usize::from(!arguments.has(&["-e", "--expression", "-f", "--file"]));
        let files = arguments.operands.get(script..).unwrap_or_default();
        if let Some(suffix) = suffix {
            self.write_all(files, state, Extent::File);
            for file in files.iter().filter(|_| !suffix.is_empty()) {
                let backup = match file {
                    Value::Text(file) if !suffix.contains(['*', '/']) => {
                        Value::Text(format!("{file}{suffix}"))
                    }
                    _ => Value::Unknown,
                };
                self.write(&backup, state, Extent::File);
            }
        }
        let scripts = arguments.operands.iter().take(script).chain(arguments.values(&["-e", "--expression"]));
        if scripts.filter_map(Value::text).any(sed_writes) {
            self.writes.not_known("a sed script that writes files");
        }
    }

    /// `perl -pi -e …`, `ruby -i -pe …`: with `-i` the operands are written; a program of its own may write anything.
    fn one_liner(&mut self, call: &Call<'_>, state: &State) {
        let short = |text: &&str| text.starts_with('-') && !text.starts_with("--");
        let mut in_place = false;
        let mut operands = Vec::new();
        let mut script_follows = false;
        for argument in call.arguments {
            let text = argument.text().unwrap_or_default();
            if std::mem::take(&mut script_follows) {
                continue;
            }
            if operands.is_empty() && short(&text) && text.len() > 1 {
                let letters = &text[1..];
                let before_script = letters.find(['e', 'E']).map_or(letters, |at| &letters[..at]);
                in_place |= before_script.contains('i');
                script_follows = letters.ends_with(['e', 'E']);
            } else {
                operands.push(argument.clone());
            }
        }
        if in_place {
            self.write_all(&operands, state, Extent::File);
        } else {
            self.writes.not_known(format!("a program of {}", call.name));
        }
    }

    fn patch(&mut self, call: &Call<'_>, state: &State) {
        let with_value =
            ["-p", "--strip", "-i", "--input", "-d", "--directory", "-o", "--output", "-r", "-F", "-D"];
        let arguments = Arguments::parse(call.arguments, &with_value);
        if arguments.has(&["--dry-run", "-v"]) {
            return;
        }
        if let Some(output) = arguments.value(&["-o", "--output"]) {
            self.write(&output.clone(), state, Extent::File);
            return;
        }
        let mut state = state.clone();
        if let Some(folder) = arguments.value(&["-d", "--directory"]) {
            self.change_folder(Some(folder), &mut state);
        }
        if let Some(file) = arguments.operands.first() {
            self.write(&file.clone(), &state, Extent::File);
            return;
        }
        let strip =
            arguments.value(&["-p", "--strip"]).and_then(Value::text).map_or(Some(0), |n| n.parse().ok());
        self.unified(call.input, strip, &state);
    }

    /// A unified diff on standard input.
    pub(super) fn unified(&mut self, input: &Input, strip: Option<usize>, state: &State) {
        match (input, strip) {
            (Input::Text(diff), Some(strip)) => {
                for path in patch::unified_paths(diff, strip) {
                    self.write(&Value::Text(path), state, Extent::File);
                }
            }
            _ => self.writes.not_known("a patch in a file"),
        }
    }

    fn apply_patch(&mut self, call: &Call<'_>, state: &State) {
        let text = match (call.arguments.first(), call.input) {
            (Some(Value::Text(text)), _) | (None, Input::Text(text)) => text,
            _ => {
                self.writes.not_known("a patch that only the shell knows");
                return;
            }
        };
        match patch::paths(text) {
            Ok(paths) => {
                for path in paths {
                    self.write(&Value::Text(path), state, Extent::File);
                }
            }
            Err(why) => self.writes.not_known(why.to_string()),
        }
    }

    fn curl(&mut self, call: &Call<'_>, state: &State) {
        let with_value = [
            "-o",
            "--output",
            "-H",
            "--header",
            "-d",
            "--data",
            "-X",
            "--request",
            "-u",
            "--user",
            "-A",
            "-e",
            "-b",
            "-c",
            "--cookie-jar",
            "-D",
            "--dump-header",
            "-F",
            "--form",
            "-m",
            "--max-time",
            "-w",
            "--write-out",
            "-T",
            "--data-raw",
            "--data-binary",
            "--retry",
            "--connect-timeout",
            "--url",
        ];
        let arguments = Arguments::parse(call.arguments, &with_value);
        if arguments.has(&["-O", "--remote-name", "--output-dir", "-J", "--remote-name-all"]) {
            self.writes.not_known("the name of a download");
        }
        for file in arguments.values(&["-o", "--output", "-c", "--cookie-jar", "-D", "--dump-header"]) {
            if file.text() != Some("-") {
                self.write(file, state, Extent::File);
            }
        }
    }

    fn tar(&mut self, call: &Call<'_>, state: &State) {
        let first = call.arguments.first().and_then(Value::text).unwrap_or_default();
        let mut arguments = call.arguments.to_vec();
        // `tar xzf a` is `tar -xzf a`.
        if !first.is_empty() && !first.starts_with('-') {
            arguments[0] = Value::Text(format!("-{first}"));
        }
        let with_value = ["-f", "--file", "-C", "--directory", "-T", "-X", "--exclude"];
        let arguments = Arguments::parse(&arguments, &with_value);
        if arguments.has(&["-t", "--list"]) {
            return;
        }
        match arguments.value(&["-f", "--file"]) {
            Some(file) if arguments.has(&["-c", "--create", "-r", "-u"]) && file.text() != Some("-") => {
                self.write(&file.clone(), state, Extent::File);
            }
            _ if arguments.has(&["-c", "--create"]) => {}
            _ => self.writes.not_known("what is in an archive"),
        }
    }
}

/// The suffix of `sed -i`, empty if there is none. `None`: the option is another one.
fn in_place_suffix(option: &str) -> Option<&str> {
    if let Some(rest) = option.strip_prefix("--in-place") {
        return rest.is_empty().then_some("").or_else(|| rest.strip_prefix('='));
    }
    let letters = option.strip_prefix('-').filter(|letters| !letters.starts_with('-'))?;
    // The rest of a cluster is the value of the first letter that takes one.
    let at = letters.find(['i', 'e', 'f', 'l'])?;
    letters[at..].strip_prefix('i')
}

/// Whether a sed script has the command `w` or the flag `w`, which write a file.
fn sed_writes(script: &str) -> bool {
    script.split([';', '\n', '{', '}']).any(|command| {
        let command = command.trim_start_matches(|c: char| c.is_ascii_digit() || " ,$!".contains(c));
        command.starts_with("w ") || command.contains("/w ") || command.contains("/ w ")
    })
}
