//! One line of the conflict log: two groups, the relation of their paths, and the time.

use lockkeeper_core::conflict::{Findings, Group, Rule, Ruling, SameDir};
use lockkeeper_core::overlap::{Relation, relate};
use lockkeeper_core::pattern::Pattern;
use lockkeeper_platform::wall_clock::WallTime;
use serde::{Deserialize, Serialize};

/// A line of the conflict log.
///
/// The format has the first seven fields. The last two are additions, and are left out if no rule matched. Programs that
/// read fields by name, like jq, ignore them. This reader requires only the groups and the type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// The time, in whole seconds: `2025-10-09T10:30:00Z`.
    #[serde(default)]
    pub timestamp: String,
    /// The phase.
    #[serde(default)]
    pub phase: String,
    /// The first group.
    pub group1: String,
    /// The second group.
    pub group2: String,
    /// The relation of the paths: EXACT, PARENT_CHILD, OVERLAP or SAME_DIR.
    pub conflict_type: String,
    /// The path of the first group.
    #[serde(default)]
    pub path1: String,
    /// The path of the second group.
    #[serde(default)]
    pub path2: String,
    /// The rule that matched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The action of the rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
}

/// The log lines for the findings of a phase.
///
/// For groups with files in the same folder, each group but the first gets one line, with one other group.
pub fn lines(phase: &str, groups: &[Group], rules: &[Rule], findings: &Findings, at: WallTime) -> Vec<Line> {
    let timestamp = in_seconds(at);
    let line = |(group1, path1): (usize, &Pattern),
                (group2, path2): (usize, &Pattern),
                kind: Relation,
                ruling: Option<&Ruling>| Line {
        timestamp: timestamp.clone(),
        phase: phase.to_owned(),
        group1: groups[group1].id.clone(),
        group2: groups[group2].id.clone(),
        conflict_type: kind.to_string(),
        path1: path1.to_string(),
        path2: path2.to_string(),
        rule: ruling.and_then(|ruling| ruling.rule).map(|place| rules[place].name.clone()),
        action: ruling.map(|ruling| ruling.action.to_string()),
    };
    let conflicts = findings.conflicts.iter().map(|found| {
        line((found.group1, &found.path1), (found.group2, &found.path2), found.kind, Some(&found.ruling))
    });
    let neighbours = findings.same_dir.iter().flat_map(|found| {
        neighbour_pairs(groups, found)
            .map(|(one, other)| line(one, other, Relation::SameDir, found.ruling.as_ref()))
    });
    conflicts.chain(neighbours).collect()
}

type Claim<'a> = (usize, &'a Pattern);

/// Pairs each group but the first with another group that has a file in the same folder.
fn neighbour_pairs<'a>(
    groups: &'a [Group],
    found: &'a SameDir,
) -> impl Iterator<Item = (Claim<'a>, Claim<'a>)> {
    let inside = move |group: usize| {
        let folder = if found.folder == "." { "" } else { &found.folder };
        groups[group].paths.iter().filter(move |path| path.parent() == folder).map(move |path| (group, path))
    };
    let pair = move |one: usize, other: usize| {
        inside(one)
            .flat_map(|a| inside(other).map(move |b| (a, b)))
            .find(|((_, a), (_, b))| relate(a, b).relation == Relation::SameDir)
    };
    found.groups.iter().enumerate().skip(1).filter_map(move |(place, group)| {
        let before = found.groups[..place].iter().find_map(|other| pair(*other, *group));
        before.or_else(|| found.groups[place + 1..].iter().find_map(|other| pair(*group, *other)))
    })
}

/// A time without fractions of a second, as the format has it.
fn in_seconds(at: WallTime) -> String {
    let text = at.to_string();
    text.split_once('.').map_or_else(|| text.clone(), |(seconds, _)| format!("{seconds}Z"))
}

#[cfg(test)]
mod tests {
    use lockkeeper_core::conflict::{Action, Severity, detect};

    use super::*;

    fn group(id: &str, paths: &[&str]) -> Group {
        Group { id: id.to_owned(), paths: paths.iter().map(|path| path.parse().unwrap()).collect() }
    }

    fn logged(groups: &[Group], rules: &[Rule]) -> Vec<String> {
        let findings = detect(groups, rules, Action::DowngradeToSerial);
        let at: WallTime = "2025-10-09T10:30:00.25Z".parse().unwrap();
        let written = lines("P3", groups, rules, &findings, at);
        written.iter().map(|line| serde_json::to_string(line).unwrap()).collect()
    }

    /// Requirement 135.
    #[test]
    fn a_line_has_the_fields_of_the_format_in_their_order() {
        let groups =
            [group("impl-backend", &["src/api/users.ts"]), group("impl-frontend", &["src/api/posts.ts"])];
        assert_eq!(
            logged(&groups, &[]),
            [
                r#"{"timestamp":"2025-10-09T10:30:00Z","phase":"P3","group1":"impl-backend","group2":"impl-frontend","conflict_type":"SAME_DIR","path1":"src/api/users.ts","path2":"src/api/posts.ts"}"#
            ]
        );
    }

    /// Requirement 135.
    #[test]
    fn a_conflict_says_which_rule_counted() {
        let rule = Rule {
            name: "shared".to_owned(),
            severity: Severity::Fatal,
            action: Action::MutexLock,
            priority: Rule::DEFAULT_PRIORITY,
            paths: vec!["package.json".parse().unwrap()],
        };
        let groups = [group("a", &["package.json"]), group("b", &["*.json"])];
        let line: Line = serde_json::from_str(&logged(&groups, &[rule])[0]).unwrap();
        assert_eq!((line.rule.as_deref(), line.action.as_deref()), (Some("shared"), Some("mutex_lock")));
        assert_eq!((line.conflict_type.as_str(), line.path2.as_str()), ("OVERLAP", "*.json"));
    }

    #[test]
    fn neighbours_take_a_line_for_each_group_but_the_first() {
        let names: Vec<String> = (0..20).map(|number| format!("src/{number}.rs")).collect();
        let groups: Vec<Group> = names.iter().map(|name| group(name, &[name])).collect();
        assert_eq!(logged(&groups, &[]).len(), 19);
        let groups = [group("a", &["x/a*"]), group("b", &["x/ab"]), group("c", &["x/c"])];
        let all = logged(&groups, &[]);
        assert_eq!(all.len(), 3, "the conflict of a and b, and both beside c");
        assert!(all[1].contains(r#""path1":"x/ab","path2":"x/c""#), "{all:?}");
    }
}
