//! Programs that only read, whatever their arguments are; and some that do with most arguments.

use crate::shell::value::Value;

/// These write to standard output at most. Sorted.
const READING: [&str; 156] = [
    ":",
    "[",
    "ack",
    "ag",
    "alias",
    "arch",
    "b2sum",
    "base32",
    "base64",
    "basename",
    "bat",
    "bg",
    "bind",
    "break",
    "cat",
    "cksum",
    "cmp",
    "column",
    "comm",
    "compgen",
    "complete",
    "continue",
    "cut",
    "date",
    "df",
    "diff",
    "dig",
    "dirname",
    "dirs",
    "disown",
    "du",
    "echo",
    "egrep",
    "enable",
    "exa",
    "exit",
    "expand",
    "expr",
    "eza",
    "false",
    "fc",
    "fg",
    "fgrep",
    "file",
    "fmt",
    "fold",
    "free",
    "getconf",
    "getent",
    "grep",
    "groups",
    "hash",
    "head",
    "help",
    "hexdump",
    "history",
    "host",
    "hostname",
    "id",
    "ifconfig",
    "info",
    "jobs",
    "join",
    "jq",
    "kill",
    "killall",
    "last",
    "ldd",
    "locale",
    "locate",
    "logname",
    "logout",
    "ls",
    "lsattr",
    "lsblk",
    "lscpu",
    "lsof",
    "man",
    "md5sum",
    "more",
    "netstat",
    "nl",
    "nm",
    "nproc",
    "nslookup",
    "numfmt",
    "objdump",
    "od",
    "paste",
    "pathchk",
    "pgrep",
    "pidof",
    "ping",
    "pkill",
    "pr",
    "printenv",
    "printf",
    "ps",
    "pstree",
    "ptx",
    "pwd",
    "readelf",
    "readlink",
    "realpath",
    "return",
    "rev",
    "rg",
    "seq",
    "set",
    "sha1sum",
    "sha224sum",
    "sha256sum",
    "sha384sum",
    "sha512sum",
    "shellcheck",
    "shopt",
    "size",
    "sleep",
    "ss",
    "stat",
    "strings",
    "stty",
    "sum",
    "suspend",
    "tac",
    "tail",
    "test",
    "times",
    "tokei",
    "top",
    "tput",
    "tr",
    "true",
    "tsort",
    "tty",
    "type",
    "ugrep",
    "ulimit",
    "umask",
    "unalias",
    "uname",
    "unexpand",
    "uptime",
    "users",
    "vmstat",
    "wait",
    "wc",
    "whatis",
    "whereis",
    "which",
    "who",
    "whoami",
    "yes",
    "zcat",
    "zgrep",
    "zless",
];

/// Whether a call writes no file.
pub(super) fn only_reads(name: &str, arguments: &[Value]) -> bool {
    READING.binary_search(&name).is_ok() || reads_with(name, arguments)
}

/// Programs that write with some arguments only.
fn reads_with(name: &str, arguments: &[Value]) -> bool {
    let texts: Option<Vec<&str>> = arguments.iter().map(Value::text).collect();
    let first = arguments.first().and_then(Value::text);
    match name {
        // Dumps; with a second name, or backwards, it writes a file.
        "xxd" => texts.is_some_and(|texts| {
            !texts.contains(&"-r") && texts.iter().filter(|text| !text.starts_with('-')).count() <= 1
        }),
        // Makes a file of a new name: elsewhere, unless a place is given.
        "mktemp" => texts.is_some_and(|texts| texts.iter().all(|text| matches!(*text, "-d" | "-t" | "-q"))),
        "iconv" | "tree" | "less" | "cloc" => texts.is_some_and(|texts| {
            let output = ["-o", "-O", "--out", "--report-file", "--LOG-FILE", "--log-file"];
            !texts.iter().any(|text| output.iter().any(|option| text.starts_with(option)))
        }),
        "fd" | "fdfind" => texts.is_some_and(|texts| {
            !texts.iter().any(|t| matches!(*t, "-x" | "-X" | "--exec" | "--exec-batch"))
        }),
        "gh" => matches!(first, Some("auth" | "browse" | "search" | "status")),
        "cargo" => matches!(first, Some("metadata" | "tree" | "search" | "locate-project" | "pkgid")),
        "npm" => matches!(first, Some("ls" | "list" | "view" | "outdated" | "explain")),
        "pip" | "pip3" => matches!(first, Some("list" | "show" | "freeze" | "check")),
        "go" => matches!(first, Some("version" | "env" | "list" | "doc" | "vet")),
        "docker" => matches!(first, Some("ps" | "images" | "logs" | "inspect" | "version" | "info")),
        "node" | "python" | "python3" | "rustc" | "java" | "ruby" => {
            matches!(texts.as_deref(), Some(["-V" | "-v"]))
        }
        "lockkeeper" => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted() {
        assert!(READING.is_sorted());
    }
}
