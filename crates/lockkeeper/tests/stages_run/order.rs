//! Who runs when: random phases, watched by what their agents write down.

use std::fmt::Write;

use lockkeeper_core::overlap::overlap;

use crate::site::{Site, WATCHED};

/// Numbers that look random and are the same for the same seed.
struct Dice(u64);

impl Dice {
    /// Below a limit.
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % limit
    }
}

/// A random phase: groups with paths out of few, so that some of them meet.
struct Random {
    text: String,
    paths: Vec<Vec<String>>,
    after: Vec<Option<usize>>,
    at_once: Vec<usize>,
}

impl Random {
    fn new(seed: u64) -> Self {
        let mut dice = Dice(seed);
        let count = 3 + dice.below(4);
        let action = ["mutex_lock", "queue_execution", "serialize_operations"][dice.below(3)];
        let mut made =
            Self { text: String::new(), paths: Vec::new(), after: Vec::new(), at_once: Vec::new() };
        made.text.push_str("parallel_groups:\n  P1:\n");
        for group in 0..count {
            let mut paths = vec![format!("own/{group}/**")];
            if dice.below(2) == 0 {
                paths.push(format!("shared/{}.json", dice.below(2)));
            }
            let agents = 1 + dice.below(3);
            let at_once = 1 + dice.below(agents);
            let after = (group > 0 && dice.below(3) == 0).then(|| dice.below(group));
            let needs = after.map_or_else(String::new, |other| format!(", depends_on: [g{other}]"));
            let names: Vec<String> = (0..agents).map(|agent| format!("a{agent}")).collect();
            writeln!(
                made.text,
                "    - {{group_id: g{group}, agents: [{}], max_concurrent: {at_once}, conflict_paths: {paths:?}{needs}, command: '{WATCHED}'}}",
                names.join(", "),
            )
            .unwrap();
            made.paths.push(paths);
            made.after.push(after);
            made.at_once.push(at_once);
        }
        write!(
            made.text,
            "conflict_detection:\n  rules:\n    - {{name: shared, severity: MINOR, action: {action}, paths: [\"shared/**\"]}}\n"
        )
        .unwrap();
        made
    }

    fn conflict(&self, one: usize, other: usize) -> bool {
        self.paths[one].iter().any(|path| {
            let pattern = path.parse().unwrap();
            self.paths[other].iter().any(|other| overlap(&pattern, &other.parse().unwrap()).is_some())
        })
    }

    /// Follows what the agents wrote: lines stand in the order in which things happened.
    fn check(&self, record: &[String], about: &str) {
        let count = self.paths.len();
        let mut running = vec![0_usize; count];
        let mut ended = vec![0_usize; count];
        for line in record {
            let words: Vec<&str> = line.split(' ').collect();
            let group: usize = words[1][1..].parse().unwrap();
            if words[0] == "end" {
                running[group] -= 1;
                ended[group] += 1;
                continue;
            }
            running[group] += 1;
            assert!(
                running[group] <= self.at_once[group],
                "{about}: too many agents of g{group}: {record:#?}"
            );
            for other in (0..count).filter(|other| *other != group && running[*other] > 0) {
                assert!(!self.conflict(group, other), "{about}: g{group} beside g{other}: {record:#?}");
            }
            if let Some(source) = self.after[group] {
                let is_over = running[source] == 0 && ended[source] > 0;
                assert!(is_over, "{about}: g{group} before the end of g{source}: {record:#?}");
            }
        }
        assert!(running.iter().all(|left| *left == 0), "{about}: {record:#?}");
    }
}

/// Requirements 126, 128, 153. Invariant 1.
#[test]
fn groups_that_conflict_never_overlap_and_dependencies_come_first() {
    for seed in 0..8 {
        let about = format!("seed {seed}");
        let random = Random::new(seed);
        let site = Site::new(&random.text);
        let ran = site.stages("P1", &[]);
        assert_eq!(ran.code, Some(0), "{about}: {}\n{}\n{}", random.text, ran.out, ran.err);
        random.check(&site.record(), &about);
        site.assert_settled();
    }
}

/// Each agent waits for the other to have begun: side by side both end, one by one neither would.
const MEETS: &str = r#"touch "$LOCKKEEPER_GROUP"; n=0; until test -e "$OTHER"; do n=$((n+1)); test $n -lt 6000 || exit 9; sleep 0.01; done"#;

