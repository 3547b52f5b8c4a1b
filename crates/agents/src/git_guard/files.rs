//! Hook files of git: one line in front of what a hook does.
//!
//! A hook that is a shell script gets the line behind its first line, so that it runs under its own name as before. Any other hook is renamed to
//! `EVENT.before-lockkeeper`, and a script takes its place that runs the line and then that hook.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::GuardError;
use crate::git_hook::GitEvent;
use crate::setup::SHARED_PROGRAM;

/// How the line ends, so that it is found again.
const MARK: &str = " # lockkeeper git guard";
/// How the call of a program begins that is looked for in the search path.
const SHARED_START: &str = "! command -v ";
/// The second line of a hook that was not there before.
const OWN: &str = "# Written by lockkeeper. `lockkeeper init --remove` takes it away.\n";
/// Interpreters that understand the line.
const SHELLS: [&str; 6] = ["sh", "bash", "dash", "ash", "ksh", "zsh"];
/// The largest hook that is read, in bytes.
const MAX_BYTES: u64 = 1024 * 1024;

/// The command for the settings of git, which appends the arguments.
pub(super) fn command(program: &str, event: GitEvent) -> String {
    format!("guard() {{ {}; }}; guard", call(program, event))
}

/// The line in a hook. It leaves standard input to the hook.
fn script_line(program: &str, event: GitEvent) -> String {
    format!("{} </dev/null || exit 1{MARK}\n", call(program, event))
}

/// The line for hooks that everybody has, also those without this program. `EVENT` stands for the name of the hook.
pub(super) fn shared_line() -> String {
    let program = SHARED_PROGRAM;
    format!(
        "{{ {SHARED_START}{program} >/dev/null 2>&1 || {program} git-hook EVENT \"$@\" || [ $? -ne 1 ]; }} </dev/null || exit 1{MARK}"
    )
}

/// Fails only if the program exits with 1. So a program that was removed, is too old or crashes stops nobody.
fn call(program: &str, event: GitEvent) -> String {
    let program = format!("'{}'", program.replace('\'', r"'\''"));
    format!("{{ [ ! -x {program} ] || {program} git-hook {} \"$@\" || [ $? -ne 1 ]; }}", event.name())
}

/// The program that a line or a command calls.
pub(super) fn program(line: &str, event: GitEvent) -> Option<String> {
    let (_, rest) = line.split_once("[ ! -x '").or_else(|| line.split_once(SHARED_START))?;
    let (program, call) = rest.split_once("' ] || ").or_else(|| rest.split_once(" >/dev/null 2>&1 || "))?;
    call.contains(&format!("git-hook {} ", event.name())).then(|| program.replace(r"'\''", "'"))
}

/// Our line in the hook of an event.
pub(super) fn line(folder: &Path, event: GitEvent) -> Option<String> {
    let text = read(&folder.join(event.name())).ok()??;
    text.lines().find(|line| line.ends_with(MARK)).map(str::to_owned)
}

/// Puts the line into all hooks.
pub(super) fn install(folder: &Path, program: &str) -> Result<(), GuardError> {
    fs::create_dir_all(folder).map_err(|source| GuardError::File { path: folder.to_owned(), source })?;
    for event in GitEvent::ALL {
        let path = folder.join(event.name());
        let line = script_line(program, event);
        install_one(&path, &line, event).map_err(|source| GuardError::File { path, source })?;
    }
    Ok(())
}

fn install_one(path: &Path, line: &str, event: GitEvent) -> io::Result<()> {
    let former = former(path);
    match read(path)? {
        Some(text) if text.lines().any(|line| line.ends_with(MARK)) => {
            let renewed: String = text
                .split_inclusive('\n')
                .map(|old| if old.trim_end().ends_with(MARK) { line } else { old })
                .collect();
            if renewed == text { Ok(()) } else { write(path, &renewed, mode(path)?) }
        }
        Some(text) if is_shell_script(&text) && is_plain(path) => {
            let (first, rest) = text.split_once('\n').unwrap_or((&text, ""));
            write(path, &format!("{first}\n{line}{rest}"), mode(path)?)
        }
        found => {
            let exists = found.is_some() || path.symlink_metadata().is_ok();
            if exists {
                fs::rename(path, &former)?;
            }
            let next = format!("next=\"$(dirname \"$0\")/{}.before-lockkeeper\"\n", event.name());
            let text = format!("#!/bin/sh\n{OWN}{line}{next}[ ! -x \"$next\" ] || exec \"$next\" \"$@\"\n");
            write(path, &text, 0o755)
        }
    }
}

