//! What groups of work will likely touch besides their declared paths, and where they will meet.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use lockkeeper_core::overlap::overlap;
use lockkeeper_core::pattern::Pattern;
use lockkeeper_core::predict::{
    Collision, Evaluation, Forecast, History, PathId, Prediction, Threshold, collisions, commits_touching,
    evaluate, predict as predict_paths, suggest,
};

use crate::history::{self, HistoryError, Limits, Past, Told};

/// A group as it is declared.
#[derive(Clone, Debug)]
pub struct Group {
    /// What it is called.
    pub name: String,
    /// What it declares.
    pub patterns: Vec<Pattern>,
}

/// How to predict.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// How much of the past is read.
    pub limits: Limits,
    /// What has to hold before something is predicted.
    pub bar: Threshold,
    /// After how long a commit counts half.
    pub half_life: Duration,
    /// The most predictions for a group, and the most meetings.
    pub most: usize,
}

/// What was learned from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Learned {
    /// Commits.
    pub commits: usize,
    /// Commits that touched too much to say anything.
    pub left_out: usize,
    /// Paths that the commits touched.
    pub paths: usize,
    /// Whether the clone has only the newest commits.
    pub shallow: bool,
}

/// What is foreseen.
#[derive(Clone, Debug)]
pub struct Outlook {
    /// What was learned from.
    pub learned: Learned,
    /// Each group, in the order of the question.
    pub groups: Vec<GroupOutlook>,
    /// Where groups will likely meet, the likeliest first.
    pub meetings: Vec<Comparison>,
    /// Meetings beyond the most that were asked for.
    pub more_meetings: usize,
    /// Groups that declare a same path already: their places, and a path that both declare.
    pub overlaps: Vec<(usize, usize, String)>,
}

/// What is foreseen for one group.
#[derive(Clone, Debug)]
pub struct GroupOutlook {
    /// Commits that touched what it declares.
    pub commits: usize,
    /// What it will likely touch besides, the likeliest first.
    pub foreseen: Vec<Foreseen>,
    /// Predictions beyond the most that were asked for.
    pub more: usize,
    /// Patterns that would cover what is foreseen.
    pub suggestions: Vec<String>,
}

/// A path that will likely be touched.
#[derive(Clone, Debug)]
pub struct Foreseen {
    /// The path.
    pub path: String,
    /// The numbers.
    pub prediction: Prediction,
    /// The declared path that it goes with.
    pub goes_with: String,
    /// The newest commits that touched both.
    pub evidence: Vec<Told>,
}

/// A path on which two groups will likely meet.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The path.
    pub path: String,
    /// The groups and their likelihoods.
    pub collision: Collision,
}

/// Predicts for groups from the history of the repository that a folder is in.
pub fn predict(at: &Path, groups: &[Group], terms: &Terms) -> Result<Outlook, HistoryError> {
    let past = history::read(at, terms.limits)?;
    let history = History::new(&past.changes, terms.half_life);
    let matched: Vec<Vec<Vec<PathId>>> = groups.iter().map(|group| known_paths(&past, group)).collect();
    let forecasts: Vec<Forecast> = matched
        .iter()
        .map(|declared| Forecast {
            declared: declared.iter().flatten().copied().collect(),
            predictions: predict_paths(&history, declared, terms.bar, |path| past.exists(path)),
        })
        .collect();
    let shown = |forecast: &Forecast| forecast.predictions.len().min(terms.most);
    let told = tell(at, &past, forecasts.iter().flat_map(|group| &group.predictions[..shown(group)]))?;
    let mut meetings: Vec<Comparison> = collisions(&forecasts)
        .into_iter()
        .map(|collision| Comparison { path: past.name(collision.path).into_owned(), collision })
        .collect();
    let more_meetings = meetings.len().saturating_sub(terms.most);
    meetings.truncate(terms.most);
    let groups_outlook = forecasts.into_iter().zip(&matched).map(|(forecast, declared)| {
        let more = forecast.predictions.len() - shown(&forecast);
        let foreseen: Vec<Foreseen> = forecast
            .predictions
            .into_iter()
            .take(terms.most)
            .map(|prediction| Foreseen {
                path: past.name(prediction.path).into_owned(),
                goes_with: past.name(prediction.partner.path).into_owned(),
                evidence: prediction
                    .newest
                    .iter()
                    .filter_map(|commit| told.get(past.hash(*commit)).cloned())
                    .collect(),
                prediction,
            })
            .collect();
        GroupOutlook {
            commits: commits_touching(&history, &declared.concat()),
            more,
            suggestions: suggest(foreseen.iter().map(|found| found.path.as_str()), |folder| {
                past.files_in(folder)
            }),
            foreseen,
        }
    });
    Ok(Outlook {
        groups: groups_outlook.collect(),
        learned: learned(&past),
        meetings,
        more_meetings,
        overlaps: overlaps(groups),
    })
}

/// Measures how good predictions are in the repository that a folder is in.
pub fn measure(at: &Path, terms: &Terms) -> Result<(Learned, Evaluation), HistoryError> {
    let past = history::read(at, terms.limits)?;
    let result = evaluate(&past.changes, &past.folders(), terms.half_life, terms.bar.together);
    Ok((learned(&past), result))
}

fn learned(past: &Past) -> Learned {
    Learned {
        commits: past.changes.len(),
        left_out: past.left_out,
        paths: past.path_count(),
        shallow: past.shallow,
    }
}

/// The paths that each pattern of a group matches, those that are gone included.
fn known_paths(past: &Past, group: &Group) -> Vec<Vec<PathId>> {
    let matched = |pattern: &Pattern| {
        past.paths().filter(|(_, name)| pattern.matches(name)).map(|(path, _)| path).collect()
    };
    group.patterns.iter().map(matched).collect()
}

fn tell<'p>(
    at: &Path,
    past: &Past,
    predictions: impl Iterator<Item = &'p Prediction>,
) -> Result<HashMap<String, Told>, HistoryError> {
    let mut hashes: Vec<&str> =
        predictions.flat_map(|found| &found.newest).map(|commit| past.hash(*commit)).collect();
    hashes.sort_unstable();
    hashes.dedup();
    history::tell(at, &hashes)
}

/// The pairs of groups that declare a same path.
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
