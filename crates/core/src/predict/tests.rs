//! One claim for each rule of prediction.

use super::*;
use std::time::Duration;

const DAY: i64 = 86_400;
const HALF_LIFE: Duration = Duration::from_secs(365 * 86_400);
const BAR: Threshold = Threshold { likelihood: 0.3, together: 3 };

/// Commits of one day, newest first.
fn learn(commits: &[&[u32]]) -> History {
    History::new(&changes(commits, 0), HALF_LIFE)
}

fn changes(commits: &[&[u32]], at: i64) -> Vec<Change> {
    let change = |paths: &&[u32]| Change { at, paths: paths.iter().copied().map(PathId).collect() };
    commits.iter().map(change).collect()
}

fn found(history: &History, declared: &[&[u32]]) -> Vec<Prediction> {
    let declared: Vec<Vec<PathId>> =
        declared.iter().map(|paths| paths.iter().copied().map(PathId).collect()).collect();
    predict(history, &declared, BAR, |_| true)
}

/// Requirement 161.
#[test]
fn what_changed_together_is_predicted_with_its_evidence() {
    // 0 and 7 change together. 3 changed with them once. 5 never does.
    let history = learn(&[&[0, 7], &[5], &[0, 7, 3], &[0, 7], &[5, 6], &[0], &[0, 7]]);
    let predictions = found(&history, &[&[0, 1]]);
    assert_eq!(predictions.len(), 1, "{predictions:?}");
    let prediction = &predictions[0];
    assert_eq!((prediction.path, prediction.together, prediction.of), (PathId(7), 4, 5));
    assert_eq!((prediction.partner.path, prediction.anywhere), (PathId(0), 4));
    assert_eq!(prediction.newest.iter().map(|commit| commit.index()).collect::<Vec<_>>(), [0, 2]);
    assert!(prediction.likelihood > 0.4 && prediction.likelihood < 0.8, "{prediction:?}");
}

#[test]
fn nothing_is_predicted_from_too_few_commits() {
    let history = learn(&[&[0, 7], &[0, 7]]);
    assert!(found(&history, &[&[0]]).is_empty());
    assert!(found(&learn(&[]), &[&[0]]).is_empty());
    assert!(found(&history, &[&[]]).is_empty());
    assert!(found(&history, &[&[99]]).is_empty());
}

#[test]
fn declared_and_removed_paths_are_not_predicted() {
    let history = learn(&[[0, 7, 8].as_slice(); 10]);
    assert_eq!(
        found(&history, &[&[0], &[8]]).iter().map(|found| found.path).collect::<Vec<_>>(),
        [PathId(7)]
    );
    assert!(predict(&history, &[vec![PathId(0)]], BAR, |_| false).is_empty());
}

#[test]
fn one_path_of_a_wide_pattern_is_enough_of_a_reason() {
    let mut commits: Vec<&[u32]> = vec![&[1]; 200];
    commits.extend([[0_u32, 7].as_slice(); 10]);
    let predictions = found(&learn(&commits), &[&[0, 1]]);
    assert_eq!(predictions.len(), 1);
    assert!(predictions[0].likelihood < 0.1, "few commits in the whole pattern: {predictions:?}");
    assert!(predictions[0].partner.likelihood > 0.7, "all commits of the one path: {predictions:?}");
    assert_eq!((predictions[0].partner.path, predictions[0].partner.of), (PathId(0), 10));
}

#[test]
fn each_pattern_is_counted_by_itself() {
    let mut commits: Vec<&[u32]> = vec![&[1]; 200];
    commits.extend([[0_u32, 7].as_slice(); 10]);
    let predictions = found(&learn(&commits), &[&[1], &[0]]);
    assert_eq!((predictions[0].pattern, predictions[0].together, predictions[0].of), (1, 10, 10));
    assert!(predictions[0].likelihood > 0.7);
}

#[test]
fn recent_commits_count_more() {
    let (old, new): ([&[u32]; 10], [&[u32]; 10]) = ([&[0, 7]; 10], [&[0, 8]; 10]);
    let mut all = changes(&new, 4 * 365 * DAY);
    all.extend(changes(&old, 0));
    let history = History::new(&all, HALF_LIFE);
    let predictions = found(&history, &[&[0]]);
    assert_eq!(predictions.iter().map(|found| found.path).collect::<Vec<_>>(), [PathId(8)]);
    let steady = History::new(&all, Duration::MAX);
    assert_eq!(found(&steady, &[&[0]]).len(), 2, "without a half-life both are as likely");
}