/// Takes the line out of all hooks.
pub(super) fn remove(folder: &Path) -> Result<(), GuardError> {
    for event in GitEvent::ALL {
        let path = folder.join(event.name());
        remove_one(&path).map_err(|source| GuardError::File { path, source })?;
    }
    Ok(())
}

fn remove_one(path: &Path) -> io::Result<()> {
    let Some(text) = read(path)?.filter(|text| text.lines().any(|line| line.ends_with(MARK))) else {
        return Ok(());
    };
    if text.contains(OWN) {
        let former = former(path);
        return if former.symlink_metadata().is_ok() {
            fs::rename(former, path)
        } else {
            fs::remove_file(path)
        };
    }
    let rest: String = text.split_inclusive('\n').filter(|line| !line.trim_end().ends_with(MARK)).collect();
    write(path, &rest, mode(path)?)
}

/// The text of a hook. None if it is missing or no text: a binary is never edited.
fn read(path: &Path) -> io::Result<Option<String>> {
    match fs::metadata(path) {
        Ok(meta) if meta.is_file() && meta.len() <= MAX_BYTES => Ok(String::from_utf8(fs::read(path)?).ok()),
        Ok(_) => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// A new file takes the place of the old one: a hook that runs now is read to its end.
fn write(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let new = path.with_extension("lockkeeper-new");
    fs::write(&new, text)?;
    fs::set_permissions(&new, fs::Permissions::from_mode(mode))?;
    fs::rename(&new, path)
}

fn mode(path: &Path) -> io::Result<u32> {
    Ok(fs::metadata(path)?.permissions().mode() & 0o7777)
}

/// Not a symlink: that may lead to a tracked file. Executable: git ignores others, and the line would switch the hook on.
fn is_plain(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// Whether the first line, which ends, names a shell: `#!/bin/sh -e`, `#!/usr/bin/env bash`.
fn is_shell_script(text: &str) -> bool {
    let first = text.split_once('\n').and_then(|(first, _)| first.strip_prefix("#!"));
    let Some(words) = first.map(|first| first.split_whitespace().collect::<Vec<_>>()) else { return false };
    let base = |word: &str| word.rsplit('/').next().unwrap_or_default().to_owned();
    let program = match words.as_slice() {
        [env, program, ..] if base(env) == "env" => base(program),
        [program, ..] => base(program),
        [] => return false,
    };
    SHELLS.contains(&program.as_str())
}

fn former(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".before-lockkeeper");
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_name_the_program_that_they_call() {
        for path in ["/usr/bin/lockkeeper", "/a b/it's/lockkeeper"] {
            let event = GitEvent::PostMerge;
            assert_eq!(program(&command(path, event), event).as_deref(), Some(path));
            assert_eq!(program(&script_line(path, event), event).as_deref(), Some(path));
        }
        let shared = shared_line().replace("EVENT", "pre-commit");
        assert_eq!(program(&shared, GitEvent::PreCommit).as_deref(), Some("lockkeeper"));
        assert_eq!(program(&shared, GitEvent::PostMerge), None);
        assert_eq!(program("echo git-hook pre-commit", GitEvent::PreCommit), None);
    }

    #[test]
    fn shell_scripts_are_known_by_their_first_line() {
        for yes in ["#!/bin/sh\n", "#! /bin/bash -e\nx", "#!/usr/bin/env sh\nx"] {
            assert!(is_shell_script(yes), "{yes}");
        }
        for no in ["", "#!/bin/sh", "#!/usr/bin/env python3\n", "echo\n", "#!\n"] {
            assert!(!is_shell_script(no), "{no}");
        }
    }
}
