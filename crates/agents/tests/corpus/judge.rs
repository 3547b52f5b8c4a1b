//! strace as the judge: runs a command in a scratch repository and lists the files that it wrote.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use lockkeeper_agents::{join, lexical};
use tempfile::TempDir;

/// What a command wrote.
pub struct Written {
    /// Entries that were there before, or are there after it.
    pub kept: Vec<PathBuf>,
    /// Entries that it made and removed again.
    pub temporary: Vec<PathBuf>,
}

/// A repository with some files, a home, and nothing else.
pub struct Scratch {
    folder: TempDir,
    repository: PathBuf,
}

const FILES: [(&str, &str); 17] = [
    ("README.md", "# Title\nhello world\n"),
    ("Cargo.toml", "[package]\nname = \"x\"\nversion = \"0.1.0\"\n"),
    ("package.json", "{\"name\": \"x\", \"version\": \"1.0.0\"}\n"),
    ("config.json", "{\"port\": 3000}\n"),
    ("notes.txt", "one\ntwo\nthree\n"),
    ("list.txt", "src/a.rs\nsrc/b.rs\n"),
    ("src/main.rs", "fn main() {}\n"),
    ("src/lib.rs", "pub fn a() {}\n"),
    ("src/a.rs", "const A: u8 = 1;\n"),
    ("src/b.rs", "const B: u8 = 2;\n"),
    ("src/my file.rs", "const C: u8 = 3;\n"),
    ("docs/guide.md", "guide\n"),
    ("docs/old.md", "old\n"),
    ("build/out.txt", "out\n"),
    ("scripts/run.sh", "#!/bin/sh\necho run\n"),
    ("web/app.ts", "const a = 1\n"),
    ("fix.patch", "--- a/notes.txt\n+++ b/notes.txt\n@@ -1,3 +1,3 @@\n-one\n+uno\n two\n three\n"),
];

impl Scratch {
    /// A copy of one repository that is made once.
    pub fn new() -> Self {
        static TEMPLATE: LazyLock<Scratch> = LazyLock::new(Scratch::template);
        let scratch = Self::empty();
        copy_folder(TEMPLATE.repository(), &scratch.repository);
        scratch
    }

    fn empty() -> Self {
        let folder = tempfile::tempdir().unwrap();
        // The real name: the folder for temporary files may be a symlink.
        let root = folder.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("home/notes")).unwrap();
        Self { repository: root.join("repo"), folder }
    }

    fn template() -> Self {
        let scratch = Self::empty();
        for (name, content) in FILES {
            let path = scratch.repository.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        let set_up = "git init -q -b main && git add -A && git commit -qm first && git branch other && \
                      echo changed >> docs/old.md";
        assert!(scratch.bash(set_up).status().unwrap().success());
        scratch
    }

    pub fn repository(&self) -> &Path {
        &self.repository
    }

    pub fn home(&self) -> PathBuf {
        self.repository.with_file_name("home")
    }

    fn bash(&self, script: &str) -> Command {
        let mut command = Command::new("bash");
        command.args(["-c", script]);
        self.prepare(&mut command);
        command
    }

    /// Only the system's own programs, no terminal, no configuration of the user who runs the tests.
    fn prepare(&self, command: &mut Command) {
        command.current_dir(&self.repository).env_clear().stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.home())
            .env("LC_ALL", "C")
            .env("GIT_PAGER", "cat");
        for name in ["GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"] {
            command.env(name, "Ann");
        }
        for name in ["GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"] {
            command.env(name, "ann@example.com");
        }
    }

    /// Runs a command and lists the entries of the work tree that it wrote, made or removed.
    pub fn written_by(&self, script: &str) -> Written {
        let before = self.entries();
        let log = self.folder.path().join("strace.log");
        let mut command = Command::new("strace");
        command.args(["-f", "-y", "-qq", "-s", "4096", "-o", log.to_str().unwrap()]);
        command.args(["-e", "trace=file,process,fchmod,fchdir", "-e", "signal=none", "bash", "-c", script]);
        self.prepare(&mut command);
        command.status().expect("strace is installed: scripts/test does that");
        let after = self.entries();
        let log = fs::read(&log).unwrap();
        let written = writes_in(&String::from_utf8_lossy(&log), &self.repository);
        let ours = |path: &PathBuf| {
            path.starts_with(&self.repository) && !path.starts_with(self.repository.join(".git"))
        };
        let kept = |path: &PathBuf| before.contains(path) || after.contains(path);
        let (kept, temporary) = written.into_iter().filter(ours).partition(kept);
        Written { kept, temporary }
    }

    fn entries(&self) -> BTreeSet<PathBuf> {
        let mut found = BTreeSet::new();
        let mut folders = vec![self.repository.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let entry = entry.unwrap();
                if entry.file_type().unwrap().is_dir() {
                    folders.push(entry.path());
                }
                found.insert(entry.path());
            }
        }
        found
    }
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// One finished system call.
struct SystemCall<'a> {
    process: &'a str,
    name: &'a str,
    arguments: String,
    result: i64,
}

