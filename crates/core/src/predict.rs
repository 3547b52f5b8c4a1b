//! Co-change prediction: which other paths work on the declared paths will probably change, learned from past commits.
//!
//! Files that changed together will probably change together again. For every declared pattern, the predictor counts the
//! commits that touched it, and how many of these also touched a path outside it. Three rules keep the counts honest:
//!
//! - **Few commits prove little.** The likelihood is not the share itself, but the lower end of its 95 % confidence
//!   interval (Wilson's bound): 2 of 2 is 42 %, 20 of 20 is 88 %.
//! - **Old commits count less.** A commit counts half as much for every half-life that it is older than the newest one.
//! - **Very large commits do not count.** A commit that reformats half of the repository connects everything with
//!   everything. The reader of the history leaves it out.
//!
//! A prediction is advice. It never refuses anything, because past commits do not prove what comes next.

mod collision;
mod evaluate;
mod history;
mod likelihood;
mod suggest;

use std::collections::{HashMap, HashSet};

use likelihood::Sample;

pub use collision::{Collision, Forecast, collisions};
pub use evaluate::{Evaluation, KS, Rank, Score, THRESHOLDS, evaluate};
pub use history::{Change, CommitId, History, PathId};
pub use suggest::{escape, suggest};

/// The minimum for a prediction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Threshold {
    /// The least likelihood, from 0 to 1.
    pub likelihood: f64,
    /// The fewest commits in which the two changed together.
    pub together: u32,
}

/// A path outside the declared ones that will probably be touched.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// The path.
    pub path: PathId,
    /// The least likelihood that a commit that touches the declared paths touches this one.
    pub likelihood: f64,
    /// The index of the declared pattern with the strongest evidence.
    pub pattern: usize,
    /// Commits that touched both that pattern and the path.
    pub together: u32,
    /// Commits that touched that pattern.
    pub of: u32,
    /// The declared path that it most often changes with.
    pub partner: Partner,
    /// All commits that touched the path.
    pub anywhere: u32,
    /// The newest commits that touched both, newest first, at most two.
    pub newest: Vec<CommitId>,
}

/// The declared path that a predicted path most often changes with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Partner {
    /// The declared path.
    pub path: PathId,
    /// The least likelihood that a commit that touches it touches the predicted path.
    pub likelihood: f64,
    /// Commits that touched both.
    pub together: u32,
    /// Commits that touched the declared path.
    pub of: u32,
}

/// Predicts the paths outside the declared ones that the work will probably touch, the most likely first.
///
/// `declared` has the known paths of each pattern. A path is predicted when a whole pattern reaches the threshold, or when
/// one declared path alone does: commits touch a wide pattern for many reasons, and only some of them touch other paths.
/// Paths for which `exists` returns false were deleted, and are not predicted.
pub fn predict(
    history: &History,
    declared: &[Vec<PathId>],
    threshold: Threshold,
    exists: impl Fn(PathId) -> bool,
) -> Vec<Prediction> {
    let inside: HashSet<PathId> = declared.iter().flatten().copied().collect();
    let mut partners = Partners { history, inside: &inside, samples: HashMap::new() };
    rank(history, declared, &inside, threshold.together)
        .into_iter()
        .filter(|ranked| exists(ranked.path))
        .filter_map(|ranked| {
            let partner = partners.of(ranked.path)?;
            let alone = partner.likelihood >= threshold.likelihood && partner.together >= threshold.together;
            (ranked.likelihood >= threshold.likelihood || alone).then(|| Prediction {
                path: ranked.path,
                likelihood: ranked.likelihood,
                pattern: ranked.pattern,
                together: ranked.together,
                of: ranked.of,
                partner,
                anywhere: history.times(ranked.path),
                newest: newest_together(history, &declared[ranked.pattern], ranked.path),
            })
        })
        .collect()
}

/// Returns how many commits touched any of the paths.
pub fn commits_touching(history: &History, paths: &[PathId]) -> usize {
    touching(history, paths).len()
}

/// A path, with the numbers of the pattern that has the strongest evidence.
struct Ranked {
    path: PathId,
    likelihood: f64,
    pattern: usize,
    together: u32,
    of: u32,
}

/// Returns all paths that changed together with a pattern at least `least_together` times, the most likely first.
fn rank(
    history: &History,
    declared: &[Vec<PathId>],
    inside: &HashSet<PathId>,
    least_together: u32,
) -> Vec<Ranked> {
    let mut best: HashMap<PathId, Ranked> = HashMap::new();
    for (pattern, paths) in declared.iter().enumerate() {
        let commits = touching(history, paths);
        let whole = Sample::of(history, commits.iter().copied());
        let mut shares: HashMap<PathId, (u32, f64)> = HashMap::new();
        for commit in &commits {
            for path in history.paths(*commit).iter().filter(|path| !inside.contains(path)) {
                let share = shares.entry(*path).or_default();
                share.0 += 1;
                share.1 += history.weight(*commit);
            }
        }
        for (path, (together, weight)) in shares {
            if together < least_together {
                continue;
            }
            let ranked =
                Ranked { path, likelihood: whole.at_least(weight), pattern, together, of: whole.times };
            let known = best.get(&path);
            if known.is_none_or(|known| known.likelihood < ranked.likelihood) {
                best.insert(path, ranked);
            }
        }
    }
    let mut ranked: Vec<Ranked> = best.into_values().collect();
    ranked.sort_by(|a, b| {
        let likelier = b.likelihood.total_cmp(&a.likelihood);
        likelier.then(b.together.cmp(&a.together)).then(a.path.cmp(&b.path))
    });
    ranked
}

/// Returns the commits that touched any of the paths, newest first, each once.
fn touching(history: &History, paths: &[PathId]) -> Vec<CommitId> {
    let mut commits: Vec<CommitId> = paths.iter().flat_map(|path| history.touching(*path)).copied().collect();
    commits.sort_unstable();
    commits.dedup();
    commits
}

/// Finds the declared path that another path most often changes with.
struct Partners<'h> {
    history: &'h History,
    inside: &'h HashSet<PathId>,
    /// A cache: the commits of each declared path.
    samples: HashMap<PathId, Sample>,
}

impl Partners<'_> {
    /// Returns the declared path with the highest likelihood.
    fn of(&mut self, path: PathId) -> Option<Partner> {
        let mut shares: HashMap<PathId, (u32, f64)> = HashMap::new();
        for commit in self.history.touching(path) {
            for declared in self.history.paths(*commit).iter().filter(|path| self.inside.contains(path)) {
                let share = shares.entry(*declared).or_default();
                share.0 += 1;
                share.1 += self.history.weight(*commit);
            }
        }
        let partners = shares.into_iter().map(|(declared, (together, weight))| {
            let commits = self.history.touching(declared).iter().copied();
            let whole = self.samples.entry(declared).or_insert_with(|| Sample::of(self.history, commits));
            Partner { path: declared, likelihood: whole.at_least(weight), together, of: whole.times }
        });
        partners.max_by(|a, b| {
            let likelier = a.likelihood.total_cmp(&b.likelihood);
            likelier.then(a.together.cmp(&b.together)).then(b.path.cmp(&a.path))
        })
    }
}

fn newest_together(history: &History, declared: &[PathId], path: PathId) -> Vec<CommitId> {
    let declared: HashSet<PathId> = declared.iter().copied().collect();
    let both = |commit: &&CommitId| history.paths(**commit).iter().any(|path| declared.contains(path));
    history.touching(path).iter().filter(both).take(2).copied().collect()
}

#[cfg(test)]
mod tests;
