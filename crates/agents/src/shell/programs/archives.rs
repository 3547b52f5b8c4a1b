//! Archives: packing writes the archive; unpacking writes its members, which are known only if the command names them.

use super::Call;
use crate::shell::arguments::Arguments;
use crate::shell::reader::{Extent, Reader};
use crate::shell::state::State;
use crate::shell::value::Value;

impl Reader<'_> {
    pub(super) fn archive(&mut self, call: &Call<'_>, state: &State) -> bool {
        let parse = |with_value: &[&str]| Arguments::parse(call.arguments, with_value);
        match call.name {
            "gzip" | "gunzip" | "xz" | "unxz" | "zstd" | "bzip2" | "bunzip2" => {
                let arguments = parse(&["-S", "-T"]);
                if !arguments.has(&["-c", "--stdout", "-l", "-t", "--list", "--test"]) {
                    self.writes.not_known("the name of a packed file");
                    self.write_all(&arguments.operands, state, Extent::File);
                }
            }
            "tar" => self.tar(call, state),
            "zip" => {
                let arguments = parse(&["-x", "-i", "-n", "-b", "-t"]);
                if let Some(archive) = arguments.operands.first() {
                    self.write(&zip_name(archive), state, Extent::File);
                }
                if arguments.has(&["-m", "--move"]) {
                    self.write_all(arguments.operands.get(1..).unwrap_or_default(), state, Extent::Below);
                }
            }
            "unzip" => {
                let arguments = parse(&["-d", "-x", "-P"]);
                if !arguments.has(&["-l", "-p", "-t", "-v", "-z", "-Z"]) {
                    let members = arguments.operands.get(1..).unwrap_or_default();
                    self.unpack(members, arguments.value(&["-d"]), !arguments.has(&["-j"]), state);
                }
            }
            _ => return false,
        }
        true
    }

    fn tar(&mut self, call: &Call<'_>, state: &State) {
        let first = call.arguments.first().and_then(Value::text).unwrap_or_default();
        let mut arguments = call.arguments.to_vec();
        // `tar xzf a` is `tar -xzf a`.
        if !first.is_empty() && !first.starts_with('-') {
            arguments[0] = Value::Text(format!("-{first}"));
        }
        let renames = ["--strip-components", "--transform", "--xform", "-T", "--files-from", "--wildcards"];
        let with_value = [&["-f", "--file", "-C", "--directory", "-X", "--exclude"], &renames[..5]].concat();
        let arguments = Arguments::parse(&arguments, &with_value);
        if arguments.has(&["-t", "--list"]) {
            return;
        }
        match arguments.value(&["-f", "--file"]) {
            Some(file) if arguments.has(&["-c", "--create", "-r", "-u"]) && file.text() != Some("-") => {
                self.write(&file.clone(), state, Extent::File);
            }
            _ if arguments.has(&["-c", "--create", "-O", "--to-stdout"]) => {}
            _ => {
                let folder = arguments.value(&["-C", "--directory"]);
                self.unpack(&arguments.operands, folder, !arguments.has(&renames), state);
            }
        }
    }

    /// Members of an archive that are named are written, in the folder that is named.
    fn unpack(&mut self, members: &[Value], folder: Option<&Value>, is_plain: bool, state: &State) {
        let is_name = |value: &Value| value.text().is_some_and(|text| !text.contains(['*', '?', '[']));
        if members.is_empty() || !is_plain || !members.iter().all(is_name) {
            self.writes.not_known("what is in an archive");
            return;
        }
        let mut state = state.clone();
        if let Some(folder) = folder {
            self.change_folder(Some(folder), &mut state);
        }
        self.write_all(members, &state, Extent::Below);
    }
}

/// The file that `zip` writes: a name without a dot gets the ending `.zip`.
fn zip_name(archive: &Value) -> Value {
    match archive.text() {
        Some(text) if text.rsplit('/').next().is_some_and(|name| name.contains('.')) => archive.clone(),
        Some(text) => Value::Text(format!("{text}.zip")),
        None => Value::Unknown,
    }
}
