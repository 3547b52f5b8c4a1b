//! Evaluation: measures predictions on commits that were not used for learning.
//!
//! The newest fifth of the commits is held out for two tests. In the first test, each path of a held-out commit is hidden
//! in turn, and has to be predicted from the others: the last file that somebody forgot. In the second test, each path is
//! given alone, and the others have to be predicted: all the files that somebody did not declare.
//!
//! Two baselines take the first test too: the files that change most often, and the files of the same folders, most
//! changed first.

use std::collections::HashSet;
use std::time::Duration;

use super::history::{Change, History, PathId};
use super::rank;

/// The likelihoods at which predictions are scored.
pub const THRESHOLDS: [f64; 6] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.7];

/// The lengths of lists at which rankings are scored.
pub const KS: [usize; 4] = [1, 3, 5, 10];

/// The most questions, so that a huge history is measured in seconds too.
const QUESTIONS: usize = 20_000;

/// The number of predictions, and how many were right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Score {
    /// Paths that were predicted.
    pub predicted: u64,
    /// Of these, the ones that had been hidden.
    pub hits: u64,
}

impl Score {
    /// The share of the predictions that came true.
    pub fn precision(&self) -> f64 {
        share(self.hits, self.predicted)
    }

    /// The share of the hidden paths that were predicted.
    pub fn recall(&self, hidden: u64) -> f64 {
        share(self.hits, hidden)
    }
}

/// How well one method ranks the hidden path.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rank {
    /// Scores of the first [`KS`] of each answer.
    pub first: [Score; KS.len()],
    /// The sum of 1/place of the hidden path.
    reciprocals: f64,
}

impl Rank {
    /// Adds an answer of this length that has the hidden path at this place, counted from 0.
    fn add(&mut self, length: usize, place: Option<usize>) {
        for (score, k) in self.first.iter_mut().zip(KS) {
            score.predicted += k.min(length) as u64;
            score.hits += u64::from(place.is_some_and(|place| place < k));
        }
        self.reciprocals += place.map_or(0.0, |place| 1.0 / (place + 1) as f64);
    }

    /// The mean of 1/place of the hidden path: 1 when it always comes first.
    pub fn mean_reciprocal(&self, questions: u64) -> f64 {
        if questions == 0 { 0.0 } else { self.reciprocals / questions as f64 }
    }
}

/// The result of the evaluation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evaluation {
    /// Commits that were learned from.
    pub learned: usize,
    /// Commits that were held out and asked about.
    pub asked: usize,
    /// Paths that were hidden and had to be predicted.
    pub questions: u64,
    /// Of these, the ones that a commit learned from had touched. The others cannot be predicted.
    pub knowable: u64,
    /// Scores of the predictions that reach each of the [`THRESHOLDS`], when one path is hidden.
    pub one_hidden: [Score; THRESHOLDS.len()],
    /// The number of hidden paths in the second test: for each path that was given alone, all others of its commit.
    pub others: u64,
    /// Scores of the predictions that reach each of the [`THRESHOLDS`], when only one path is given.
    pub one_given: [Score; THRESHOLDS.len()],
    /// The ranking of the predictor: what changed together.
    pub together: Rank,
    /// The ranking of a baseline: the files of the same folders, the most changed first.
    pub folder: Rank,
    /// The ranking of a baseline: all files, the most changed first.
    pub popular: Rank,
}

/// Evaluates predictions on `changes`, newest first. `folders` has a number for the folder of each path.
pub fn evaluate(changes: &[Change], folders: &[u32], half_life: Duration, least_together: u32) -> Evaluation {
    let (held_out, learned) = changes.split_at(changes.len() / 5);
    let history = History::new(learned, half_life);
    let popularity = Popularity::new(&history, folders);
    let mut result = Evaluation { learned: learned.len(), ..Evaluation::default() };
    for change in held_out {
        let paths: HashSet<PathId> = change.paths.iter().copied().collect();
        if paths.len() < 2 {
            continue;
        }
        if result.questions as usize + paths.len() > QUESTIONS {
            break;
        }
        result.asked += 1;
        let mut sorted: Vec<PathId> = paths.into_iter().collect();
        sorted.sort_unstable();
        for hidden in &sorted {
            let given: Vec<PathId> = sorted.iter().filter(|path| *path != hidden).copied().collect();
            ask(&mut result, &history, &popularity, &given, *hidden, least_together);
            ask_from_one(&mut result, &history, *hidden, &given, least_together);
        }
    }
    result
}

