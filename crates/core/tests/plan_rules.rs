//! Which mode a phase runs in, and the sentence that says why.

use std::num::NonZeroUsize;
use std::time::Duration;

use lockkeeper_core::conflict::{Action, Findings, Group, Rule, Severity, detect};
use lockkeeper_core::plan::{
    Cause, Cycle, Dependency, Load, Member, Mode, Plan, PlanInput, Scope, find_cycle, plan,
};

/// Builder of a phase.
struct Phase {
    members: Vec<Member>,
    groups: Vec<Group>,
    rules: Vec<Rule>,
    dependencies: Vec<Dependency>,
    default: Action,
    load: Option<Load>,
    slots: Option<NonZeroUsize>,
    can_parallel: bool,
}

fn phase(groups: &[(&str, &[&str])]) -> Phase {
    let member =
        |id: &str| Member { id: id.to_owned(), estimate: Duration::from_secs(60), can_parallel: true };
    let paths = |texts: &[&str]| texts.iter().map(|text| text.parse().expect("a pattern")).collect();
    Phase {
        members: groups.iter().map(|(id, _)| member(id)).collect(),
        groups: groups
            .iter()
            .map(|(id, texts)| Group { id: (*id).to_owned(), paths: paths(texts) })
            .collect(),
        rules: Vec::new(),
        dependencies: Vec::new(),
        default: Action::DowngradeToSerial,
        load: None,
        slots: None,
        can_parallel: true,
    }
}

impl Phase {
    fn rule(mut self, name: &str, action: Action, path: &str) -> Self {
        self.rules.push(Rule {
            name: name.to_owned(),
            severity: Severity::Fatal,
            action,
            priority: Rule::DEFAULT_PRIORITY,
            paths: vec![path.parse().expect("a pattern")],
        });
        self
    }

    fn after(mut self, target: usize, source: usize) -> Self {
        self.dependencies.push(Dependency { source, target, completion: true });
        self
    }

    fn load(mut self, average: f64, cores: usize) -> Self {
        let cores = NonZeroUsize::new(cores).expect("a core");
        self.load = Some(Load { average, limit: Load::LIMIT, cores });
        self
    }

    fn findings(&self) -> Findings {
        detect(&self.groups, &self.rules, self.default)
    }

    fn plan(&self) -> Plan {
        let findings = self.findings();
        let question = PlanInput {
            groups: &self.members,
            dependencies: &self.dependencies,
            findings: &findings,
            rules: &self.rules,
            load: self.load,
            slots: self.slots,
            can_parallel: self.can_parallel,
        };
        plan(&question).expect("there is no cycle")
    }

    /// Mode, waves as `a c | b`, and reason.
    fn summary(&self) -> (Mode, String, String) {
        let plan = self.plan();
        let id = |place: &usize| self.members[*place].id.as_str();
        let wave = |wave: &Vec<usize>| wave.iter().map(id).collect::<Vec<_>>().join(" ");
        let waves = plan.waves.iter().map(wave).collect::<Vec<_>>().join(" | ");
        (plan.mode, waves, plan.reason)
    }
}

const APART: [(&str, &[&str]); 3] = [("a", &["a/**"]), ("b", &["b/**"]), ("c", &["c/**"])];
const TWO_OVERLAP: [(&str, &[&str]); 3] = [("a", &["x/**"]), ("b", &["x/1.ts"]), ("c", &["c/**"])];

/// Requirement 127.
#[test]
fn one_group_runs_directly_whatever_the_load() {
    let (mode, waves, reason) = phase(&[("only", &["**"])]).load(99.0, 1).summary();
    assert_eq!((mode, waves.as_str()), (Mode::Direct, "only"));
    assert_eq!(reason, "`only` is the only group: it runs directly");
    let (mode, waves, _) = phase(&[]).summary();
    assert_eq!((mode, waves.as_str()), (Mode::Direct, ""));
}

/// Requirements 125, 130.
#[test]
fn groups_that_never_overlap_run_side_by_side() {
    let backend: &[&str] = &["src/backend/**", "src/api/**", "migrations/**"];
    let phase =
        phase(&[("impl-backend", backend), ("impl-frontend", &["src/frontend/**", "src/components/**"])]);
    let (mode, waves, reason) = phase.load(4.0, 1).summary();
    assert_eq!((mode, waves.as_str()), (Mode::Parallel, "impl-backend impl-frontend"));
    assert_eq!(reason, "no two of the 2 groups conflict, and the load of 4.00 is not above 4");
}

