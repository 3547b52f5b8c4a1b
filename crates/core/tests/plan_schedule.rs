//! Plans compared with every possible order: they respect all constraints, and take hardly longer than the shortest one.
#![expect(clippy::disallowed_macros, reason = "core prints nothing, a test with a seed does")]

use std::num::NonZeroUsize;
use std::time::Duration;

use lockkeeper_core::conflict::{Action, Findings, Group, Rule, Severity, detect};
use lockkeeper_core::plan::{Cause, Dependency, Member, Mode, Plan, PlanInput, Progress, plan};

/// Seeded random numbers. docs/reference/stages.md has numbers that come from this generator.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }
}

/// A phase with random dependencies and conflicts between its groups.
struct Case {
    members: Vec<Member>,
    dependencies: Vec<Dependency>,
    findings: Findings,
    rules: Vec<Rule>,
    slots: Option<NonZeroUsize>,
}

impl Case {
    fn new(dice: &mut Dice, count: usize, actions: &[Action]) -> Self {
        let span = |dice: &mut Dice| Duration::from_secs(1 + dice.below(9));
        let members = (0..count)
            .map(|at| Member { id: format!("g{at}"), estimate: span(dice), can_parallel: true })
            .collect();
        let (edges, meets) = (5 + dice.below(25), 10 + dice.below(40));
        let (mut dependencies, mut paths) = (Vec::new(), vec![Vec::new(); count]);
        let mut shared = Vec::new();
        for target in 0..count {
            for source in 0..target {
                if dice.percent(edges) {
                    // Some go against the order of the file.
                    let (source, target) = if dice.percent(50) {
                        (source, target)
                    } else {
                        (count - 1 - source, count - 1 - target)
                    };
                    dependencies.push(Dependency { source, target, completion: dice.percent(80) });
                } else if dice.percent(meets) {
                    let path = format!("shared/{source}-{target}/{}", dice.below(actions.len() as u64));
                    paths[source].push(path.clone());
                    paths[target].push(path.clone());
                    shared.push(path);
                }
            }
        }
        // Dependencies in both directions may form a cycle.
        while plan(&question(&members_of(count), &dependencies, &Findings::default(), &[], None)).is_err() {
            dependencies.pop();
        }
        let groups: Vec<Group> = paths
            .iter()
            .enumerate()
            .map(|(at, texts)| Group {
                id: format!("g{at}"),
                paths: texts.iter().map(|text| text.parse().expect("a plain path")).collect(),
            })
            .collect();
        let rules: Vec<Rule> = actions
            .iter()
            .enumerate()
            .map(|(at, action)| Rule {
                name: format!("r{at}"),
                severity: Severity::Major,
                action: *action,
                priority: Rule::DEFAULT_PRIORITY,
                paths: vec![format!("shared/*/{at}").parse().expect("a pattern")],
            })
            .collect();
        let findings = detect(&groups, &rules, Action::MutexLock);
        let slots = dice.percent(50).then(|| NonZeroUsize::new(1 + dice.below(3) as usize)).flatten();
        Self { members, dependencies, findings, rules, slots }
    }

    fn plan(&self) -> Plan {
        plan(&question(&self.members, &self.dependencies, &self.findings, &self.rules, self.slots))
            .expect("there is no cycle")
    }
}

fn members_of(count: usize) -> Vec<Member> {
    (0..count)
        .map(|at| Member { id: at.to_string(), estimate: Duration::from_secs(1), can_parallel: true })
        .collect()
}

fn question<'a>(
    groups: &'a [Member],
    dependencies: &'a [Dependency],
    findings: &'a Findings,
    rules: &'a [Rule],
    slots: Option<NonZeroUsize>,
) -> PlanInput<'a> {
    PlanInput { groups, dependencies, findings, rules, load: None, slots, can_parallel: true }
}

