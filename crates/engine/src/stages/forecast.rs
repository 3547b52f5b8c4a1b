//! Predicted conflicts of a phase: paths that two of its groups will probably both change, by the git history.

use std::path::Path;
use std::time::Duration;

use lockkeeper_core::predict::Threshold;
use lockkeeper_stages::{File, Forecast, PhasePlan};

use crate::history::{HistoryError, Limits};
use crate::predict::{Group, Terms, predict};

/// The probability from which a predicted conflict is shown. Below it, most predictions are wrong.
pub const ADVICE: f64 = 0.5;

/// Predicts the conflicts between the groups of a plan, the likeliest first. A rule with a lower `min_probability` gets the less
/// likely ones, too.
pub fn forecast(root: &Path, file: &File, plan: &PhasePlan) -> Result<Vec<Forecast>, HistoryError> {
    let least = file.stages.rule_details.iter().filter_map(|rule| rule.min_probability);
    let least = least.fold(ADVICE, f64::min);
    let groups: Vec<Group> = plan
        .groups
        .iter()
        .map(|group| Group {
            name: group.id.value.clone(),
            patterns: group.conflict_paths.iter().map(|path| path.value.clone()).collect(),
        })
        .collect();
    let terms = Terms {
        limits: Limits { since: None, commits: 100_000, files: 50 },
        bar: Threshold { likelihood: least, together: 3 },
        half_life: Duration::from_secs(365 * 86_400),
        most: 100,
    };
    let outlook = predict(root, &groups, &terms)?;
    let id = |index: usize| groups[index].name.clone();
    let found = outlook.conflicts.into_iter().map(|found| Forecast {
        groups: [id(found.collision.a), id(found.collision.b)],
        path: found.path,
        probability: found.collision.likelihood(),
    });
    let acts = |forecast: &Forecast| forecast.probability >= least && is_wanted(file, forecast);
    Ok(found.filter(acts).collect())
}

/// Whether a predicted conflict is likely enough to be shown, or a rule asks for it.
fn is_wanted(file: &File, forecast: &Forecast) -> bool {
    let rules = file.stages.rules.iter().zip(&file.stages.rule_details);
    let is_asked_for =
        rules.filter(|(_, details)| details.min_probability.is_some_and(|p| forecast.probability >= p));
    forecast.probability >= ADVICE
        || is_asked_for.flat_map(|(rule, _)| &rule.value.paths).any(|pattern| pattern.matches(&forecast.path))
}