/// Requirements 124, 128.
#[test]
fn each_action_leads_to_its_mode() {
    let with = |action| phase(&TWO_OVERLAP).rule("r", action, "**/*.ts");
    let (mode, waves, reason) = with(Action::DowngradeToSerial).summary();
    assert_eq!((mode, waves.as_str()), (Mode::Serial, "a | b | c"));
    assert_eq!(
        reason,
        "`a` and `b` both match `x/1.ts`: rule `r` (FATAL) makes all groups of the phase run one after the other"
    );
    let (mode, waves, reason) = with(Action::MutexLock).summary();
    assert_eq!((mode, waves.as_str()), (Mode::Mutex, "a c | b"));
    assert_eq!(reason, "`a` and `b` both match `x/1.ts`: rule `r` (FATAL) lets one of the two run at a time");
    let (mode, waves, reason) = with(Action::QueueExecution).summary();
    assert_eq!((mode, waves.as_str()), (Mode::Queue, "a c | b"));
    assert!(reason.ends_with("rule `r` (FATAL) puts the two in line, in the order of the file"), "{reason}");
    let (mode, waves, _) = with(Action::SerializeOperations).summary();
    assert_eq!((mode, waves.as_str()), (Mode::Serial, "a c | b"));
    let (mode, waves, reason) = with(Action::Abort).summary();
    assert_eq!((mode, waves.as_str()), (Mode::Abort, ""));
    assert!(reason.ends_with("rule `r` (FATAL) lets nothing run"), "{reason}");
}

/// Requirement 128.
#[test]
fn where_no_rule_covers_a_conflict_only_those_two_take_turns() {
    let plan = phase(&TWO_OVERLAP).plan();
    assert_eq!((plan.mode, plan.scope), (Mode::Serial, Scope::Conflicts));
    assert_eq!(plan.waves, [vec![0, 2], vec![1]]);
    assert_eq!(
        plan.reason,
        "`a` and `b` both match `x/1.ts`: no rule covers that, so the default makes the two run one after the other"
    );
    let by_default = Phase { default: Action::Abort, ..phase(&TWO_OVERLAP) };
    assert_eq!(by_default.plan().mode, Mode::Abort);
}

#[test]
fn of_several_conflicts_the_strictest_names_the_mode_and_each_keeps_its_own_action() {
    let groups: [(&str, &[&str]); 4] = [("a", &["q", "m"]), ("b", &["q"]), ("c", &["m"]), ("d", &["d"])];
    let phase =
        phase(&groups).rule("queue", Action::QueueExecution, "q").rule("mutex", Action::MutexLock, "m");
    let plan = phase.plan();
    assert_eq!(plan.mode, Mode::Mutex);
    assert!(plan.reason.ends_with("(1 more conflict)"), "{}", plan.reason);
    assert!(
        matches!(plan.steps[1].after.as_slice(), [bond] if bond.group == 0 && matches!(bond.cause, Cause::Conflict(_)))
    );
    assert!(matches!(plan.steps[2].excludes.as_slice(), [bond] if bond.group == 0));
    assert_eq!(plan.waves, [vec![0, 3], vec![1, 2]]);
}

/// Requirement 133.
#[test]
fn a_group_or_phase_with_can_parallel_false_makes_the_phase_serial() {
    let mut alone = phase(&APART);
    alone.members[1].can_parallel = false;
    let (mode, waves, reason) = alone.summary();
    assert_eq!((mode, waves.as_str()), (Mode::Serial, "a | b | c"));
    assert_eq!(reason, "`b` says can_parallel: false, so the groups run one after the other");
    let whole = Phase { can_parallel: false, ..phase(&APART) };
    assert_eq!((whole.plan().mode, whole.plan().scope), (Mode::Serial, Scope::Phase));
    // A lock between two of them is not enough then.
    let mut both = phase(&TWO_OVERLAP).rule("r", Action::MutexLock, "x/**");
    both.members[2].can_parallel = false;
    assert_eq!(both.plan().mode, Mode::Serial);
    let mut refused = phase(&TWO_OVERLAP).rule("r", Action::Abort, "x/**");
    refused.members[2].can_parallel = false;
    assert_eq!(refused.plan().mode, Mode::Abort);
}

