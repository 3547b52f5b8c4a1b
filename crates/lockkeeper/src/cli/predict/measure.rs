//! Output of the measured quality of predictions, as text and as JSON.

use lockkeeper_core::predict::{Evaluation, KS, Rank, Score, THRESHOLDS};
use lockkeeper_engine::predict::Learned;
use serde_json::{Value, json};

use super::show::{learned, percent, rounded};
use crate::cli::print;
use crate::cli::table::table;

/// The measurement as one JSON object.
pub(super) fn json(from: &Learned, result: &Evaluation) -> Value {
    let scores = |scores: &[Score], hidden: u64| -> Vec<Value> {
        let rows = THRESHOLDS.iter().zip(scores).map(|(threshold, score)| {
            json!({
                "min_confidence": threshold,
                "predicted": score.predicted,
                "hits": score.hits,
                "precision": rounded(score.precision()),
                "recall": rounded(score.recall(hidden)),
            })
        });
        rows.collect()
    };
    let rankings = rankings(result).into_iter().map(|(name, rank)| {
        let first = KS.iter().zip(&rank.first).map(|(k, score)| {
            let recall = rounded(score.recall(result.questions));
            json!({ "k": k, "precision": rounded(score.precision()), "recall": recall })
        });
        json!({
            "by": name,
            "mean_reciprocal_rank": rounded(rank.mean_reciprocal(result.questions)),
            "first": first.collect::<Vec<_>>(),
        })
    });
    json!({
        "learned": learned(from),
        "trained_on": result.learned,
        "held_out": result.asked,
        "questions": result.questions,
        "knowable": result.knowable,
        "one_hidden": scores(&result.one_hidden, result.questions),
        "one_given": scores(&result.one_given, result.others),
        "rankings": rankings.collect::<Vec<_>>(),
    })
}

/// The measurement as two tables.
pub(super) fn text(result: &Evaluation) {
    print::talk(&format!(
        "learned from {} commits; asked about {} newer ones with 2 files and more: {} hidden paths, of which {} had been \
         touched before",
        result.learned, result.asked, result.questions, result.knowable
    ));
    let rows: Vec<Vec<String>> = THRESHOLDS
        .iter()
        .zip(result.one_hidden.iter().zip(&result.one_given))
        .map(|(threshold, (hidden, given))| {
            vec![
                percent(*threshold),
                percent(hidden.precision()),
                percent(hidden.recall(result.questions)),
                percent(given.precision()),
                percent(given.recall(result.others)),
            ]
        })
        .collect();
    let heading = ["LIKELIHOOD", "ONE HIDDEN: PRECISION", "RECALL", "ONE GIVEN: PRECISION", "RECALL"];
    print::out(&table(&heading, &rows));
    print::data("");
    let rows: Vec<Vec<String>> = rankings(result)
        .into_iter()
        .map(|(name, rank)| {
            let found = rank.first.iter().map(|score| percent(score.recall(result.questions)));
            let mean = format!("{:.3}", rank.mean_reciprocal(result.questions));
            [name.replace('_', " "), mean].into_iter().chain(found).collect()
        })
        .collect();
    print::out(&table(&["ORDER BY", "MRR", "IN FIRST 1", "IN FIRST 3", "IN FIRST 5", "IN FIRST 10"], &rows));
}

fn rankings(result: &Evaluation) -> [(&'static str, &Rank); 3] {
    [
        ("changed_together", &result.together),
        ("same_folder", &result.folder),
        ("most_changed", &result.popular),
    ]
}
