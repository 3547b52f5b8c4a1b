//! Output of predictions with their evidence, as text and as JSON.

use lockkeeper_engine::predict::{Group, GroupOutlook, Learned, Outlook, PredictedPath};
use serde_json::{Value, json};

use super::declared::UNNAMED;
use crate::cli::print;
use crate::cli::table::plain;

/// The result as one JSON object.
pub(super) fn json(groups: &[Group], outlook: &Outlook) -> Value {
    let predicted = groups.iter().zip(&outlook.groups).map(|(group, outlook)| {
        json!({
            "group": group.name,
            "patterns": group.patterns.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "commits": outlook.commits,
            "predictions": outlook.predicted.iter().map(|found| prediction(group, found)).collect::<Vec<_>>(),
            "more": outlook.more,
            "suggestions": outlook.suggestions,
        })
    });
    let collisions = outlook.conflicts.iter().map(|conflict| {
        let collision = &conflict.collision;
        json!({
            "a": groups[collision.a].name,
            "b": groups[collision.b].name,
            "path": conflict.path,
            "likelihood": rounded(collision.likelihood()),
            "a_likelihood": collision.a_likelihood.map(rounded),
            "b_likelihood": collision.b_likelihood.map(rounded),
        })
    });
    let overlaps = outlook
        .overlaps
        .iter()
        .map(|(a, b, witness)| json!({ "a": groups[*a].name, "b": groups[*b].name, "witness": witness }));
    json!({
        "learned": learned(&outlook.learned),
        "groups": predicted.collect::<Vec<_>>(),
        "collisions": collisions.collect::<Vec<_>>(),
        "more_collisions": outlook.more_conflicts,
        "overlaps": overlaps.collect::<Vec<_>>(),
    })
}

/// The commits behind a prediction, as JSON.
pub(super) fn learned(learned: &Learned) -> Value {
    json!({
        "commits": learned.commits,
        "left_out": learned.left_out,
        "paths": learned.paths,
        "shallow": learned.shallow,
    })
}

fn prediction(group: &Group, found: &PredictedPath) -> Value {
    let (numbers, partner) = (&found.prediction, &found.prediction.partner);
    let evidence =
        found.evidence.iter().map(|commit| json!({ "commit": commit.short, "subject": commit.subject }));
    json!({
        "path": found.path,
        "likelihood": rounded(numbers.likelihood),
        "pattern": group.patterns[numbers.pattern].as_str(),
        "commits": numbers.together,
        "of": numbers.of,
        "goes_with": {
            "path": found.goes_with,
            "likelihood": rounded(partner.likelihood),
            "commits": partner.together,
            "of": partner.of,
        },
        "commits_anywhere": numbers.anywhere,
        "evidence": evidence.collect::<Vec<_>>(),
    })
}

/// Prints the result as text: predictions on stdout, advice on stderr.
pub(super) fn text(groups: &[Group], outlook: &Outlook) {
    for (group, predicted) in groups.iter().zip(&outlook.groups) {
        if groups.len() > 1 || group.name != UNNAMED {
            print::data(&format!("{}:", plain(&group.name)));
        }
        for found in &predicted.predicted {
            print::data(&lines(group, found));
        }
        advise(group, predicted, outlook.learned.commits);
    }
    if groups.len() > 1 {
        print_conflicts(groups, outlook);
    }
    if groups.is_empty() {
        print::talk("nobody holds paths now");
    }
}

/// A prediction in three lines.
fn lines(group: &Group, found: &PredictedPath) -> String {
    let (numbers, partner) = (&found.prediction, &found.prediction.partner);
    let pattern = &group.patterns[numbers.pattern];
    let mut text = format!(
        "{:>4}  {}\n      in {} of {} commits that touched {}",
        percent(numbers.likelihood),
        plain(&found.path),
        numbers.together,
        numbers.of,
        plain(pattern.as_str()),
    );
    if found.goes_with != pattern.as_str() {
        text.push_str(&format!(
            "; goes with {}: {} ({} of {})",
            plain(&found.goes_with),
            percent(partner.likelihood),
            partner.together,
            partner.of
        ));
    }
    let evidence: Vec<String> =
        found.evidence.iter().map(|commit| format!("{} {}", commit.short, plain(&commit.subject))).collect();
    if !evidence.is_empty() {
        text.push_str(&format!("\n      last: {}", evidence.join("; ")));
    }
    text
}

/// Prints what the user can do about the predictions of a group.
fn advise(group: &Group, outlook: &GroupOutlook, learned: usize) {
    let name = plain(&group.name);
    if outlook.predicted.is_empty() {
        let reason = match outlook.commits {
            0 => format!("none of {learned} commits touched its declared paths"),
            count => format!(
                "{count} of {learned} commits touched its declared paths, and no other path changed with them often enough"
            ),
        };
        print::talk(&format!("{name}: nothing is predicted: {reason}"));
        return;
    }
    if outlook.more > 0 {
        print::talk(&format!("{name}: {} more are less likely: --limit shows them", outlook.more));
    }
    let patterns: Vec<String> = outlook.suggestions.iter().map(|pattern| quoted(&plain(pattern))).collect();
    print::talk(&format!("{name}: to declare them too, add {}", patterns.join(" ")));
}

fn print_conflicts(groups: &[Group], outlook: &Outlook) {
    let name = |group: usize| plain(&groups[group].name);
    for (a, b, witness) in &outlook.overlaps {
        let (a, b, path) = (name(*a), name(*b), plain(witness));
        print::data(&format!("{a} and {b} overlap already: both declare {path}"));
    }
    for conflict in &outlook.conflicts {
        let (collision, path) = (&conflict.collision, plain(&conflict.path));
        let (a, b) = (name(collision.a), name(collision.b));
        print::data(&match (collision.a_likelihood, collision.b_likelihood) {
            (Some(one), Some(other)) => {
                format!("{a} and {b} may both touch {path}: {a} {}, {b} {}", percent(one), percent(other))
            }
            (Some(one), None) => format!("{a} may touch {path}, which {b} declares: {}", percent(one)),
            (None, Some(other)) => format!("{b} may touch {path}, which {a} declares: {}", percent(other)),
            (None, None) => format!("{a} and {b} declare {path}"),
        });
    }
    match (outlook.conflicts.len(), outlook.more_conflicts) {
        (0, _) => print::talk("no two groups will likely conflict outside of their declared paths"),
        (_, 0) => {}
        (_, more) => print::talk(&format!("{more} more conflicts are less likely: --limit shows them")),
    }
}

/// A pattern in shell quotes.
fn quoted(pattern: &str) -> String {
    format!("'{}'", pattern.replace('\'', r"'\''"))
}

pub(super) fn percent(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

/// Rounds to four digits, which is more than the precision of the numbers.
pub(super) fn rounded(share: f64) -> f64 {
    (share * 10_000.0).round() / 10_000.0
}
