//! The pattern engine against git itself, by way of `:(glob)` pathspecs; needs `git`.
#![expect(clippy::disallowed_methods, reason = "core starts no process, this test asks git")]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use lockkeeper_core::pattern::Pattern;

/// The names of files. Only the first ten are folders too: if there is a folder named `a*`, git takes the
/// pathspec `a*` for its name.
const NAMES: &[&str] =
    &["a", "b", "ab", "ba", "aab", ".a", "a.b", "..a", "a-b", "A", "]", "[a]", "1", "a*", "x y"];

/// Wildcards in git's dialect: no braces, and no backslash alone, which makes git match a folder's name only.
/// Nor `a**/b`: a pathspec's literal start is compared apart, so git then takes those stars for a whole
/// component; its wildmatch does not (`tests/data/match.tsv`).
const PATTERNS: &[&str] = &[
    "a",
    "a/b",
    "ab",
    "*",
    "**",
    "?",
    "??",
    "a*",
    "*a",
    "*a*",
    "a*b",
    "a**b",
    "**a",
    "***",
    "*.b",
    ".*",
    "..*",
    "?a",
    "*/*",
    "a/*",
    "a/**",
    "*/a",
    "**/a",
    "**/a/**",
    "a/**/b",
    "a/**/**/b",
    "**/**",
    "**/*",
    "**/*.b",
    "*/**",
    "*/**/a",
    "**/a*",
    "**a/b",
    "a/**b",
    "**/*/**",
    "*/*/*",
    "a/*/b",
    "a/?/*",
    "[ab]",
    "[!a]",
    "[^a]*",
    "[a-b]*",
    "[]]",
    "[]a]*",
    "[!]]*",
    "[a-]*",
    "*[*]",
    "\\[a\\]*",
    "*\\*",
    "a\\*?",
    "?\\**",
    "[[:alpha:]]",
    "[[:lower:]]*",
    "[[:upper:]]",
    "[[:digit:]]",
    "[[:punct:]]*",
    "[![:alnum:]]*",
    "*[[:space:]]*",
    "[\\]]",
    "[\\[]*",
    "**/[ab]/**",
    "[ab]/[!b]",
    "a[/]*",
    "a[!b]b",
    "./a/*",
    "a//b",
    "*/./a",
];

fn git(folder: &Path, index: &str) -> Command {
    let mut command = Command::new("git");
    command
        .current_dir(folder)
        .env("GIT_INDEX_FILE", folder.join(index))
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env_remove("GIT_DIR")
        .env_remove("GIT_WORK_TREE");
    command
}

/// A repository without files, whose indexes hold paths of one depth each: no path is both a file and a
/// folder in one index.
struct Repository {
    folder: PathBuf,
}

impl Repository {
    fn new() -> Self {
        let folder =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("overlap_git-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the target folder can be written");
        let made = git(&folder, "none").args(["init", "--quiet"]).status().expect("git is needed");
        assert!(made.success(), "git init failed");
        Self { folder }
    }

    fn fill(&self, index: &str, paths: &[String]) {
        let empty_file = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391";
        let lines: String = paths.iter().map(|path| format!("100644 {empty_file} 0\t{path}\n")).collect();
        let mut child = git(&self.folder, index)
            .args(["update-index", "--index-info"])
            .stdin(Stdio::piped())
            .spawn()
            .expect("git is needed");
        child
            .stdin
            .take()
            .expect("the input is a pipe")
            .write_all(lines.as_bytes())
            .expect("git reads its input");
        assert!(child.wait().expect("git ends").success(), "git update-index failed");
    }

    fn list(&self, index: &str, pattern: &str) -> Vec<String> {
        let output = git(&self.folder, index)
            .args(["ls-files", "-z", "--", &format!(":(glob){pattern}")])
            .output()
            .expect("git is needed");
        assert!(output.status.success(), "{pattern}: {}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).expect("the paths are UTF-8");
        text.split_terminator('\0').map(str::to_owned).collect()
    }
}

impl Drop for Repository {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.folder));
    }
}

/// Requirement 206.
#[test]
fn git_matches_the_same_paths() {
    let repository = Repository::new();
    let below = |paths: &[String], names: &[&str]| -> Vec<String> {
        paths.iter().flat_map(|path| names.iter().map(move |name| format!("{path}/{name}"))).collect()
    };
    let one: Vec<String> = NAMES.iter().map(|name| (*name).to_owned()).collect();
    let two = below(&one[..10], NAMES);
    let three = below(&below(&one[..10], &NAMES[..10]), &NAMES[..6]);
    for (index, mut paths) in [("one", one), ("two", two), ("three", three)] {
        paths.sort();
        repository.fill(index, &paths);
        for text in PATTERNS {
            // A pattern that we refuse matches nothing in git.
            let matched: Vec<String> = match Pattern::parse(text) {
                Ok(pattern) => paths.iter().filter(|path| pattern.matches(path)).cloned().collect(),
                Err(_) => Vec::new(),
            };
            assert_eq!(matched, repository.list(index, text), "{text} over the paths of index {index}");
        }
    }
}
