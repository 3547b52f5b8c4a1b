//! Programs that write the files which their arguments name.

use std::path::Path;

use super::Call;
use crate::patch;
use crate::place::join;
use crate::shell::arguments::Arguments;
use crate::shell::reader::{Extent, Input, Reader};
use crate::shell::state::State;
use crate::shell::value::Value;
use crate::writes::Target;

impl Reader<'_> {
    pub(super) fn file_program(&mut self, call: &Call<'_>, state: &State) -> bool {
        let parse = |with_value: &[&str]| Arguments::parse(call.arguments, with_value);
        let file = Extent::File;
        match call.name {
            "unlink" => self.write_names(&parse(&[]).operands, state, file),
            "tee" | "sponge" | "dos2unix" | "unix2dos" | "mkfifo" => {
                self.write_all(&parse(&["-m"]).operands, state, file);
            }
            "split" | "csplit" => self.split(call, state),
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
                self.write_names(&arguments.operands, state, extent);
            }
            "link" => self.write_all(parse(&[]).operands.get(1..).unwrap_or_default(), state, file),
            "rmdir" => self.write_names(&parse(&[]).operands, state, file),
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
            "fallocate" => {
                self.write_all(&parse(&["-l", "-o", "--length", "--offset"]).operands, state, file);
            }
            "iconv" => match parse(&["-o", "--output", "-f", "-t"]).value(&["-o", "--output"]) {
                Some(output) => self.write(&output.clone(), state, file),
                None => return false,
            },
            // It also writes files with names of its own, so the program stays unknown.
            "cc" | "gcc" | "g++" | "c++" | "clang" | "clang++" | "rustc" | "ld" => {
                self.compiled(call.arguments, state);
                return false;
            }
            _ => return false,
        }
        true
    }

    /// `-o FILE`, `-oFILE` of a compiler. Its other options are words: `-fno-common`.
    fn compiled(&mut self, arguments: &[Value], state: &State) {
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let output = match argument.text().and_then(|text| text.strip_prefix("-o")) {
                Some("") => rest.next().cloned().unwrap_or(Value::Unknown),
                Some(output) => Value::Text(output.to_owned()),
                None => continue,
            };
            self.write(&output, state, Extent::File);
        }
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
            if destination.text().is_some_and(|text| text.contains(':')) {
                return;
            }
            // A source with `/` at its end, or a folder, is copied file by file; so is what is elsewhere.
            let is_file = |source: &Value| {
                source.text().is_some_and(|text| !text.contains(':')) && !self.names_folder(source, state)
            };
            // What is in the destination and not in the source is removed.
            let mut options = call.arguments.iter().filter_map(Value::text);
            if options.any(|text| text.starts_with("--del")) {
                self.write(&destination, state, Extent::Below);
                return;
            }
            if !sources.iter().all(is_file) {
                self.writes.not_known("which files of a folder are copied");
                return;
            }
            if arguments.has(&["--remove-source-files"]) {
                self.write_all(&sources, state, Extent::File);
            }
        }
        if arguments.has(&["--parents"]) {
            self.writes.not_known("which folders a copy is put into");
            return;
        }
        if arguments.has(&["-b", "--backup"]) {
            self.writes.not_known("the name of a backup");
        }
        let recursive = call.name == "mv" || arguments.has(&["-r", "-R", "-a", "--recursive", "--archive"]);
        let extent = if recursive { Extent::Below } else { Extent::File };
        if call.name == "mv" {
            self.write_names(&sources, state, Extent::Below);
        }
        let plain = arguments.has(&["-T", "--no-target-directory"])
            || (call.name == "ln" && arguments.has(&["-n", "--no-dereference"]));
        let into = !plain && (into || sources.len() > 1 || self.names_folder(&destination, state));
        // A pattern may mean several sources: then the destination is a folder.
        let into = into || sources.iter().any(|source| matches!(source, Value::Pattern(_)));
        if !into {
            match call.name {
                "mv" | "ln" => self.write_name(&destination, state, extent),
                _ => self.write(&destination, state, extent),
            }
            self.note_link(call, &arguments, sources.first(), &destination, state);
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
                (Some(_), Value::Text(from), Value::Text(folder)) => self.copy_content(from, folder, state),
                _ => {
                    // Those that match, or files in folders that match.
                    if matches!(destination, Value::Pattern(_)) {
                        self.write(&destination, state, extent);
                    }
                    self.writes.not_known("a copy whose name only the shell knows");
                }
            }
        }
    }

    /// `cp -r FROM/. FOLDER`: a file in the folder for each file that is in the other one.
    fn copy_content(&mut self, from: &str, folder: &str, state: &State) {
        let files = state.cwd.as_deref().and_then(|cwd| self.files_below(&join(cwd, from)));
        let Some(files) = files else {
            self.writes.not_known("which files of a folder are copied");
            return;
        };
        for file in files {
            self.write(&Value::Text(format!("{}/{file}", folder.trim_end_matches('/'))), state, Extent::File);
        }
    }

    /// `ln A B`, `cp -l A B`: a later write to B in this script changes A.
    fn note_link(
        &mut self,
        call: &Call<'_>,
        arguments: &Arguments,
        source: Option<&Value>,
        name: &Value,
        state: &State,
    ) {
        let is_symbolic = arguments.has(&["-s", "--symbolic", "--symbolic-link"]);
        let is_link =
            call.name == "ln" || (call.name == "cp" && (is_symbolic || arguments.has(&["-l", "--link"])));
        let (Some(source), Some(name), Some(cwd)) = (source.and_then(Value::text), name.text(), &state.cwd)
        else {
            return;
        };
        let name = crate::place::join(cwd, name);
        let from = name.parent().filter(|_| is_symbolic).unwrap_or(cwd);
        let leads_to = crate::place::join(from, source);
        if is_link {
            self.link(&name, &leads_to);
        }
    }

    /// `split`, `csplit`: the names begin with a prefix.
    fn split(&mut self, call: &Call<'_>, state: &State) {
        let with_value: &[&str] = match call.name {
            "split" => {
                &["-a", "-b", "-C", "-l", "-n", "-t", "--lines", "--bytes", "--suffix-length", "--number"]
            }
            _ => &["-f", "--prefix", "-b", "--suffix-format", "-n", "--digits"],
        };
        let arguments = Arguments::parse(call.arguments, with_value);
        let (prefix, usual) = match call.name {
            "split" => (arguments.operands.get(1), "x"),
            _ => (arguments.value(&["-f", "--prefix"]), "xx"),
        };
        // Two characters follow at least, unless their number is given.
        let length = arguments.value(match call.name {
            "split" => &["-a", "--suffix-length"],
            _ => &["-n", "--digits"],
        });
        let length = length.map_or(Some(2), |length| length.text()?.parse().ok());
        let end = "?".repeat(length.filter(|length| (1..=16).contains(length)).unwrap_or(1));
        let names = prefix.map_or(Some(usual), Value::text).map_or(Value::Unknown, |prefix| {
            Value::Pattern(format!("{}{end}*", crate::shell::value::escaped(prefix)))
        });
        self.write(&names, state, Extent::File);
    }

    fn names_folder(&self, value: &Value, state: &State) -> bool {
        let Some(text) = value.text() else { return false };
        text.ends_with('/')
            || matches!(text, "." | "..")
            || state.cwd.as_deref().is_some_and(|cwd| self.is_folder(&crate::place::join(cwd, text)))
            || (text.starts_with('/') && self.is_folder(Path::new(text)))
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
        let named = arguments.value(&["-i", "--input"]).or(arguments.operands.get(1));
        let input = match named {
            Some(file) => self.input_of(file, call.input, &state),
            None => call.input.clone(),
        };
        // Without the option, only the last part of a name counts.
        let strip = arguments.value(&["-p", "--strip"]);
        let strip = strip.map_or(Some(usize::MAX), |strip| strip.text()?.parse().ok());
        self.unified(&input, strip, &state);
    }

    /// A unified diff.
    pub(super) fn unified(&mut self, input: &Input, strip: Option<usize>, state: &State) {
        let diff = match input {
            Input::Text(diff) => Some(diff.clone()),
            // The script may change the file before.
            Input::File(file) if !self.may_have_written(file) => (self.place.text)(file),
            Input::File(_) | Input::None | Input::Names(_) | Input::Unknown => None,
        };
        self.spend(diff.as_ref().map_or(0, String::len));
        let paths = diff.zip(strip).map(|(diff, strip)| patch::unified_paths(&diff, strip));
        match paths.filter(|paths| !paths.is_empty()) {
            Some(paths) => {
                for path in paths {
                    self.write(&Value::Text(path), state, Extent::File);
                }
            }
            None => self.writes.not_known("a patch that is not known before"),
        }
    }

    /// What is read from a file that an argument names; `-` is the standard input.
    pub(in crate::shell) fn input_of(&self, file: &Value, input: &Input, state: &State) -> Input {
        match self.target(file, state, Extent::File) {
            _ if file.text() == Some("-") => input.clone(),
            Ok(Some(Target::File(path))) => Input::File(path),
            _ => Input::Unknown,
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
}
