//! Commit history as sets of paths that were touched together.

use std::time::Duration;

/// The id of a file. It stays the same when the file is renamed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(pub u32);

impl PathId {
    /// Its place in lists of all paths.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A commit by its place in the history: 0 is the newest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommitId(u32);

impl CommitId {
    /// Its place in the list of changes.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The paths that one commit touched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// When it was committed, in seconds since 1970.
    pub at: i64,
    /// The paths, in any order.
    pub paths: Vec<PathId>,
}

/// An index: the paths of each commit, and the commits of each path.
#[derive(Clone, Debug)]
pub struct History {
    /// The paths of all commits, one commit after the other.
    paths: Vec<PathId>,
    /// Where the paths of each commit end.
    ends: Vec<usize>,
    weights: Vec<f64>,
    touching: Vec<Vec<CommitId>>,
}

impl History {
    /// Learns from changes, newest first. A commit that is one half-life older than the newest counts half.
    ///
    /// Commits with only one path count too: they are evidence that it changes alone. The commit with the latest time is
    /// the newest, wherever it is in the list.
    pub fn new<'c>(changes: impl IntoIterator<Item = &'c Change>, half_life: Duration) -> Self {
        let mut history =
            Self { paths: Vec::new(), ends: Vec::new(), weights: Vec::new(), touching: Vec::new() };
        let mut times = Vec::new();
        for change in changes {
            let Ok(place) = u32::try_from(history.ends.len()) else { break };
            let begin = history.paths.len();
            history.paths.extend(&change.paths);
            history.paths[begin..].sort_unstable();
            let mut kept = begin;
            for index in begin..history.paths.len() {
                if index == begin || history.paths[index] != history.paths[index - 1] {
                    history.paths[kept] = history.paths[index];
                    kept += 1;
                }
            }
            history.paths.truncate(kept);
            for path in &history.paths[begin..] {
                if history.touching.len() <= path.index() {
                    history.touching.resize_with(path.index() + 1, Vec::new);
                }
                history.touching[path.index()].push(CommitId(place));
            }
            history.ends.push(kept);
            times.push(change.at);
        }
        let newest = times.iter().copied().max().unwrap_or_default();
        let half_life = half_life.as_secs_f64().max(1.0);
        // A float is exact enough for ages of a few thousand years.
        history.weights =
            times.iter().map(|at| (-(newest.saturating_sub(*at) as f64) / half_life).exp2()).collect();
        history
    }

    /// How many commits there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is nothing to learn from.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The paths that a commit touched, in order, each once.
    pub fn paths(&self, commit: CommitId) -> &[PathId] {
        let begin = commit.index().checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.paths[begin..self.ends[commit.index()]]
    }

    /// The commits that touched a path, newest first.
    pub fn touching(&self, path: PathId) -> &[CommitId] {
        self.touching.get(path.index()).map_or(&[], Vec::as_slice)
    }

    /// How many commits touched a path.
    pub fn times(&self, path: PathId) -> u32 {
        u32::try_from(self.touching(path).len()).unwrap_or(u32::MAX)
    }

    /// How much a commit counts, more than 0 and at most 1.
    pub(super) fn weight(&self, commit: CommitId) -> f64 {
        self.weights[commit.index()]
    }

    /// The largest id of a touched path, plus one.
    pub(super) fn path_count(&self) -> usize {
        self.touching.len()
    }
}
