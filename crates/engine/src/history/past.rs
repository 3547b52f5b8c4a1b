//! A repository's past, as far as it is learned from.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::BufRead;
use std::path::Path;

use lockkeeper_core::predict::{Change, CommitId, PathId};

use super::error::HistoryError;
use super::git::Git;
use super::log::{FORMAT, Item, Log};
use super::names::Names;

/// The most hashes of one question, which is a command line.
const TOLD_AT_ONCE: usize = 500;

/// How much of the past is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// No commit from before this, in seconds since 1970.
    pub since: Option<i64>,
    /// The most commits, from the newest on.
    pub commits: u32,
    /// The most files of a commit: one that touches more ties everything to everything.
    pub files: usize,
}

/// What the commits of a repository touched.
#[derive(Debug, Default)]
pub struct Past {
    /// The commits that touched something and not too much, newest first.
    pub changes: Vec<Change>,
    /// Commits that touched too much.
    pub left_out: usize,
    /// Whether the clone has only the newest commits.
    pub shallow: bool,
    hashes: Vec<Box<str>>,
    names: Vec<Box<[u8]>>,
    /// Whether each path is in the newest commit.
    present: Vec<bool>,
    /// How many files lie directly in each folder.
    files_in: HashMap<Box<[u8]>, usize>,
}

impl Past {
    /// How many paths it knows, under their newest names.
    pub fn path_count(&self) -> usize {
        self.names.len()
    }

    /// All paths that it knows, with their newest names.
    pub fn paths(&self) -> impl Iterator<Item = (PathId, Cow<'_, str>)> {
        (0..).map(PathId).zip(self.names.iter().map(|name| String::from_utf8_lossy(name)))
    }

    /// The newest name of a path.
    pub fn name(&self, path: PathId) -> Cow<'_, str> {
        self.names.get(path.index()).map_or(Cow::Borrowed(""), |name| String::from_utf8_lossy(name))
    }

    /// Whether a path is still there.
    pub fn exists(&self, path: PathId) -> bool {
        self.present.get(path.index()).copied().unwrap_or(false)
    }

    /// How many files lie directly in a folder now; the root is `""`.
    pub fn files_in(&self, folder: &str) -> usize {
        self.files_in.get(folder.as_bytes()).copied().unwrap_or(0)
    }

    /// The hash of a commit.
    pub fn hash(&self, commit: CommitId) -> &str {
        self.hashes.get(commit.index()).map_or("", AsRef::as_ref)
    }

    /// A number for the folder of each path.
    pub fn folders(&self) -> Vec<u32> {
        let mut numbers: HashMap<&[u8], u32> = HashMap::new();
        let mut number = |name| {
            let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
            *numbers.entry(folder(name)).or_insert(next)
        };
        self.names.iter().map(|name| number(name)).collect()
    }
}

/// Reads the past of the repository that a folder is in. One without commits has none.
pub fn read(at: &Path, limits: Limits) -> Result<Past, HistoryError> {
    let git = Git::at(at)?;
    if !git.agrees(&["rev-parse", "--quiet", "--verify", "HEAD^{commit}"])? {
        return Ok(Past::default());
    }
    let shallow =
        git.answer("say whether the clone is shallow", &["rev-parse", "--is-shallow-repository"])?;
    let mut past = Past { shallow: shallow.trim_ascii() == b"true", ..Past::default() };
    let mut names = Names::default();
    // What a partial clone lacks would come over the network, unless files are compared by their hashes alone.
    let partial = git.agrees(&["config", "--get-regexp", r"^remote\..*\.promisor$"])?;
    let (count, age) =
        (format!("--max-count={}", limits.commits), limits.since.map(|since| format!("--max-age={since}")));
    let mut args = vec!["log", "--no-merges", "--name-status", "-z", FORMAT, &count];
    args.extend(["--no-color", "--no-ext-diff", "--no-show-signature", "--no-relative", "--root"]);
    // More than so many renames in one commit are only looked for among equal files.
    args.extend([if partial { "-M100%" } else { "-M" }, "-l200"]);
    args.extend(age.as_deref());
    args.extend(["HEAD", "--"]);
    let mut stream = git.stream("read its log", &args)?;
    past.take_in(&mut stream.out, &mut names, limits.files)?;
    stream.finish()?;
    past.names = names.into_newest();
    past.look_at_the_newest(&git)?;
    Ok(past)
}