/// The least length over all orders of the groups, each begun as early as the ones before it allow. Among these
/// schedules is a shortest one.
fn shortest_of_all(case: &Case, plan: &Plan) -> u64 {
    let spans: Vec<u64> = case.members.iter().map(|member| member.estimate.as_secs()).collect();
    let mut best = u64::MAX;
    let mut begins = vec![None; spans.len()];
    extend(plan, &spans, &mut begins, 0, &mut best);
    best
}

fn extend(plan: &Plan, spans: &[u64], begins: &mut Vec<Option<u64>>, length: u64, best: &mut u64) {
    if length >= *best {
        return;
    }
    if begins.iter().all(Option::is_some) {
        *best = length;
        return;
    }
    for group in 0..spans.len() {
        let placed = |other: usize| begins[other].is_some();
        if placed(group) || !plan.steps[group].after.iter().all(|bond| placed(bond.group)) {
            continue;
        }
        let begin = earliest(plan, spans, begins, group);
        begins[group] = Some(begin);
        extend(plan, spans, begins, length.max(begin + spans[group]), best);
        begins[group] = None;
    }
}

fn earliest(plan: &Plan, spans: &[u64], begins: &[Option<u64>], group: usize) -> u64 {
    let step = &plan.steps[group];
    let from = step.after.iter().filter_map(|bond| {
        let begin = begins[bond.group]?;
        Some(if bond.cause == Cause::Beginning { begin } else { begin + spans[bond.group] })
    });
    let mut begin = from.max().unwrap_or(0);
    loop {
        let end = begin + spans[group];
        let meets = |other: usize| begins[other].is_some_and(|at| at < end && begin < at + spans[other]);
        let excluded = step.excludes.iter().any(|bond| meets(bond.group));
        let most = (begin..end).map(|second| running(begins, spans, second)).max().unwrap_or(0);
        if !excluded && plan.slots.is_none_or(|slots| most < slots.get()) {
            return begin;
        }
        begin += 1;
    }
}

fn running(begins: &[Option<u64>], spans: &[u64], second: u64) -> usize {
    begins
        .iter()
        .zip(spans)
        .filter(|(begin, span)| begin.is_some_and(|at| at <= second && second < at + **span))
        .count()
}

/// When each group begins if the plan is followed and the estimates hold.
fn followed(case: &Case, plan: &Plan) -> Vec<Duration> {
    let mut progress = Progress::new(plan);
    let slots = plan.slots.map_or(usize::MAX, NonZeroUsize::get);
    let mut begins = vec![Duration::ZERO; case.members.len()];
    let mut running: Vec<(Duration, usize)> = Vec::new();
    let mut now = Duration::ZERO;
    loop {
        for group in progress.startable(slots) {
            progress.begin(group);
            begins[group] = now;
            running.push((now + case.members[group].estimate, group));
        }
        let Some(next) = running.iter().map(|(end, _)| *end).min() else { return begins };
        now = next;
        let ended: Vec<usize> =
            running.extract_if(.., |(end, _)| *end == now).map(|(_, group)| group).collect();
        for group in ended {
            progress.end(group, true);
        }
    }
}