#[test]
fn a_path_named_twice_in_a_commit_counts_once() {
    let history = learn(&[[7, 0, 7, 0].as_slice(); 5]);
    let predictions = found(&history, &[&[0, 0], &[0]]);
    assert_eq!((predictions[0].together, predictions[0].of), (5, 5));
    assert_eq!(history.times(PathId(7)), 5);
}

/// Requirement 161.
#[test]
fn two_groups_collide_on_a_path_predicted_for_one_and_declared_by_or_predicted_for_the_other() {
    // The first group declares 0, the second 1 and 2. 9 changes with 0 and with 1, and 2 changes with 0.
    let mut commits: Vec<&[u32]> = vec![&[0, 9, 2]; 10];
    commits.extend([[1_u32, 9].as_slice(); 90]);
    commits.extend([[2_u32].as_slice(); 90]);
    let history = learn(&commits);
    let forecast = |declared: &[u32]| Forecast {
        declared: declared.iter().copied().map(PathId).collect(),
        predictions: found(&history, &[declared]),
    };
    let met = collisions(&[forecast(&[0]), forecast(&[1, 2]), forecast(&[5])]);
    let told: Vec<_> = met
        .iter()
        .map(|met| (met.a, met.b, met.path, met.a_likelihood.is_some(), met.b_likelihood.is_some()))
        .collect();
    assert_eq!(told, [(0, 1, PathId(2), true, false), (0, 1, PathId(9), true, true)]);
    assert!(met[0].likelihood() > met[1].likelihood());
}

/// Requirement 161. The oracle counts naively, over random histories.
#[test]
fn counts_agree_with_counting_by_hand() {
    let mut seed = 0x5eed_u64;
    let mut random = move |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    for round in 0..50 {
        let commits: Vec<Vec<u32>> =
            (0..60).map(|_| (0..1 + random(4)).map(|_| random(12) as u32).collect()).collect();
        let slices: Vec<&[u32]> = commits.iter().map(Vec::as_slice).collect();
        let history = learn(&slices);
        let declared = [random(12) as u32, random(12) as u32];
        let all = Threshold { likelihood: 0.0, together: 1 };
        let paths: Vec<PathId> = declared.iter().copied().map(PathId).collect();
        for prediction in predict(&history, &[paths], all, |_| true) {
            let touches = |commit: &&Vec<u32>| declared.iter().any(|path| commit.contains(path));
            let of = commits.iter().filter(touches).count();
            let together =
                commits.iter().filter(touches).filter(|commit| commit.contains(&prediction.path.0)).count();
            assert_eq!(
                (prediction.together as usize, prediction.of as usize),
                (together, of),
                "round {round}: {prediction:?}"
            );
        }
    }
}

#[test]
fn a_pair_that_always_goes_together_is_found_in_held_out_commits() {
    // Pairs 2n, 2n+1 for ten n; a folder has one path of each pair, so that folders say nothing.
    let commits: Vec<Vec<u32>> = (0..500_u32).map(|n| vec![n % 10 * 2, n % 10 * 2 + 1]).collect();
    let slices: Vec<&[u32]> = commits.iter().map(Vec::as_slice).collect();
    let folders: Vec<u32> = (0..20).map(|path| path % 2).collect();
    let result = evaluate(&changes(&slices, 0), &folders, HALF_LIFE, 3);
    assert_eq!((result.learned, result.asked, result.questions, result.knowable), (400, 100, 200, 200));
    assert_eq!(result.together.mean_reciprocal(200), 1.0);
    assert_eq!([result.one_hidden[0], result.one_given[0]], [Score { predicted: 200, hits: 200 }; 2]);
    assert_eq!(result.folder.mean_reciprocal(200), 0.0, "the other path is never in the same folder");
    assert_eq!(result.folder.first[0], Score { predicted: 200, hits: 0 });
    assert!(result.popular.mean_reciprocal(200) < 0.3);
    assert_eq!(result.popular.first[3].predicted, 2000);
}

#[test]
fn an_evaluation_of_nothing_is_no_division_by_zero() {
    let result = evaluate(&[], &[], HALF_LIFE, 3);
    assert_eq!(
        (result.questions, result.one_given[0].precision(), result.one_given[0].recall(0)),
        (0, 0.0, 0.0)
    );
    assert_eq!(result.together.mean_reciprocal(0), 0.0);
}
