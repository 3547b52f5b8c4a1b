//! The order of groups and agents: random phases, checked by what their agents recorded.

use std::fmt::Write;

use lockkeeper_core::overlap::overlap;
use lockkeeper_testing::Dice;

use crate::stages::{RECORDED, Stages};

/// A random phase. Its groups choose from few paths, so that some of them conflict.
struct Random {
    text: String,
    paths: Vec<Vec<String>>,
    after: Vec<Option<usize>>,
    at_once: Vec<usize>,
}

impl Random {
    fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let count = 3 + dice.index(4);
        let action = ["mutex_lock", "queue_execution", "serialize_operations"][dice.index(3)];
        let mut made =
            Self { text: String::new(), paths: Vec::new(), after: Vec::new(), at_once: Vec::new() };
        made.text.push_str("parallel_groups:\n  P1:\n");
        for group in 0..count {
            let mut paths = vec![format!("own/{group}/**")];
            if dice.index(2) == 0 {
                paths.push(format!("shared/{}.json", dice.index(2)));
            }
            let agents = 1 + dice.index(3);
            let at_once = 1 + dice.index(agents);
            let after = (group > 0 && dice.index(3) == 0).then(|| dice.index(group));
            let needs = after.map_or_else(String::new, |other| format!(", depends_on: [g{other}]"));
            let names: Vec<String> = (0..agents).map(|agent| format!("a{agent}")).collect();
            writeln!(
                made.text,
                "    - {{group_id: g{group}, agents: [{}], max_concurrent: {at_once}, conflict_paths: {paths:?}{needs}, command: '{RECORDED}'}}",
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

    /// Replays the record of the agents. Its lines are in the order in which things happened.
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
    for seed in Dice::seeds(0..8) {
        let about = format!("LOCKKEEPER_SEED={seed}");
        let random = Random::new(seed);
        let stages = Stages::new(&random.text);
        println!("{about}:\n{}", random.text);
        stages.run("P1", &[]).code(0);
        random.check(&stages.record(), &about);
        stages.assert_settled();
    }
}

/// Each agent waits until the other has begun. In parallel both end; one after the other neither would.
const MEETS: &str = r#"touch "$LOCKKEEPER_GROUP"; n=0; until test -e "$OTHER"; do n=$((n+1)); test $n -lt 6000 || exit 9; sleep 0.01; done"#;

/// Requirements 127, 130, 131.
#[test]
fn groups_that_have_nothing_to_do_with_each_other_run_side_by_side() {
    let (one, other) = (MEETS.replace("$OTHER", "b"), MEETS.replace("$OTHER", "a"));
    let stages = Stages::new(&format!(
        "parallel_groups:\n  P1:\n    - {{group_id: a, conflict_paths: [\"x/**\"], command: '{one}'}}\n    \
         - {{group_id: b, conflict_paths: [\"y/**\"], command: '{other}'}}\n  P2:\n    - {{group_id: only, command: 'true'}}\n"
    ));
    let run = |phase| stages.world.run(["stages", "run", "STAGES.yml", phase, "--load", "0"]).code(0);
    run("P1").says("Executing 2 parallel groups...");
    run("P2").says("Single group or no parallel config, executing normally");
}

/// Requirement 126. The agent lists the leases while it runs.
#[test]
fn a_group_holds_its_name_and_paths_while_its_agents_run_and_not_longer() {
    let stages = Stages::new(
        "parallel_groups:\n  P1:\n    - {group_id: api, conflict_paths: [\"src/api/**\"], command: '\"$BIN\" locks --json > seen'}\n",
    );
    stages.run("P1", &[]).code(0);
    let seen = std::fs::read_to_string(stages.path("seen")).unwrap();
    assert!(seen.contains("\"api\"") && seen.contains("src/api/**") && seen.contains("stage:EX"), "{seen}");
    stages.assert_settled();
}

/// Requirement 126. Invariant 1.
#[test]
fn two_executions_at_once_exclude_each_other_by_their_leases() {
    let stages = Stages::new(&format!(
        "parallel_groups:\n  P1:\n    - {{group_id: g0, agents: [x, y], max_concurrent: 1, conflict_paths: [\"x/**\"], command: '{RECORDED}'}}\n"
    ));
    let both = [stages.start("P1", &[]), stages.start("P1", &[])];
    both.into_iter().for_each(|one| drop(one.wait().code(0)));
    let record = stages.record();
    assert_eq!(record.len(), 8, "{record:?}");
    for pair in record.chunks(4) {
        assert_eq!(pair, ["begin g0 x", "end g0 x", "begin g0 y", "end g0 y"], "{record:?}");
    }
}

/// Requirement 126.
#[test]
fn a_path_that_an_outside_command_holds_makes_a_group_wait_and_that_is_told() {
    let stages = Stages::new(
        "parallel_groups:\n  P1:\n    - {group_id: api, conflict_paths: [\"src/api/**\"], command: 'touch done'}\n",
    );
    let holder = stages.hold_until_go(&["--path", "src/**"]);
    let waiting = stages.world.start(["stages", "run", "STAGES.yml", "P1", "--load", "0"]);
    stages.world.until_waiting(1);
    assert!(!stages.path("done").exists());
    stages.world.touch("go");
    holder.wait().code(0);
    waiting.wait().code(0).says("api: waits at most 5m 0s, src/api/** is held by");
    assert!(stages.path("done").exists());
}

/// Requirements 146, 147.
#[test]
fn ten_phases_of_three_groups_at_once_leave_no_deadlock() {
    let mut text = String::from("parallel_groups:\n");
    for phase in 0..10 {
        writeln!(text, "  P{phase}:").unwrap();
        for group in 1..=3 {
            writeln!(text, "    - {{group_id: group-{phase}-{group}, conflict_paths: [\"shared/{group}/**\"], command: '{RECORDED}'}}").unwrap();
        }
    }
    let stages = Stages::new(&text);
    let all: Vec<_> = (0..10).map(|phase| stages.start(&format!("P{phase}"), &[])).collect();
    all.into_iter().for_each(|one| drop(one.wait().code(0)));
    stages.world.run(["locks", "check-deadlock"]).code(0);
    assert_eq!(stages.record().len(), 60);
    stages.assert_settled();
}
