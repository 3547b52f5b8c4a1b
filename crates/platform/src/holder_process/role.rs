//! Roles of ancestors: which programs end together with the command that they run, and which outlive it.

const SHELLS: [&str; 12] =
    ["sh", "ash", "bash", "busybox", "dash", "fish", "ksh", "mksh", "oksh", "rbash", "yash", "zsh"];
/// Programs that run one command, or several one after the other, and end with it. A program that is not in the list counts as
/// one that outlives the command.
const WRAPPERS: [&str; 40] = [
    "bwrap",
    "caffeinate",
    "chroot",
    "chrt",
    "doas",
    "env",
    "fakeroot",
    "faketime",
    "find",
    "firejail",
    "flock",
    "ionice",
    "ltrace",
    "nice",
    "nohup",
    "nsenter",
    "numactl",
    "parallel",
    "perf",
    "pkexec",
    "prlimit",
    "rlwrap",
    "runuser",
    "script",
    "setarch",
    "setpriv",
    "setsid",
    "stdbuf",
    "strace",
    "su",
    "sudo",
    "systemd-inhibit",
    "taskset",
    "time",
    "timeout",
    "unbuffer",
    "unshare",
    "valgrind",
    "xargs",
    "xvfb-run",
];
/// Programs that read until the end of their input. They start no commands: if one of them is the parent of a command, it was a
/// shell when the command was started, as in `cat < <(command)`.
const FILTERS: [&str; 12] =
    ["awk", "cat", "cut", "grep", "head", "jq", "sed", "sort", "tail", "tee", "tr", "wc"];
/// Init processes never end. When the search reaches one, the command has no holder process.
const INITS: [&str; 10] = [
    "catatonit",
    "docker-init",
    "dumb-init",
    "init",
    "launchd",
    "runit",
    "s6-svscan",
    "systemd",
    "tini",
    "tini-static",
];

/// What an ancestor is to the command, judged by its command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// It ends together with the command that it runs.
    PassesThrough,
    /// It never ends.
    Init,
    /// It outlives the command.
    Lasts,
}

/// Judges an ancestor by its command line.
pub(super) fn role(arguments: &[String]) -> Role {
    let (name, words) = program_and_options(arguments);
    let runs_one_command = SHELLS.contains(&name) && has_command_option(words);
    if runs_one_command || WRAPPERS.contains(&name) || FILTERS.contains(&name) {
        Role::PassesThrough
    } else if INITS.contains(&name) {
        Role::Init
    } else {
        Role::Lasts
    }
}

/// Whether this is the command line of a shell.
pub(super) fn is_shell(arguments: &[String]) -> bool {
    SHELLS.contains(&program_and_options(arguments).0)
}

/// Splits a command line into the name of the program, without its folder, and the words after it.
fn program_and_options(arguments: &[String]) -> (&str, impl Iterator<Item = &str>) {
    let mut words = arguments.iter().map(String::as_str);
    // A login shell calls itself `-bash`.
    let path = words.next().unwrap_or_default().trim_start_matches('-');
    let mut name = path.rsplit('/').next().unwrap_or_default();
    if name == "busybox" {
        name = words.next().unwrap_or_default();
    }
    (name, words)
}

/// Says whether the options of a shell, up to its script, contain `-c`: `-c`, `-lc`, `-e -o pipefail -c`.
fn has_command_option<'a>(mut words: impl Iterator<Item = &'a str>) -> bool {
    while let Some(word) = words.next() {
        match word {
            "--" | "-" => return false,
            "--command" => return true,
            "--rcfile" | "--init-file" | "--init-command" => drop(words.next()),
            _ if word.starts_with("--command=") => return true,
            _ if word.starts_with("--") => {}
            _ if word.starts_with('-') && word.contains('c') => return true,
            _ if word.starts_with(['-', '+']) && word.ends_with(['o', 'O']) => drop(words.next()),
            _ if word.starts_with(['-', '+']) => {}
            _ => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role_of(line: &str) -> Role {
        role(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn shells_and_wrappers_that_run_one_command_are_skipped() {
        let lines = [
            "sh -c x",
            "/bin/bash -lc x",
            "bash -e -o pipefail -c x",
            "bash --norc --noprofile -ec x",
            "bash --rcfile /c -c x",
            "-zsh -c x",
            "busybox sh -c x",
            "fish --command=x",
            "dash -ec x",
            "timeout 5 x",
            "/usr/bin/sudo -E x",
            "xargs -n1 x",
            "env -S x",
            "flock /tmp/x x",
            "find . -exec x ;",
            "script -qc x /dev/null",
            "setpriv --reuid 1 x",
            "/usr/bin/cat",
            "head -n 1",
        ];
        for line in lines {
            assert_eq!(role_of(line), Role::PassesThrough, "{line}");
        }
    }

    #[test]
    fn interactive_shells_scripts_and_programs_are_chosen() {
        let lines = [
            "bash",
            "-bash",
            "bash -i",
            "bash --rcfile /tmp/c",
            "sh deploy.sh -c",
            "bash -e deploy.sh -c x",
            "sh -o errexit build.sh",
            "zsh -l",
            "node /usr/bin/agent -c",
            "python3 -c x",
            "sh -- -c",
            "busybox httpd -c x",
        ];
        for line in lines {
            assert_eq!(role_of(line), Role::Lasts, "{line}");
        }
        assert_eq!(role(&[]), Role::Lasts);
        assert_eq!(role_of("/usr/lib/systemd/systemd --user"), Role::Init);
    }
}
