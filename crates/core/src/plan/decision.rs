//! Which mode, about what, and why.

use super::{Load, Mode, Question, Scope};
use crate::conflict::{Action, Conflict, Ruling, SameDir, Strategy};

/// The mode of a phase, with the sentence that explains it.
pub(super) struct Decision {
    pub(super) mode: Mode,
    pub(super) scope: Scope,
    pub(super) reason: String,
}

/// Tries the rules in their order.
pub(super) fn decide(question: &Question<'_>) -> Decision {
    let whole = |mode, reason: String| Decision { mode, scope: Scope::Phase, reason };
    match question.groups {
        [] => {
            return whole(Mode::Direct, "the phase has no groups, so there is nothing to arrange".to_owned());
        }
        [only] => return whole(Mode::Direct, format!("`{}` is the only group: it runs directly", only.id)),
        _ => {}
    }
    let verdicts = verdicts(question);
    let strictest = verdicts.first();
    if let Some(verdict) = strictest.filter(|verdict| verdict.mode == Mode::Abort) {
        return verdict.decision(verdicts.len());
    }
    if let Some(verdict) =
        strictest.filter(|verdict| (verdict.mode, verdict.scope) == (Mode::Serial, Scope::Phase))
    {
        return verdict.decision(verdicts.len());
    }
    if let Some(reason) = asked_for_serial(question) {
        return whole(Mode::Serial, reason);
    }
    if let Some(verdict) = strictest {
        return verdict.decision(verdicts.len());
    }
    let count = question.groups.len();
    match question.load {
        Some(load) if load.is_high() => whole(
            Mode::Serial,
            format!("{}: the {count} groups run one after the other", told(load, "is above")),
        ),
        Some(load) => {
            let load = told(load, "is not above");
            whole(Mode::Parallel, format!("no two of the {count} groups conflict, and {load}"))
        }
        None => whole(Mode::Parallel, format!("no two of the {count} groups conflict")),
    }
}

fn told(load: Load, relation: &str) -> String {
    let per_core = if load.cores.get() > 1 { " per core" } else { "" };
    format!("the load of {:.2}{per_core} {relation} {}", load.value(), load.limit)
}

fn asked_for_serial(question: &Question<'_>) -> Option<String> {
    if !question.can_parallel {
        return Some("the phase says can_parallel: false, so its groups run one after the other".to_owned());
    }
    let group = question.groups.iter().find(|group| !group.can_parallel)?;
    Some(format!("`{}` says can_parallel: false, so the groups run one after the other", group.id))
}

/// What one conflict leads to.
struct Verdict {
    mode: Mode,
    scope: Scope,
    reason: String,
}

impl Verdict {
    fn decision(&self, all: usize) -> Decision {
        let more = match all {
            0 | 1 => String::new(),
            2 => " (1 more conflict)".to_owned(),
            _ => format!(" ({} more conflicts)", all - 1),
        };
        Decision { mode: self.mode, scope: self.scope, reason: format!("{}{more}", self.reason) }
    }
}

/// What the conflicts lead to, the strictest first.
fn verdicts(question: &Question<'_>) -> Vec<Verdict> {
    let findings = question.findings;
    let of_conflicts = findings.conflicts.iter().map(|conflict| {
        let meeting = meeting(question, conflict);
        (conflict.ruling, meeting, 2)
    });
    let of_folders = findings.same_dir.iter().filter_map(|folder| {
        let ruling = folder.ruling?;
        Some((ruling, neighbours(question, folder), folder.groups.len()))
    });
    let mut verdicts: Vec<(Strategy, Verdict)> = of_conflicts
        .chain(of_folders)
        .map(|(ruling, what, count)| (ruling.action.strategy(), verdict(question, ruling, &what, count)))
        .collect();
    // Of equally strict ones that which is about the whole phase, then the first.
    verdicts
        .sort_by_key(|(strategy, verdict)| (std::cmp::Reverse(*strategy), verdict.scope == Scope::Conflicts));
    verdicts.into_iter().map(|(_, verdict)| verdict).collect()
}

fn verdict(question: &Question<'_>, ruling: Ruling, what: &str, count: usize) -> Verdict {
    let who = match ruling.rule.and_then(|place| question.rules.get(place)) {
        Some(rule) => format!("rule `{}` ({})", rule.name, ruling.severity),
        None => "no rule covers that, so the default".to_owned(),
    };
    let them = if count == 2 { "the two" } else { "them" };
    let (mode, scope, then) = match (ruling.action, ruling.rule) {
        (Action::Abort, _) => (Mode::Abort, Scope::Phase, "lets nothing run".to_owned()),
        (Action::DowngradeToSerial, Some(_)) => {
            (Mode::Serial, Scope::Phase, "makes all groups of the phase run one after the other".to_owned())
        }
        (Action::DowngradeToSerial, None) | (Action::SerializeOperations, _) => {
            (Mode::Serial, Scope::Conflicts, format!("makes {them} run one after the other"))
        }
        (Action::MutexLock, _) => {
            (Mode::Mutex, Scope::Conflicts, format!("lets one of {them} run at a time"))
        }
        (Action::QueueExecution, _) => {
            (Mode::Queue, Scope::Conflicts, format!("puts {them} in line, in the order of the file"))
        }
    };
    Verdict { mode, scope, reason: format!("{what}: {who} {then}") }
}

fn meeting(question: &Question<'_>, conflict: &Conflict) -> String {
    let id = |place: usize| question.groups.get(place).map_or("?", |group| group.id.as_str());
    format!("`{}` and `{}` both match `{}`", id(conflict.group1), id(conflict.group2), conflict.witness)
}

fn neighbours(question: &Question<'_>, folder: &SameDir) -> String {
    let ids: Vec<String> = folder
        .groups
        .iter()
        .filter_map(|place| question.groups.get(*place))
        .map(|group| format!("`{}`", group.id))
        .collect();
    format!("{} stand in the folder `{}`", ids.join(", "), folder.folder)
}
