//! Git repositories with an invented history.

use std::io::Write;
use std::process::Stdio;

use lockkeeper_testing::World;

/// What a commit does to a file.
#[derive(Clone, Copy)]
pub enum Edit<'p> {
    Write(&'p str),
    Remove(&'p str),
    Rename(&'p str, &'p str),
}

/// Commits for `git fast-import`, one for each day.
pub struct Story {
    stream: Vec<u8>,
    commits: u32,
    at: i64,
}

impl Story {
    pub fn new() -> Self {
        Self { stream: Vec::new(), commits: 0, at: 1_700_000_000 }
    }

    /// A commit that writes these files.
    pub fn commit(&mut self, subject: &str, paths: &[&str]) {
        self.edit(subject, &paths.iter().map(|path| Edit::Write(path)).collect::<Vec<_>>());
    }

    /// The same commit, several times.
    pub fn commits(&mut self, times: usize, subject: &str, paths: &[&str]) {
        (0..times).for_each(|_| self.commit(subject, paths));
    }

    pub fn edit(&mut self, subject: &str, edits: &[Edit<'_>]) {
        let raw: Vec<(u8, Vec<u8>, Vec<u8>)> = edits
            .iter()
            .map(|edit| match edit {
                Edit::Write(path) => (b'M', path.as_bytes().to_vec(), Vec::new()),
                Edit::Remove(path) => (b'D', path.as_bytes().to_vec(), Vec::new()),
                Edit::Rename(from, to) => (b'R', from.as_bytes().to_vec(), to.as_bytes().to_vec()),
            })
            .collect();
        self.raw(subject.as_bytes(), &raw);
    }

    /// A commit of any bytes.
    pub fn raw(&mut self, subject: &[u8], edits: &[(u8, Vec<u8>, Vec<u8>)]) {
        self.commits += 1;
        self.at += 86_400;
        let head =
            format!("commit refs/heads/main\ncommitter t <t@t> {} +0000\ndata {}\n", self.at, subject.len());
        self.stream.extend([head.as_bytes(), subject, b"\n"].concat());
        for (kind, path, other) in edits {
            let (path, other) = (quoted(path), quoted(other));
            match kind {
                b'R' => self.stream.extend(format!("R {path} {other}\n").bytes()),
                b'D' => self.stream.extend(format!("D {path}\n").bytes()),
                _ => {
                    // Most of a file stays as it is, so that a rename is seen as one.
                    let content = format!("{}{}\n", format!("{path}\n").repeat(9), self.commits);
                    let size = content.len();
                    self.stream.extend(format!("M 100644 inline {path}\ndata {size}\n{content}\n").bytes());
                }
            }
        }
    }

    /// Makes the folder a repository with these commits; files are not checked out.
    pub fn told_in(self, world: &World) {
        world.git_run(&["init", "-q", "-b", "main"]);
        let mut import = world.command("git");
        let mut import = import.args(["fast-import", "--quiet"]).stdin(Stdio::piped()).spawn().unwrap();
        import.stdin.take().unwrap().write_all(&self.stream).unwrap();
        assert!(import.wait().unwrap().success());
    }
}

/// A path as fast-import reads any bytes.
fn quoted(path: &[u8]) -> String {
    let escaped: String = path
        .iter()
        .map(|byte| match byte {
            b'"' | b'\\' => format!("\\{}", char::from(*byte)),
            b' '..=b'~' => char::from(*byte).to_string(),
            _ => format!("\\{byte:03o}"),
        })
        .collect();
    format!("\"{escaped}\"")
}
