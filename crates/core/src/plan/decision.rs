//! Decision of the mode, its scope and its reason.

use std::cmp::Reverse;

use super::{Load, Mode, PlanInput, Scope};
use crate::conflict::{Action, Ruling};

/// The mode of a phase, with the sentence that explains it.
pub(super) struct Decision {
    pub(super) mode: Mode,
    pub(super) scope: Scope,
    pub(super) reason: String,
}

/// Decides by the first case that applies.
pub(super) fn decide(input: &PlanInput<'_>) -> Decision {
    let whole = |mode, reason: String| Decision { mode, scope: Scope::Phase, reason };
    match input.groups {
        [] => {
            return whole(Mode::Direct, "the phase has no groups, so there is nothing to arrange".to_owned());
        }
        [only] => return whole(Mode::Direct, format!("`{}` is the only group: it runs directly", only.id)),
        _ => {}
    }
    let verdict = strictest(input);
    let asked = asked_for_serial(input).map(|reason| whole(Mode::Serial, reason));
    match (verdict, asked) {
        // A rule about the whole phase is a better reason than `can_parallel: false`.
        (Some(verdict), None) => return verdict.decision(input),
        (Some(verdict), Some(_)) if verdict.scope == Scope::Phase => return verdict.decision(input),
        (Some(_) | None, Some(asked)) => return asked,
        (None, None) => {}
    }
    let count = input.groups.len();
    match input.load {
        Some(load) if load.is_high() => whole(
            Mode::Serial,
            format!("{}: the {count} groups run one after the other", describe_load(load, "is above")),
        ),
        Some(load) => {
            let load = describe_load(load, "is not above");
            whole(Mode::Parallel, format!("no two of the {count} groups conflict, and {load}"))
        }
        None => whole(Mode::Parallel, format!("no two of the {count} groups conflict")),
    }
}

fn describe_load(load: Load, relation: &str) -> String {
    let per_core = if load.cores.get() > 1 { " per core" } else { "" };
    format!("the load of {:.2}{per_core} {relation} {}", load.value(), load.limit)
}

fn asked_for_serial(input: &PlanInput<'_>) -> Option<String> {
    if !input.can_parallel {
        return Some("the phase says can_parallel: false, so its groups run one after the other".to_owned());
    }
    let group = input.groups.iter().find(|group| !group.can_parallel)?;
    Some(format!("`{}` says can_parallel: false, so the groups run one after the other", group.id))
}

/// The mode that follows from one conflict, or from one shared folder.
struct Verdict {
    mode: Mode,
    scope: Scope,
    ruling: Ruling,
    subject: Subject,
}

/// The index of a conflict, or of a shared folder, in the findings.
enum Subject {
    Conflict(usize),
    Folder(usize),
}

/// Returns the strictest verdict. Of equally strict ones, a verdict about the whole phase comes first.
fn strictest(input: &PlanInput<'_>) -> Option<Verdict> {
    let findings = input.findings;
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

    fn decision(&self, input: &PlanInput<'_>) -> Decision {
        let (what, count) = self.describe_conflict(input);
        let who = match self.ruling.rule.and_then(|place| input.rules.get(place)) {
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
        let ruled = input.findings.same_dir.iter().filter(|folder| folder.ruling.is_some()).count();
        let more = match input.findings.conflicts.len() + ruled {
            0 | 1 => String::new(),
            2 => " (1 more conflict)".to_owned(),
            all => format!(" ({} more conflicts)", all - 1),
        };
        Decision { mode: self.mode, scope: self.scope, reason: format!("{what}: {who} {then}{more}") }
    }

    /// Describes the conflict, and returns the number of its groups.
    fn describe_conflict(&self, input: &PlanInput<'_>) -> (String, usize) {
        let id = |place: usize| input.groups.get(place).map_or("?", |group| group.id.as_str());
        match self.subject {
            Subject::Conflict(place) => {
                let conflict = &input.findings.conflicts[place];
                let (a, b) = (id(conflict.group1), id(conflict.group2));
                let do_what = if conflict.is_predicted { "probably change" } else { "match" };
                (format!("`{a}` and `{b}` both {do_what} `{}`", conflict.witness), 2)
            }
            Subject::Folder(place) => {
                let folder = &input.findings.same_dir[place];
                let ids: Vec<String> =
                    folder.groups.iter().map(|group| format!("`{}`", id(*group))).collect();
                (format!("{} stand in the folder `{}`", ids.join(", "), folder.folder), ids.len())
            }
        }
    }
}
