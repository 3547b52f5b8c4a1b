//! Predicted conflicts in a plan: paths that two groups will probably both change, and the rules that act on them.

use std::cmp::Reverse;

use lockkeeper_core::conflict::{self, Conflict, Ruling};
use lockkeeper_core::overlap::Relation;
use lockkeeper_core::pattern::Pattern;
use lockkeeper_core::predict::escape;

use crate::model::Stages;

/// Two groups that will probably change the same path, although they do not both declare it.
#[derive(Clone, Debug, PartialEq)]
pub struct Forecast {
    /// The ids of the groups.
    pub groups: [String; 2],
    /// The path.
    pub path: String,
    /// How likely both change it, from 0 to 1.
    pub probability: f64,
}

/// A predicted conflict in a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Predicted {
    /// The index of the first group.
    pub group1: usize,
    /// The index of the second group.
    pub group2: usize,
    /// The path.
    pub path: String,
    /// How likely both change it, from 0 to 1.
    pub probability: f64,
    /// What a rule with `min_probability` says. Without a ruling it is advice.
    pub ruling: Option<Ruling>,
}

impl Predicted {
    /// The conflict that a rule acts on; none if it is advice.
    pub(super) fn as_conflict(&self) -> Option<Conflict> {
        let path: Pattern = escape(&self.path).parse().ok()?;
        let (group1, group2, witness) = (self.group1, self.group2, self.path.clone());
        let (path1, path2, kind) = (path.clone(), path, Relation::Exact);
        let is_predicted = true;
        Some(Conflict { group1, group2, path1, path2, kind, witness, is_predicted, ruling: self.ruling? })
    }
}

/// The predicted conflicts of the planned groups, each with the strictest rule that acts on it.
pub(super) fn predicted_conflicts(
    stages: &Stages,
    groups: &[conflict::Group],
    forecasts: &[Forecast],
) -> Vec<Predicted> {
    let place = |id: &str| groups.iter().position(|group| group.id == id);
    let ruling = |forecast: &Forecast| {
        let rules =
            stages.rules.iter().zip(&stages.rule_details).enumerate().filter(|(_, (rule, details))| {
                let reaches = details.min_probability.is_some_and(|least| forecast.probability >= least);
                reaches && rule.value.paths.iter().any(|pattern| pattern.matches(&forecast.path))
            });
        let strictest =
            rules.min_by_key(|(_, (rule, _))| (Reverse(rule.value.action.strategy()), rule.value.priority));
        strictest.map(|(at, (rule, _))| Ruling {
            rule: Some(at),
            severity: rule.value.severity,
            action: rule.value.action,
        })
    };
    let of_plan = forecasts.iter().filter_map(|forecast| {
        let (a, b) = (place(&forecast.groups[0])?, place(&forecast.groups[1])?);
        Some(Predicted {
            group1: a.min(b),
            group2: a.max(b),
            path: forecast.path.clone(),
            probability: forecast.probability,
            ruling: ruling(forecast),
        })
    });
    of_plan.collect()
}