fn writes_in(log: &str, start: &Path) -> BTreeSet<PathBuf> {
    let calls = finished(log);
    let mut parents: HashMap<String, &str> = HashMap::new();
    for call in &calls {
        if matches!(call.name, "clone" | "clone3" | "fork" | "vfork") && call.result > 0 {
            parents.insert(call.result.to_string(), call.process);
        }
    }
    let mut folders: HashMap<&str, PathBuf> = HashMap::new();
    let mut written = BTreeSet::new();
    for call in &calls {
        let folder = folder_of(call.process, &mut folders, &parents, start);
        let texts = quoted_texts(&call.arguments);
        let path = |at: usize| {
            let (base, text) = texts.get(at)?;
            Some(lexical(&join(base.as_deref().map_or(folder.as_path(), Path::new), text)))
        };
        if call.result < 0 {
            continue;
        }
        let descriptor = || Some(PathBuf::from(call.arguments.split_once('<')?.1.split_once('>')?.0));
        match call.name {
            "chdir" => drop(folders.insert(call.process, path(0).unwrap())),
            "fchdir" => drop(folders.insert(call.process, descriptor().unwrap())),
            "fchmod" => written.extend(descriptor()),
            "open" | "openat" | "openat2" | "creat" => {
                let flags = ["O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC"];
                if call.name == "creat" || flags.iter().any(|flag| call.arguments.contains(flag)) {
                    written.extend(path(0));
                }
            }
            "rename" | "renameat" | "renameat2" => written.extend(path(0).into_iter().chain(path(1))),
            "link" | "linkat" | "symlink" | "symlinkat" => written.extend(path(1)),
            "unlink" | "unlinkat" | "rmdir" | "mknod" | "mknodat" | "truncate" | "chmod" | "fchmodat"
            | "fchmodat2" | "utimensat" | "chown" | "fchownat" | "lchown" => written.extend(path(0)),
            _ => {}
        }
    }
    written
}

/// The working folder of a process: its own, else the one that its parent has now.
fn folder_of<'a>(
    process: &'a str,
    folders: &mut HashMap<&'a str, PathBuf>,
    parents: &HashMap<String, &'a str>,
    start: &Path,
) -> PathBuf {
    if let Some(folder) = folders.get(process) {
        return folder.clone();
    }
    let folder = match parents.get(process) {
        Some(parent) => folder_of(parent, folders, parents, start),
        None => start.to_path_buf(),
    };
    folders.insert(process, folder.clone());
    folder
}

/// The calls of a log, with those joined that strace tells in two parts.
fn finished(log: &str) -> Vec<SystemCall<'_>> {
    let mut open: HashMap<&str, (&str, String)> = HashMap::new();
    let mut calls = Vec::new();
    for line in log.lines() {
        let Some((process, rest)) = line.split_once(char::is_whitespace) else { continue };
        let rest = rest.trim_start();
        let (name, text) = if let Some(resumed) = rest.strip_prefix("<... ") {
            let (_, text) = resumed.split_once(" resumed>").unwrap_or(("", resumed));
            let Some((name, begun)) = open.remove(process) else { continue };
            (name, format!("{begun}{text}"))
        } else {
            let Some((name, text)) = rest.split_once('(') else { continue };
            if let Some(begun) = text.strip_suffix(" <unfinished ...>") {
                open.insert(process, (name, begun.to_owned()));
                continue;
            }
            (name, text.to_owned())
        };
        let Some((arguments, result)) = text.rsplit_once(" = ") else { continue };
        let result = result.split([' ', '<']).next().and_then(|number| number.parse().ok()).unwrap_or(-1);
        calls.push(SystemCall { process, name, arguments: arguments.to_owned(), result });
    }
    calls
}

/// The texts in double quotes, each with the folder of the descriptor before it: `AT_FDCWD</work>, "a"`. Names in the scratch
/// repository need no escapes but quotes.
fn quoted_texts(arguments: &str) -> Vec<(Option<String>, String)> {
    let mut texts = Vec::new();
    let mut rest = arguments;
    while let Some(start) = rest.find('"') {
        let before = rest[..start].strip_suffix(">, ");
        let folder = before.and_then(|before| Some(before.rsplit_once('<')?.1.to_owned()));
        let mut text = String::new();
        let mut characters = rest[start + 1..].char_indices();
        let mut end = rest.len();
        while let Some((at, character)) = characters.next() {
            match character {
                '"' => {
                    end = start + 1 + at + 1;
                    break;
                }
                '\\' => text.extend(characters.next().map(|(_, escaped)| escaped)),
                _ => text.push(character),
            }
        }
        texts.push((folder, text));
        rest = &rest[end..];
    }
    texts
}