/// Requirements 129, 130.
#[test]
fn a_load_above_the_limit_makes_the_phase_serial_and_exactly_the_limit_does_not() {
    let mode = |average, cores| phase(&APART).load(average, cores).plan().mode;
    assert_eq!(mode(4.0, 1), Mode::Parallel);
    assert_eq!(mode(4.001, 1), Mode::Serial);
    assert_eq!(mode(32.0, 8), Mode::Parallel, "per core");
    assert_eq!(mode(32.1, 8), Mode::Serial, "per core");
    let (_, waves, reason) = phase(&APART).load(5.25, 1).summary();
    assert_eq!(waves, "a | b | c");
    assert_eq!(reason, "the load of 5.25 is above 4: the 3 groups run one after the other");
    // The rules are tried in order: a conflict counts before the load.
    let meeting = phase(&TWO_OVERLAP).rule("r", Action::MutexLock, "x/**").load(99.0, 1);
    assert_eq!(meeting.plan().mode, Mode::Mutex);
}

/// Requirement 118.
#[test]
fn neighbours_in_a_folder_wait_only_when_a_rule_covers_it() {
    let groups: [(&str, &[&str]); 3] = [("a", &["m/1.sql"]), ("b", &["m/2.sql"]), ("c", &["m/3.sql"])];
    assert_eq!(phase(&groups).plan().mode, Mode::Parallel);
    let (mode, waves, reason) = phase(&groups).rule("order", Action::QueueExecution, "m/**").summary();
    assert_eq!((mode, waves.as_str()), (Mode::Queue, "a | b | c"));
    assert!(reason.starts_with("`a`, `b`, `c` stand in the folder `m`: rule `order`"), "{reason}");
    let (mode, waves, _) = phase(&groups).rule("one", Action::MutexLock, "m/**").summary();
    assert_eq!((mode, waves.as_str()), (Mode::Mutex, "a | b | c"));
}

/// Requirement 160.
#[test]
fn dependencies_order_groups_and_turns_follow_them() {
    let (mode, waves, _) = phase(&APART).after(0, 2).summary();
    assert_eq!((mode, waves.as_str()), (Mode::Parallel, "b c | a"));
    // In the file `a` comes before `b`, but `a` waits for `b`: the queue does not close a cycle.
    let queued = phase(&TWO_OVERLAP).rule("r", Action::QueueExecution, "x/**").after(0, 1);
    assert_eq!(queued.summary().1, "b c | a");
    let mut begun = phase(&APART).after(2, 0);
    begun.dependencies[0].completion = false;
    let plan = begun.plan();
    assert_eq!(plan.waves, [vec![0, 1, 2]]);
    assert_eq!(plan.steps[2].after[0].cause, Cause::Beginning);
}

/// Requirement 205.
#[test]
fn a_cycle_is_shown_completely() {
    let edge = |source, target| Dependency { source, target, completion: true };
    let edges = [edge(0, 1), edge(1, 2), edge(2, 3), edge(3, 1), edge(0, 4)];
    assert_eq!(find_cycle(5, &edges), Some(Cycle(vec![1, 2, 3])));
    assert_eq!(find_cycle(2, &[edge(1, 1)]), Some(Cycle(vec![1])));
    assert_eq!(find_cycle(5, &edges[..3]), None);
}

#[test]
fn slots_limit_how_many_run_at_a_time() {
    let narrow = Phase { slots: NonZeroUsize::new(2), ..phase(&APART) };
    let plan = narrow.plan();
    assert_eq!(plan.waves, [vec![0, 1], vec![2]]);
    assert_eq!((plan.length, plan.bound), (Duration::from_secs(120), Duration::from_secs(90)));
}

#[test]
fn the_longest_path_goes_first() {
    let mut phase = phase(&[("short", &["a"]), ("early", &["b"]), ("late", &["c"])]).after(2, 1);
    phase.slots = NonZeroUsize::new(1);
    phase.members[0].estimate = Duration::from_secs(50);
    let two = Phase { slots: NonZeroUsize::new(2), ..phase };
    assert_eq!(two.plan().length, Duration::from_secs(120));
    assert_eq!(two.plan().steps[1].begins, Duration::ZERO);
}

#[test]
fn endless_estimates_do_not_overflow() {
    let mut phase = phase(&TWO_OVERLAP).after(2, 1);
    phase.members.iter_mut().for_each(|member| member.estimate = Duration::MAX);
    assert_eq!(phase.plan().waves.len(), 3);
    phase.members.iter_mut().for_each(|member| member.estimate = Duration::ZERO);
    assert_eq!(phase.plan().waves.len(), 3);
}
