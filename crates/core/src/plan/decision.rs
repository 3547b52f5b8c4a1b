//! Which mode, about what, and why.

use std::cmp::Reverse;

use super::{Load, Mode, Question, Scope};
use crate::conflict::{Action, Ruling};

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
    let verdict = strictest(question);
    let asked = asked_for_serial(question).map(|reason| whole(Mode::Serial, reason));
    match (verdict, asked) {
        // What a rule says of the whole phase says more than that somebody wants to be alone.
        (Some(verdict), None) => return verdict.decision(question),
        (Some(verdict), Some(_)) if verdict.scope == Scope::Phase => return verdict.decision(question),
        (Some(_) | None, Some(asked)) => return asked,
        (None, None) => {}
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

/// What one conflict, or one folder that groups share, leads to.
struct Verdict {
    mode: Mode,
    scope: Scope,
    ruling: Ruling,
    subject: Subject,
}

/// The place of a conflict, or of a shared folder, among the findings.
enum Subject {
    Conflict(usize),
    Folder(usize),
}

/// The strictest of all; of equally strict ones that which is about the whole phase, then the first.
fn strictest(question: &Question<'_>) -> Option<Verdict> {
    let findings = question.findings;
    let conflicts = findings.conflicts.iter().enumerate();
    let of_conflicts =
        conflicts.map(|(place, conflict)| Verdict::new(conflict.ruling, Subject::Conflict(place)));
    let folders = findings.same_dir.iter().enumerate();
    let of_folders =
        folders.filter_map(|(place, folder)| Some(Verdict::new(folder.ruling?, Subject::Folder(place))));
    of_conflicts
        .chain(of_folders)
        .min_by_key(|verdict| (Reverse(verdict.ruling.action.strategy()), verdict.scope == Scope::Conflicts))
}

impl Verdict {
    fn new(ruling: Ruling, subject: Subject) -> Self {
        let (mode, scope) = match (ruling.action, ruling.rule) {
            (Action::Abort, _) => (Mode::Abort, Scope::Phase),
            (Action::DowngradeToSerial, Some(_)) => (Mode::Serial, Scope::Phase),
            (Action::DowngradeToSerial, None) | (Action::SerializeOperations, _) => {
                (Mode::Serial, Scope::Conflicts)
            }
            (Action::MutexLock, _) => (Mode::Mutex, Scope::Conflicts),
            (Action::QueueExecution, _) => (Mode::Queue, Scope::Conflicts),
        };
        Self { mode, scope, ruling, subject }
    }

    fn decision(&self, question: &Question<'_>) -> Decision {
        let (what, count) = self.told(question);
        let who = match self.ruling.rule.and_then(|place| question.rules.get(place)) {
            Some(rule) => format!("rule `{}` ({})", rule.name, self.ruling.severity),
            None => "no rule covers that, so the default".to_owned(),
        };
        let them = if count == 2 { "the two" } else { "them" };
        let then = match (self.ruling.action, self.scope) {
            (Action::Abort, _) => "lets nothing run".to_owned(),
            (Action::DowngradeToSerial | Action::SerializeOperations, Scope::Phase) => {
                "makes all groups of the phase run one after the other".to_owned()
            }
            (Action::DowngradeToSerial | Action::SerializeOperations, Scope::Conflicts) => {
                format!("makes {them} run one after the other")
            }
            (Action::MutexLock, _) => format!("lets one of {them} run at a time"),
            (Action::QueueExecution, _) => format!("puts {them} in line, in the order of the file"),
        };
        let ruled = question.findings.same_dir.iter().filter(|folder| folder.ruling.is_some()).count();
        let more = match question.findings.conflicts.len() + ruled {
            0 | 1 => String::new(),
            2 => " (1 more conflict)".to_owned(),
            all => format!(" ({} more conflicts)", all - 1),
        };
        Decision { mode: self.mode, scope: self.scope, reason: format!("{what}: {who} {then}{more}") }
    }

    /// What was found, and between how many groups.
    fn told(&self, question: &Question<'_>) -> (String, usize) {
        let id = |place: usize| question.groups.get(place).map_or("?", |group| group.id.as_str());
        match self.subject {
            Subject::Conflict(place) => {
                let conflict = &question.findings.conflicts[place];
                let (a, b) = (id(conflict.group1), id(conflict.group2));
                (format!("`{a}` and `{b}` both match `{}`", conflict.witness), 2)
            }
            Subject::Folder(place) => {
                let folder = &question.findings.same_dir[place];
                let ids: Vec<String> =
                    folder.groups.iter().map(|group| format!("`{}`", id(*group))).collect();
                (format!("{} stand in the folder `{}`", ids.join(", "), folder.folder), ids.len())
            }
        }
    }
}
