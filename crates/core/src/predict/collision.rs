//! Predicted collisions: groups whose declared paths do not overlap, but that will probably change the same path.

use std::collections::{HashMap, HashSet};

use super::Prediction;
use super::history::PathId;

/// The paths that a group will touch, as far as they are known.
#[derive(Clone, Debug)]
pub struct Forecast {
    /// The known paths that it declares.
    pub declared: HashSet<PathId>,
    /// The other paths that it will probably touch.
    pub predictions: Vec<Prediction>,
}

/// A path that two groups will probably both change.
#[derive(Clone, Debug, PartialEq)]
pub struct Collision {
    /// The index of the one group.
    pub a: usize,
    /// The index of the other group.
    pub b: usize,
    /// The path.
    pub path: PathId,
    /// How likely the one touches it; `None` when it declares it.
    pub a_likelihood: Option<f64>,
    /// How likely the other touches it; `None` when it declares it.
    pub b_likelihood: Option<f64>,
}

impl Collision {
    /// Returns how likely both groups touch it. A group that declares a path touches it for certain.
    pub fn likelihood(&self) -> f64 {
        self.a_likelihood.unwrap_or(1.0) * self.b_likelihood.unwrap_or(1.0)
    }
}

/// Finds the paths that are predicted for one group, and declared by or predicted for another; the likeliest first.
///
/// A path that both groups declare is no prediction: `overlap` finds it exactly.
pub fn collisions(groups: &[Forecast]) -> Vec<Collision> {
    let predicted: Vec<HashMap<PathId, f64>> = groups
        .iter()
        .map(|group| group.predictions.iter().map(|found| (found.path, found.likelihood)).collect())
        .collect();
    let mut found = Vec::new();
    for b in 0..groups.len() {
        for a in 0..b {
            let mut paths: Vec<PathId> = predicted[a].keys().chain(predicted[b].keys()).copied().collect();
            paths.sort_unstable();
            paths.dedup();
            for path in paths {
                let (a_likelihood, b_likelihood) =
                    (predicted[a].get(&path).copied(), predicted[b].get(&path).copied());
                let a_touches = a_likelihood.is_some() || groups[a].declared.contains(&path);
                let b_touches = b_likelihood.is_some() || groups[b].declared.contains(&path);
                if a_touches && b_touches {
                    found.push(Collision { a, b, path, a_likelihood, b_likelihood });
                }
            }
        }
    }
    found.sort_by(|x, y| {
        let likelier = y.likelihood().total_cmp(&x.likelihood());
        likelier.then((x.a, x.b, x.path).cmp(&(y.a, y.b, y.path)))
    });
    found
}