impl Past {
    fn take_in(
        &mut self,
        input: &mut impl BufRead,
        names: &mut Names,
        most_files: usize,
    ) -> Result<(), HistoryError> {
        let mut log = Log::new(input);
        let mut current: Option<Commit> = None;
        while let Some(item) = log.next()? {
            let file = match item {
                Item::Commit { hash, at } => {
                    let next = Commit { hash: hash.into(), at, paths: Vec::new(), too_many: false };
                    self.keep(current.replace(next));
                    continue;
                }
                Item::Touched(path) => names.file(path),
                Item::Renamed { from, to } => names.renamed(from, to),
            };
            if let Some(commit) = &mut current {
                commit.too_many |= commit.paths.len() >= most_files;
                if !commit.too_many {
                    commit.paths.push(file);
                }
            }
        }
        self.keep(current);
        Ok(())
    }

    fn keep(&mut self, commit: Option<Commit>) {
        match commit {
            Some(commit) if commit.too_many => self.left_out += 1,
            Some(commit) if !commit.paths.is_empty() => {
                self.changes.push(Change { at: commit.at, paths: commit.paths });
                self.hashes.push(commit.hash);
            }
            Some(_) | None => {}
        }
    }

    /// Finds out which paths are still there.
    fn look_at_the_newest(&mut self, git: &Git) -> Result<(), HistoryError> {
        let ids: HashMap<&[u8], usize> =
            self.names.iter().enumerate().map(|(id, name)| (name.as_ref(), id)).collect();
        self.present = vec![false; self.names.len()];
        let mut stream =
            git.stream("list its files", &["ls-tree", "-r", "-z", "--name-only", "--full-tree", "HEAD"])?;
        let mut path = Vec::new();
        while stream.out.read_until(0, &mut path).map_err(HistoryError::Read)? > 0 {
            path.pop();
            if let Some(id) = ids.get(path.as_slice()) {
                self.present[*id] = true;
            }
            let folder = folder(&path);
            match self.files_in.get_mut(folder) {
                Some(count) => *count += 1,
                None => drop(self.files_in.insert(folder.into(), 1)),
            }
            path.clear();
        }
        stream.finish()
    }
}

struct Commit {
    hash: Box<str>,
    at: i64,
    paths: Vec<PathId>,
    too_many: bool,
}

/// The folder of a path, without its slash.
fn folder(path: &[u8]) -> &[u8] {
    path.iter().rposition(|byte| *byte == b'/').map_or(&[], |slash| &path[..slash])
}

/// A commit as people know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// The short hash.
    pub short: String,
    /// The first line of its message; it may hold anything.
    pub subject: String,
}

/// Tells commits by their whole hashes.
pub fn tell(at: &Path, hashes: &[&str]) -> Result<HashMap<String, Told>, HistoryError> {
    let mut told = HashMap::new();
    if hashes.is_empty() {
        return Ok(told);
    }
    let git = Git::at(at)?;
    for some in hashes.chunks(TOLD_AT_ONCE) {
        let mut args = vec![
            "log",
            "--no-walk=unsorted",
            "-z",
            "--no-color",
            "--no-show-signature",
            "--format=%H%x00%h%x00%s",
        ];
        args.extend(some);
        args.push("--");
        let answer = git.answer("show commits", &args)?;
        let mut parts =
            answer.split(|byte| *byte == 0).map(|part| String::from_utf8_lossy(part).into_owned());
        while let (Some(hash), Some(short), Some(subject)) = (parts.next(), parts.next(), parts.next()) {
            told.insert(hash, Told { short, subject });
        }
    }
    Ok(told)
}
