//! Fallbacks of a plan: the conflict rules by which groups do not run side by side.

use std::collections::HashSet;

use lockkeeper_core::conflict::{Action, Ruling, Strategy};
use lockkeeper_core::plan::Cause;

use super::plan::PhasePlan;

/// A conflict rule by which groups do not run side by side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fallback<'p> {
    /// The name of the rule; `default_strategy` for conflicts that no rule covers.
    pub rule: &'p str,
    /// How the groups run instead.
    pub strategy: Strategy,
    /// One of the conflicts.
    pub why: String,
}

impl PhasePlan {
    /// Returns the rules by which groups that could run side by side do not, each once.
    pub fn fallbacks(&self) -> Vec<Fallback<'_>> {
        let bonds = self.plan.steps.iter().flat_map(|step| step.after.iter().chain(&step.excludes));
        let causes: HashSet<Cause> = bonds.map(|bond| bond.cause).collect();
        let acts = |cause: Cause, ruling: Ruling| {
            let of_phase = ruling.rule.is_some() && ruling.action == Action::DowngradeToSerial;
            causes.contains(&cause) || (of_phase && causes.contains(&Cause::Phase))
        };
        let mut found: Vec<(Ruling, String)> = Vec::new();
        for (place, conflict) in self.findings.conflicts.iter().enumerate() {
            if acts(Cause::Conflict(place), conflict.ruling) {
                let (a, b) = (self.id(conflict.group1), self.id(conflict.group2));
                found.push((conflict.ruling, format!("{a} and {b} conflict in {}", conflict.witness)));
            }
        }
        for (place, shared) in self.findings.same_dir.iter().enumerate() {
            if let Some(ruling) = shared.ruling.filter(|ruling| acts(Cause::Folder(place), *ruling)) {
                let groups: Vec<&str> = shared.groups.iter().map(|group| self.id(*group)).collect();
                found.push((ruling, format!("{} share {}", groups.join(", "), shared.folder)));
            }
        }
        let mut seen = HashSet::new();
        found.retain(|(ruling, _)| seen.insert(ruling.rule));
        let fallback = |(ruling, why): (Ruling, String)| Fallback {
            rule: self.rule_name(ruling).unwrap_or("default_strategy"),
            strategy: ruling.action.strategy(),
            why,
        };
        found.into_iter().map(fallback).collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::{Conditions, File};

    fn fallbacks(text: &str) -> Vec<(String, &'static str, String)> {
        let file = File::parse("STAGES.yml", text.as_bytes()).unwrap();
        let plan = file.plan("P1", &[], &Conditions::default()).unwrap();
        let all = plan.fallbacks();
        all.into_iter().map(|one| (one.rule.to_owned(), one.strategy.as_str(), one.why)).collect()
    }

    const GROUPS: &str = "parallel_groups:\n  P1:\n    - {group_id: a, conflict_paths: [\"src/x.ts\"]}\n    \
        - {group_id: b, conflict_paths: [\"src/**\"]}\n    - {group_id: c, conflict_paths: [\"docs/**\"]}\n";

    #[test]
    fn a_rule_counts_once_with_one_of_its_conflicts() {
        let rule = |action: &str| {
            format!("conflict_detection: {{rules: [{{name: ts, action: {action}, paths: [\"**/*.ts\"]}}]}}\n")
        };
        let why = "a and b conflict in src/x.ts".to_owned();
        for (action, strategy) in
            [("downgrade_to_serial", "SERIAL"), ("mutex_lock", "MUTEX"), ("queue_execution", "QUEUE")]
        {
            let found = fallbacks(&format!("{GROUPS}{}", rule(action)));
            assert_eq!(found, [("ts".to_owned(), strategy, why.clone())], "{action}");
        }
        assert_eq!(fallbacks(GROUPS), [("default_strategy".to_owned(), "SERIAL", why)]);
    }

    #[test]
    fn a_conflict_between_groups_that_a_dependency_orders_is_no_fallback() {
        let after = GROUPS.replace("[\"src/**\"]}", "[\"src/**\"], depends_on: [a]}");
        assert!(fallbacks(&after).is_empty());
        assert!(fallbacks(&GROUPS.replace("src/**", "lib/**")).is_empty());
    }
}
