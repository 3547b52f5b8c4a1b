//! Formatters and fixers: which of them write, and which paths.

use super::Call;
use crate::shell::arguments::Arguments;
use crate::shell::reader::{Extent, Reader};
use crate::shell::state::State;
use crate::shell::value::Value;
use crate::writes::Formats;

/// What makes a formatter write.
enum Trigger {
    /// It writes unless one of these is given.
    Unless(&'static [&'static str]),
    /// It writes only if one of these is given.
    If(&'static [&'static str]),
}

struct Formatter {
    name: &'static str,
    /// The sub-command, for programs that do more.
    command: Option<&'static str>,
    writes: Trigger,
    with_value: &'static [&'static str],
}

const fn formatter(
    name: &'static str,
    command: Option<&'static str>,
    writes: Trigger,
    with_value: &'static [&'static str],
) -> Formatter {
    Formatter { name, command, writes, with_value }
}

const CHECKS: &[&str] = &["--check", "--diff"];

/// The formatters that are known.
const FORMATTERS: [Formatter; 26] = [
    formatter("cargo", Some("fmt"), Trigger::Unless(&["--check"]), &["-p", "--package", "--manifest-path"]),
    formatter("cargo", Some("fix"), Trigger::Unless(&[]), &["-p", "--package", "--manifest-path"]),
    formatter("cargo", Some("clippy"), Trigger::If(&["--fix"]), &["-p", "--package", "--manifest-path"]),
    formatter("rustfmt", None, Trigger::Unless(&["--check", "--emit"]), &["--edition", "--config", "--emit"]),
    formatter("prettier", None, Trigger::If(&["--write", "-w"]), &["--config", "--parser", "--ignore-path"]),
    formatter("eslint", None, Trigger::If(&["--fix"]), &["--config", "-c", "--ext", "--format", "-f"]),
    formatter("stylelint", None, Trigger::If(&["--fix"]), &["--config"]),
    formatter("biome", Some("format"), Trigger::If(&["--write", "--fix"]), &["--config-path"]),
    formatter("biome", Some("check"), Trigger::If(&["--write", "--fix", "--apply"]), &["--config-path"]),
    formatter("biome", Some("lint"), Trigger::If(&["--write", "--fix", "--apply"]), &["--config-path"]),
    formatter("gofmt", None, Trigger::If(&["-w"]), &["-r", "-cpuprofile"]),
    formatter("goimports", None, Trigger::If(&["-w"]), &["-local"]),
    formatter("gofumpt", None, Trigger::If(&["-w"]), &[]),
    formatter("go", Some("fmt"), Trigger::Unless(&["-n"]), &[]),
    formatter("ruff", Some("format"), Trigger::Unless(CHECKS), &["--config", "--line-length"]),
    formatter(
        "ruff",
        Some("check"),
        Trigger::If(&["--fix", "--fix-only"]),
        &["--select", "--ignore", "--config"],
    ),
    formatter("black", None, Trigger::Unless(CHECKS), &["-l", "--line-length", "-t", "--config"]),
    formatter(
        "isort",
        None,
        Trigger::Unless(&["--check", "--check-only", "-c", "--diff"]),
        &["--profile", "-l"],
    ),
    formatter("autopep8", None, Trigger::If(&["--in-place", "-i"]), &["--max-line-length"]),
    formatter("clang-format", None, Trigger::If(&["-i"]), &["--style", "-style"]),
    formatter("shfmt", None, Trigger::If(&["-w"]), &["-i", "-ln"]),
    formatter("rubocop", None, Trigger::If(&["-a", "-A", "--autocorrect", "--autocorrect-all"]), &["--only"]),
    formatter("terraform", Some("fmt"), Trigger::Unless(&["-check"]), &[]),
    formatter("zig", Some("fmt"), Trigger::Unless(&["--check"]), &[]),
    formatter("dart", Some("format"), Trigger::Unless(&["--output"]), &[]),
    formatter("mix", Some("format"), Trigger::Unless(&["--check-formatted"]), &[]),
];

/// The endings of the files that a formatter finds by itself. Empty: files of many kinds.
fn endings(name: &str) -> &'static [&'static str] {
    match name {
        "cargo" | "rustfmt" => &["rs"],
        "gofmt" | "goimports" | "gofumpt" | "go" => &["go"],
        "ruff" | "black" | "isort" | "autopep8" => &["py", "pyi", "ipynb"],
        "rubocop" => &["rb", "rake"],
        "terraform" => &["tf", "tfvars"],
        "zig" => &["zig", "zon"],
        "dart" => &["dart"],
        "mix" => &["ex", "exs", "heex"],
        _ => &[],
    }
}

impl Reader<'_> {
    pub(super) fn formatter(&mut self, call: &Call<'_>, state: &State) -> bool {
        let first = call.arguments.first().and_then(Value::text);
        let fits =
            |known: &&Formatter| known.name == call.name && known.command.is_none_or(|c| first == Some(c));
        let Some(known) = FORMATTERS.iter().find(fits) else { return false };
        let rest = &call.arguments[usize::from(known.command.is_some())..];
        let arguments = Arguments::parse(rest, known.with_value);
        let given = |options: &[&str]| {
            arguments.has(options)
                || rest.iter().any(|argument| argument.text().is_some_and(|t| options.contains(&t)))
        };
        let writes = match &known.writes {
            Trigger::Unless(options) => !given(options),
            Trigger::If(options) => given(options),
        };
        if !writes {
            // Linters of cargo compile, and compiling runs build scripts.
            return known.name != "cargo" || known.command == Some("fmt");
        }
        // What follows `--` of cargo goes to another program.
        let paths =
            arguments.before_dashes.filter(|_| known.name == "cargo").unwrap_or(arguments.operands.len());
        let paths = &arguments.operands[..paths];
        let whole = |path: &Value| matches!(path.text(), Some("." | "./" | "./..."));
        if paths.is_empty() || paths.iter().any(whole) {
            match &state.cwd {
                Some(cwd) => {
                    let formats = Formats { folder: cwd.clone(), endings: endings(known.name) };
                    if !self.writes.formats.contains(&formats) {
                        self.writes.formats.push(formats);
                    }
                }
                None => self.writes.not_known("a formatter in a folder that is not known before"),
            }
            return true;
        }
        for path in paths {
            match path.text() {
                // Formatters expand wildcards that the shell has left alone.
                Some(text) if text.starts_with('!') => {}
                Some(text) if text.contains(['*', '?', '[', '{']) => {
                    self.write(&Value::Pattern(text.to_owned()), state, Extent::File);
                }
                _ => self.write(path, state, Extent::Below),
            }
        }
        true
    }
}