/// Checks that the times and the waves of a plan respect all its constraints.
fn assert_kept(case: &Case, plan: &Plan) {
    let count = case.members.len();
    let wave = |group: usize| {
        plan.waves.iter().position(|wave| wave.contains(&group)).expect("every group is in a wave")
    };
    let mut order = plan.order.clone();
    order.sort_unstable();
    assert_eq!(order, (0..count).collect::<Vec<_>>());
    assert_eq!(plan.waves.iter().map(Vec::len).sum::<usize>(), count);
    for (group, step) in plan.steps.iter().enumerate() {
        assert_eq!(step.ends - step.begins, case.members[group].estimate);
        assert!(step.ends <= plan.length);
        for bond in &step.after {
            let other = &plan.steps[bond.group];
            if bond.cause == Cause::Beginning {
                assert!(other.begins <= step.begins && wave(bond.group) <= wave(group));
            } else {
                assert!(
                    other.ends <= step.begins && wave(bond.group) < wave(group),
                    "{group} {bond:?} {plan:?}"
                );
            }
        }
        for bond in &step.excludes {
            let other = &plan.steps[bond.group];
            assert!(other.ends <= step.begins || step.ends <= other.begins);
            assert_ne!(wave(bond.group), wave(group));
            assert!(other.excludes.iter().any(|back| back.group == group), "it is mutual");
        }
        let beside =
            plan.steps.iter().filter(|other| other.begins <= step.begins && step.begins < other.ends).count();
        assert!(plan.slots.is_none_or(|slots| beside <= slots.get()));
    }
    for dependency in &case.dependencies {
        let (source, target) = (&plan.steps[dependency.source], &plan.steps[dependency.target]);
        assert!(if dependency.completion {
            source.ends <= target.begins
        } else {
            source.begins <= target.begins
        });
    }
    for conflict in &case.findings.conflicts {
        let (a, b) = (&plan.steps[conflict.group1], &plan.steps[conflict.group2]);
        assert!(a.ends <= b.begins || b.ends <= a.begins, "groups that conflict never run together");
    }
    assert!(plan.bound <= plan.length);
    let begins: Vec<Duration> = plan.steps.iter().map(|step| step.begins).collect();
    assert_eq!(followed(case, plan), begins, "what is shown is what is done");
}

/// Requirement 130.
#[test]
fn plans_are_hardly_longer_than_the_shortest_possible() {
    let seed = 20_261_115;
    let mut dice = Dice(seed);
    let (mut sum, mut worst, mut exact, cases) = (0.0, 1.0_f64, 0, 300);
    for _ in 0..cases {
        let count = 3 + dice.below(4) as usize;
        let case =
            Case::new(&mut dice, count, &[Action::MutexLock, Action::MutexLock, Action::QueueExecution]);
        let plan = case.plan();
        assert_kept(&case, &plan);
        let shortest = shortest_of_all(&case, &plan);
        assert!(plan.bound.as_secs() <= shortest, "the bound is one: {plan:?}");
        let ratio = plan.length.as_secs_f64() / shortest as f64;
        assert!(ratio >= 1.0 - 1e-9, "shorter than the shortest: {plan:?}");
        sum += ratio;
        worst = worst.max(ratio);
        exact += usize::from(ratio < 1.0 + 1e-9);
    }
    let mean = sum / f64::from(cases);
    println!("seed {seed}: {exact} of {cases} plans are shortest; mean ratio {mean:.4}, worst {worst:.3}");
    assert!(mean < 1.02 && worst < 1.4, "mean {mean:.4}, worst {worst:.3}");
}

#[test]
fn plans_of_any_size_keep_what_they_promise() {
    let seed = 7;
    let mut dice = Dice(seed);
    for round in 0..120 {
        let count = dice.below(30) as usize;
        let actions = [Action::MutexLock, Action::QueueExecution, Action::SerializeOperations];
        let case = Case::new(&mut dice, count, &actions);
        let plan = case.plan();
        println!("seed {seed}, round {round}: {count} groups, {}", plan.mode);
        assert_kept(&case, &plan);
        assert_eq!(case.plan(), plan, "the same question has the same answer");
    }
}

/// Requirement 128.
#[test]
fn a_rule_that_asks_for_serial_leaves_no_two_groups_together() {
    let mut dice = Dice(3);
    let mut serial = 0;
    for _ in 0..60 {
        let case = Case::new(&mut dice, 6, &[Action::DowngradeToSerial, Action::MutexLock]);
        let plan = case.plan();
        assert_kept(&case, &plan);
        if plan.mode == Mode::Serial {
            serial += 1;
            assert!(plan.waves.iter().all(|wave| wave.len() == 1), "{plan:?}");
        }
    }
    assert!(serial > 20, "{serial}");
}
