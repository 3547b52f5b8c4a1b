//! Which paths a piece of work will likely touch besides those that it declares, learned from past commits.
//!
//! Files that changed together will change together again. For every declared pattern the commits are counted that
//! touched it, and of these the ones that also touched a path outside. Three things keep the counts honest:
//!
//! - **Few commits prove little.** The likelihood is not the share but the lower end of what the share can be at
//!   95 % confidence (Wilson's bound): 2 of 2 is 42 %, 20 of 20 is 88 %.
//! - **Old habits fade.** A commit counts half as much for every half-life that it is older than the newest one.
//! - **Sweeping commits say nothing.** One that reformats half of the repository ties everything to everything; the
//!   reader of the history leaves it out.
//!
//! A prediction is advice. It refuses nothing, since a share of past commits is no proof of what comes next.

mod collision;
mod evaluate;
mod history;
mod likelihood;
mod suggest;

use std::collections::{HashMap, HashSet};

pub use collision::{Collision, Forecast, collisions};
pub use evaluate::{Evaluation, KS, Rank, Score, THRESHOLDS, evaluate};
pub use history::{Change, CommitId, History, PathId};
use likelihood::Sample;
pub use suggest::{escape, suggest};

/// What has to hold before something is predicted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bar {
    /// The least likelihood, from 0 to 1.
    pub likelihood: f64,
    /// The fewest commits in which the two changed together.
    pub together: u32,
}

/// A path outside of the declared ones that will likely be touched.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// The path.
    pub path: PathId,
    /// How likely a commit that touches the declared paths touches this one, at least.
    pub likelihood: f64,
    /// Which of the declared patterns says so most strongly.
    pub pattern: usize,
    /// Commits that touched both that pattern and the path.
    pub together: u32,
    /// Commits that touched that pattern.
    pub of: u32,
    /// The declared path that it goes with.
    pub partner: Partner,
    /// Commits that touched the path at all.
    pub anywhere: u32,
    /// The newest commits that touched both, newest first, at most two.
    pub newest: Vec<CommitId>,
}

/// A declared path that a predicted one goes with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Partner {
    /// The declared path.
    pub path: PathId,
    /// How likely a commit that touches it touches the predicted one, at least.
    pub likelihood: f64,
    /// Commits that touched both.
    pub together: u32,
    /// Commits that touched the declared path.
    pub of: u32,
}

/// Predicts what work on the declared paths touches outside of them, the likeliest first.
///
/// `declared` has the known paths of each pattern. A path is predicted when a whole pattern clears the bar, or when
/// one declared path alone does: a wide pattern is touched in many ways, and only some of them lead outside. Paths
/// for which `exists` says no are gone, and are not predicted.
pub fn predict(
    history: &History,
    declared: &[Vec<PathId>],
    bar: Bar,
    exists: impl Fn(PathId) -> bool,
) -> Vec<Prediction> {
    let inside: HashSet<PathId> = declared.iter().flatten().copied().collect();
    let mut partners = Partners { history, inside: &inside, samples: HashMap::new() };
    rank(history, declared, &inside, bar.together)
        .into_iter()
        .filter(|ranked| exists(ranked.path))
        .filter_map(|ranked| {
            let partner = partners.of(ranked.path)?;
            let alone = partner.likelihood >= bar.likelihood && partner.together >= bar.together;
            (ranked.likelihood >= bar.likelihood || alone).then(|| Prediction {
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

/// How many commits touched any of the paths.
pub fn commits_touching(history: &History, paths: &[PathId]) -> usize {
    touching(history, paths).len()
}

/// A path, and what the pattern that says most about it says.
struct Ranked {
    path: PathId,
    likelihood: f64,
    pattern: usize,
    together: u32,
    of: u32,
}

/// All paths that changed together with a pattern at least so many times, the likeliest first.
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

/// The commits that touched any of the paths, newest first, each once.
fn touching(history: &History, paths: &[PathId]) -> Vec<CommitId> {
    let mut commits: Vec<CommitId> = paths.iter().flat_map(|path| history.touching(*path)).copied().collect();
    commits.sort_unstable();
    commits.dedup();
    commits
}

/// Finds declared paths that others go with.
struct Partners<'h> {
    history: &'h History,
    inside: &'h HashSet<PathId>,
    /// The commits of declared paths that were asked for already.
    samples: HashMap<PathId, Sample>,
}

impl Partners<'_> {
    /// The declared path after which the other one is the likeliest to be touched.
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
