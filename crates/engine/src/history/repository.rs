//! History of a repository: the commits that predictions learn from, and their paths.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::BufRead;
use std::path::Path;

use lockkeeper_core::predict::{Change, CommitId, PathId};

use super::error::HistoryError;
use super::git::Git;
use super::log::{FORMAT, Item, Log};
use super::names::Names;

/// The most hashes in one command line.
const HASHES_AT_ONCE: usize = 500;

/// How much of the history is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Leaves out commits before this time, in seconds since 1970.
    pub since: Option<i64>,
    /// The most commits, the newest first.
    pub commits: u32,
    /// Leaves out commits that touch more files: they would connect all files with each other.
    pub files: usize,
}

/// The commits of a repository, and the paths that they touched.
#[derive(Debug, Default)]
pub struct RepositoryHistory {
    /// The commits, newest first. Without those that touched nothing or too many files.
    pub changes: Vec<Change>,
    /// The number of commits that touched too many files.
    pub left_out: usize,
    /// Whether the clone has only the newest commits.
    pub shallow: bool,
    hashes: Vec<Box<str>>,
    names: Vec<Box<[u8]>>,
    /// Whether each path exists in the newest commit.
    present: Vec<bool>,
    /// The number of files directly in each folder.
    files_in: HashMap<Box<[u8]>, usize>,
}

impl RepositoryHistory {
    /// The number of paths. A renamed file is one path.
    pub fn path_count(&self) -> usize {
        self.names.len()
    }

    /// All paths, with their newest names.
    pub fn paths(&self) -> impl Iterator<Item = (PathId, Cow<'_, str>)> {
        (0..).map(PathId).zip(self.names.iter().map(|name| String::from_utf8_lossy(name)))
    }

    /// The newest name of a path.
    pub fn name(&self, path: PathId) -> Cow<'_, str> {
        self.names.get(path.index()).map_or(Cow::Borrowed(""), |name| String::from_utf8_lossy(name))
    }

    /// Whether a path exists in the newest commit.
    pub fn exists(&self, path: PathId) -> bool {
        self.present.get(path.index()).copied().unwrap_or(false)
    }

    /// The number of files directly in a folder now. The root is `""`.
    pub fn files_in(&self, folder: &str) -> usize {
        self.files_in.get(folder.as_bytes()).copied().unwrap_or(0)
    }

    /// The hash of a commit.
    pub fn hash(&self, commit: CommitId) -> &str {
        self.hashes.get(commit.index()).map_or("", AsRef::as_ref)
    }

    /// The folder of each path, as a number.
    pub fn folders(&self) -> Vec<u32> {
        let mut numbers: HashMap<&[u8], u32> = HashMap::new();
        let mut number = |name| {
            let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
            *numbers.entry(folder(name)).or_insert(next)
        };
        self.names.iter().map(|name| number(name)).collect()
    }
}

/// Reads the history of the repository that contains the folder `at`. It is empty without commits.
pub fn read(at: &Path, limits: Limits) -> Result<RepositoryHistory, HistoryError> {
    let git = Git::at(at)?;
    if !git.succeeds(&["rev-parse", "--quiet", "--verify", "HEAD^{commit}"])? {
        return Ok(RepositoryHistory::default());
    }
    let shallow =
        git.stdout_of("say whether the clone is shallow", &["rev-parse", "--is-shallow-repository"])?;
    let mut history =
        RepositoryHistory { shallow: shallow.trim_ascii() == b"true", ..RepositoryHistory::default() };
    let mut names = Names::default();
    // In a partial clone git would fetch file contents over the network, unless it compares files only by hash.
    let partial = git.succeeds(&["config", "--get-regexp", r"^remote\..*\.promisor$"])?;
    let (count, age) =
        (format!("--max-count={}", limits.commits), limits.since.map(|since| format!("--max-age={since}")));
    let mut args = vec!["log", "--no-merges", "--name-status", "-z", FORMAT, &count];
    args.extend(["--no-color", "--no-ext-diff", "--no-show-signature", "--no-relative", "--root"]);
    // In a commit with more than 200 new files, git finds only renames without changes.
    args.extend([if partial { "-M100%" } else { "-M" }, "-l200"]);
    args.extend(age.as_deref());
    args.extend(["HEAD", "--"]);
    let mut stream = git.stream("read its log", &args)?;
    history.read_log(&mut stream.out, &mut names, limits.files)?;
    stream.finish()?;
    history.names = names.into_newest();
    history.read_newest_tree(&git)?;
    Ok(history)
}

impl RepositoryHistory {
    fn read_log(
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
                    self.add(current.replace(next));
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
        self.add(current);
        Ok(())
    }

    fn add(&mut self, commit: Option<Commit>) {
        match commit {
            Some(commit) if commit.too_many => self.left_out += 1,
            Some(commit) if !commit.paths.is_empty() => {
                self.changes.push(Change { at: commit.at, paths: commit.paths });
                self.hashes.push(commit.hash);
            }
            Some(_) | None => {}
        }
    }

    /// Reads which paths exist in the newest commit.
    fn read_newest_tree(&mut self, git: &Git) -> Result<(), HistoryError> {
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

/// Short hash and subject of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitSummary {
    /// The short hash.
    pub short: String,
    /// The first line of its message. It may have any characters.
    pub subject: String,
}

/// The summaries of commits, by their full hashes.
pub fn summaries(at: &Path, hashes: &[&str]) -> Result<HashMap<String, CommitSummary>, HistoryError> {
    let mut summaries = HashMap::new();
    if hashes.is_empty() {
        return Ok(summaries);
    }
    let git = Git::at(at)?;
    for some in hashes.chunks(HASHES_AT_ONCE) {
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
        let output = git.stdout_of("show commits", &args)?;
        let mut parts =
            output.split(|byte| *byte == 0).map(|part| String::from_utf8_lossy(part).into_owned());
        while let (Some(hash), Some(short), Some(subject)) = (parts.next(), parts.next(), parts.next()) {
            summaries.insert(hash, CommitSummary { short, subject });
        }
    }
    Ok(summaries)
}