fn ask(
    result: &mut Evaluation,
    history: &History,
    popularity: &Popularity<'_>,
    given: &[PathId],
    hidden: PathId,
    least_together: u32,
) {
    result.questions += 1;
    result.knowable += u64::from(history.times(hidden) > 0);
    let declared: Vec<Vec<PathId>> = given.iter().map(|path| vec![*path]).collect();
    let ranked = rank(history, &declared, &given.iter().copied().collect(), least_together);
    let place = ranked.iter().position(|ranked| ranked.path == hidden);
    result.together.add(ranked.len(), place);
    for (score, threshold) in result.one_hidden.iter_mut().zip(THRESHOLDS) {
        let count = ranked.partition_point(|ranked| ranked.likelihood >= threshold);
        score.predicted += count as u64;
        score.hits += u64::from(place.is_some_and(|place| place < count));
    }
    let (length, place) = popularity.in_folders(given, hidden);
    result.folder.add(length, place);
    let (length, place) = popularity.anywhere(given, hidden);
    result.popular.add(length, place);
}

fn ask_from_one(
    result: &mut Evaluation,
    history: &History,
    given: PathId,
    hidden: &[PathId],
    least_together: u32,
) {
    result.others += hidden.len() as u64;
    let ranked = rank(history, &[vec![given]], &HashSet::from([given]), least_together);
    for (score, threshold) in result.one_given.iter_mut().zip(THRESHOLDS) {
        let told = ranked.iter().take_while(|ranked| ranked.likelihood >= threshold);
        for ranked in told {
            score.predicted += 1;
            score.hits += u64::from(hidden.contains(&ranked.path));
        }
    }
}

/// The paths by the number of their changes, for the baselines.
struct Popularity<'f> {
    folders: &'f [u32],
    /// The place of each path among all that were touched, if it was.
    places: Vec<Option<usize>>,
    /// How many paths were touched.
    count: usize,
    /// The places of the paths in each folder, in order.
    members: Vec<Vec<usize>>,
}

impl<'f> Popularity<'f> {
    fn new(history: &History, folders: &'f [u32]) -> Self {
        let known = u32::try_from(history.path_count()).unwrap_or(u32::MAX);
        let mut paths: Vec<PathId> = (0..known).map(PathId).filter(|path| history.times(*path) > 0).collect();
        paths.sort_by_key(|path| (std::cmp::Reverse(history.times(*path)), *path));
        let mut places = vec![None; folders.len().max(history.path_count())];
        let highest = folders.iter().max().map_or(0, |highest| *highest as usize + 1);
        let mut members = vec![Vec::new(); highest];
        for (place, path) in paths.iter().enumerate() {
            places[path.index()] = Some(place);
            if let Some(folder) = folders.get(path.index()) {
                members[*folder as usize].push(place);
            }
        }
        Self { folders, places, count: paths.len(), members }
    }

    /// For the list of all other paths in the folders of the given paths: its length, and the index of the hidden path in it.
    fn in_folders(&self, given: &[PathId], hidden: PathId) -> (usize, Option<usize>) {
        let folder = |path: PathId| self.folders.get(path.index()).copied();
        let folders: HashSet<u32> = given.iter().filter_map(|path| folder(*path)).collect();
        let taken: Vec<usize> = given.iter().filter_map(|path| self.place(*path)).collect();
        let lists = || folders.iter().map(|folder| &self.members[*folder as usize]);
        let length = lists().map(Vec::len).sum::<usize>() - taken.len();
        let listed = folder(hidden).is_some_and(|folder| folders.contains(&folder));
        let place = self.place(hidden).filter(|_| listed).map(|own| {
            let before: usize = lists().map(|list| list.partition_point(|place| *place < own)).sum();
            before - taken.iter().filter(|place| **place < own).count()
        });
        (length, place)
    }

    fn anywhere(&self, given: &[PathId], hidden: PathId) -> (usize, Option<usize>) {
        let taken: Vec<usize> = given.iter().filter_map(|path| self.place(*path)).collect();
        let place = self.place(hidden);
        let ahead = |own: usize| own - taken.iter().filter(|place| **place < own).count();
        (self.count - taken.len(), place.map(ahead))
    }

    fn place(&self, path: PathId) -> Option<usize> {
        self.places.get(path.index()).copied().flatten()
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