/// Requirements 127, 130, 131.
#[test]
fn groups_that_have_nothing_to_do_with_each_other_run_side_by_side() {
    let (one, other) = (MEETS.replace("$OTHER", "b"), MEETS.replace("$OTHER", "a"));
    let site = Site::new(&format!(
        "parallel_groups:\n  P1:\n    - {{group_id: a, conflict_paths: [\"x/**\"], command: '{one}'}}\n    \
         - {{group_id: b, conflict_paths: [\"y/**\"], command: '{other}'}}\n  P2:\n    - {{group_id: only, command: 'true'}}\n"
    ));
    let ran = site.run(&["stages", "run", "STAGES.yml", "P1", "--load", "0"]).code(0);
    assert!(ran.err.contains("Executing 2 parallel groups..."), "{}", ran.err);
    let ran = site.run(&["stages", "run", "STAGES.yml", "P2", "--load", "0"]).code(0);
    assert!(ran.err.contains("Single group or no parallel config, executing normally"), "{}", ran.err);
}

/// Requirement 126. What an agent sees while it runs: its group holds its name and paths, and afterwards nobody does.
#[test]
fn a_group_holds_its_name_and_paths_while_its_agents_run_and_not_longer() {
    let site = Site::new(
        "parallel_groups:\n  P1:\n    - {group_id: api, conflict_paths: [\"src/api/**\"], command: '\"$BIN\" locks --json > seen'}\n",
    );
    site.stages("P1", &[]).code(0);
    let seen = std::fs::read_to_string(site.path("seen")).unwrap();
    assert!(seen.contains("\"api\"") && seen.contains("src/api/**") && seen.contains("stage:EX"), "{seen}");
    site.assert_settled();
}

/// Requirement 126. Invariant 1.
#[test]
fn two_executions_at_once_exclude_each_other_by_their_leases() {
    let site = Site::new(&format!(
        "parallel_groups:\n  P1:\n    - {{group_id: g0, agents: [x, y], max_concurrent: 1, conflict_paths: [\"x/**\"], command: '{WATCHED}'}}\n"
    ));
    let both = [site.start_stages("P1", &[]), site.start_stages("P1", &[])];
    both.into_iter().for_each(|one| drop(one.end().code(0)));
    let record = site.record();
    assert_eq!(record.len(), 8, "{record:?}");
    for pair in record.chunks(4) {
        assert_eq!(pair, ["begin g0 x", "end g0 x", "begin g0 y", "end g0 y"], "{record:?}");
    }
}

/// Requirement 126.
#[test]
fn a_path_that_an_outside_command_holds_makes_a_group_wait_and_that_is_told() {
    let site = Site::new(
        "parallel_groups:\n  P1:\n    - {group_id: api, conflict_paths: [\"src/api/**\"], command: 'touch done'}\n",
    );
    let holder = site.start(&[
        "exec",
        "--path",
        "src/**",
        "--",
        "sh",
        "-c",
        "touch held; until test -e go; do sleep 0.01; done",
    ]);
    site.until_there("held");
    let waiting = site.start(&["stages", "run", "STAGES.yml", "P1", "--load", "0"]);
    crate::site::until("the group waits", || {
        let listing = site.run(&["locks", "--json"]).json();
        listing["waiters"].as_array().is_some_and(|all| !all.is_empty())
    });
    assert!(!site.path("done").exists());
    site.touch("go");
    holder.end().code(0);
    let ran = waiting.end().code(0);
    assert!(ran.err.contains("api: waits, src/api/** is held by"), "{}", ran.err);
    assert!(site.path("done").exists());
}

/// Requirements 146, 147.
#[test]
fn ten_phases_of_three_groups_at_once_leave_no_deadlock() {
    let mut text = String::from("parallel_groups:\n");
    for phase in 0..10 {
        writeln!(text, "  P{phase}:").unwrap();
        for group in 1..=3 {
            writeln!(text, "    - {{group_id: group-{phase}-{group}, conflict_paths: [\"shared/{group}/**\"], command: '{WATCHED}'}}").unwrap();
        }
    }
    let site = Site::new(&text);
    let all: Vec<_> = (0..10).map(|phase| site.start_stages(&format!("P{phase}"), &[])).collect();
    all.into_iter().for_each(|one| drop(one.end().code(0)));
    let _ = site.run(&["locks", "check-deadlock"]).code(0);
    assert_eq!(site.record().len(), 60);
    site.assert_settled();
}
