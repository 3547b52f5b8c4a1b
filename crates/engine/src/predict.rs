//! Prediction of the paths that groups will change besides their declared ones, and of the conflicts between groups.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use lockkeeper_core::overlap::overlap;
use lockkeeper_core::pattern::Pattern;
use lockkeeper_core::predict::{
    Collision, Evaluation, Forecast, History, PathId, Prediction, Threshold, collisions, commits_touching,
    evaluate, predict as predict_paths, suggest,
};

use crate::history::{self, CommitSummary, HistoryError, Limits, RepositoryHistory};

/// A group with its declared paths.
#[derive(Clone, Debug)]
pub struct Group {
    /// The name.
    pub name: String,
    /// The declared paths.
    pub patterns: Vec<Pattern>,
}

/// Parameters of a prediction.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// How much of the history is read.
    pub limits: Limits,
    /// The least evidence for a prediction.
    pub bar: Threshold,
    /// The age at which a commit counts half.
    pub half_life: Duration,
    /// The most predictions for a group, and the most conflicts between groups.
    pub most: usize,
}

/// The commits that a prediction is based on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Learned {
    /// The number of commits.
    pub commits: usize,
    /// The number of commits that were left out because they touch too many files.
    pub left_out: usize,
    /// The number of paths that the commits touch.
    pub paths: usize,
    /// Whether the clone has only the newest commits.
    pub shallow: bool,
}

/// The result of a prediction.
#[derive(Clone, Debug)]
pub struct Outlook {
    /// The commits that it is based on.
    pub learned: Learned,
    /// The predictions for each group, in the order of the arguments.
    pub groups: Vec<GroupOutlook>,
    /// Paths that two groups will likely change, the likeliest first.
    pub conflicts: Vec<PredictedConflict>,
    /// The number of further conflicts, beyond `Terms::most`.
    pub more_conflicts: usize,
    /// Groups whose declared paths overlap already: their indexes, and a path that both declare.
    pub overlaps: Vec<(usize, usize, String)>,
}

/// The predictions for one group.
#[derive(Clone, Debug)]
pub struct GroupOutlook {
    /// The number of commits that touched a declared path.
    pub commits: usize,
    /// The paths that it will likely change, the likeliest first.
    pub predicted: Vec<PredictedPath>,
    /// The number of further predictions, beyond `Terms::most`.
    pub more: usize,
    /// Patterns that would cover the predicted paths.
    pub suggestions: Vec<String>,
}

/// A path that a group will likely change.
#[derive(Clone, Debug)]
pub struct PredictedPath {
    /// The path.
    pub path: String,
    /// The likelihood and the counts behind it.
    pub prediction: Prediction,
    /// The declared path that it changed together with most often.
    pub goes_with: String,
    /// The newest commits that touched both.
    pub evidence: Vec<CommitSummary>,
}

/// A path that two groups will likely change.
#[derive(Clone, Debug)]
pub struct PredictedConflict {
    /// The path.
    pub path: String,
    /// The groups and their likelihoods.
    pub collision: Collision,
}

/// Predicts for groups, from the history of the repository that contains the folder `at`.
pub fn predict(at: &Path, groups: &[Group], terms: &Terms) -> Result<Outlook, HistoryError> {
    let repository = history::read(at, terms.limits)?;
    let history = History::new(&repository.changes, terms.half_life);
    let matched: Vec<Vec<Vec<PathId>>> = groups.iter().map(|group| known_paths(&repository, group)).collect();
    let forecasts: Vec<Forecast> = matched
        .iter()
        .map(|declared| Forecast {
            declared: declared.iter().flatten().copied().collect(),
            predictions: predict_paths(&history, declared, terms.bar, |path| repository.exists(path)),
        })
        .collect();
    let shown = |forecast: &Forecast| forecast.predictions.len().min(terms.most);
    let summaries =
        summaries(at, &repository, forecasts.iter().flat_map(|group| &group.predictions[..shown(group)]))?;
    let mut conflicts: Vec<PredictedConflict> = collisions(&forecasts)
        .into_iter()
        .map(|collision| PredictedConflict { path: repository.name(collision.path).into_owned(), collision })
        .collect();
    let more_conflicts = conflicts.len().saturating_sub(terms.most);
    conflicts.truncate(terms.most);
    let groups_outlook = forecasts.into_iter().zip(&matched).map(|(forecast, declared)| {
        let more = forecast.predictions.len() - shown(&forecast);
        let predicted: Vec<PredictedPath> = forecast
            .predictions
            .into_iter()
            .take(terms.most)
            .map(|prediction| PredictedPath {
                path: repository.name(prediction.path).into_owned(),
                goes_with: repository.name(prediction.partner.path).into_owned(),
                evidence: prediction
                    .newest
                    .iter()
                    .filter_map(|commit| summaries.get(repository.hash(*commit)).cloned())
                    .collect(),
                prediction,
            })
            .collect();
        GroupOutlook {
            commits: commits_touching(&history, &declared.concat()),
            more,
            suggestions: suggest(predicted.iter().map(|found| found.path.as_str()), |folder| {
                repository.files_in(folder)
            }),
            predicted,
        }
    });
    Ok(Outlook {
        groups: groups_outlook.collect(),
        learned: learned(&repository),
        conflicts,
        more_conflicts,
        overlaps: overlaps(groups),
    })
}

/// Measures the quality of predictions in the repository that contains the folder `at`.
pub fn measure(at: &Path, terms: &Terms) -> Result<(Learned, Evaluation), HistoryError> {
    let repository = history::read(at, terms.limits)?;
    let result = evaluate(&repository.changes, &repository.folders(), terms.half_life, terms.bar.together);
    Ok((learned(&repository), result))
}

fn learned(repository: &RepositoryHistory) -> Learned {
    Learned {
        commits: repository.changes.len(),
        left_out: repository.left_out,
        paths: repository.path_count(),
        shallow: repository.shallow,
    }
}

/// The paths that each pattern of a group matches, also deleted ones.
fn known_paths(repository: &RepositoryHistory, group: &Group) -> Vec<Vec<PathId>> {
    let matched = |pattern: &Pattern| {
        repository.paths().filter(|(_, name)| pattern.matches(name)).map(|(path, _)| path).collect()
    };
    group.patterns.iter().map(matched).collect()
}

/// The summaries of the commits that predictions name as evidence, by hash.
fn summaries<'p>(
    at: &Path,
    repository: &RepositoryHistory,
    predictions: impl Iterator<Item = &'p Prediction>,
) -> Result<HashMap<String, CommitSummary>, HistoryError> {
    let mut hashes: Vec<&str> =
        predictions.flat_map(|found| &found.newest).map(|commit| repository.hash(*commit)).collect();
    hashes.sort_unstable();
    hashes.dedup();
    history::summaries(at, &hashes)
}

/// The pairs of groups whose declared paths overlap.
fn overlaps(groups: &[Group]) -> Vec<(usize, usize, String)> {
    let mut found = Vec::new();
    for b in 0..groups.len() {
        for a in 0..b {
            let pairs =
                groups[a].patterns.iter().flat_map(|x| groups[b].patterns.iter().map(move |y| (x, y)));
            let witness = pairs.into_iter().find_map(|(x, y)| overlap(x, y));
            found.extend(witness.map(|path| (a, b, path)));
        }
    }
    found
}
