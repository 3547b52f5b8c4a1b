//! Programs of the original format work on the same files at the same time.

use std::process::Command;

use crate::storm::Worker;
use crate::tasks::{HOUR, Tasks};

fn python(tasks: &Tasks, name: &str) -> Worker {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/formats_swarm/foreign_worker.py");
    let mut command = Command::new("python3");
    command.arg(script);
    Worker::start(&mut command, &tasks.dir(), name)
}

/// A creator in shell: `set -C` makes `>` open with `O_EXCL`.
fn shell(tasks: &Tasks, name: &str) -> Worker {
    let script = r#"
        IFS='	' read -r folder name; echo @ready
        while read -r order; do
            record='{"worker_id":"'$name'","task_id":"a","acquired_at":"2999-01-01T00:00:00.000Z","heartbeat_at":"2999-01-01T00:00:00.000Z","ttl":300}'
            if (set -C; printf %s "$record" > "$folder/locks/a.lock") 2>/dev/null; then echo @won; else echo @busy; fi
        done"#;
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    Worker::start(&mut command, &tasks.dir(), name)
}

/// Gives each its order at the same time, and then takes the answers.
fn orders(workers: &mut [(Worker, &str)]) -> Vec<String> {
    for (worker, order) in workers.iter_mut() {
        worker.order(order);
    }
    workers.iter_mut().map(|(worker, _)| worker.answer()).collect()
}

fn winners(answers: &[String]) -> Vec<usize> {
    assert!(answers.iter().all(|answer| answer == "won" || answer == "busy"), "{answers:?}");
    (0..answers.len()).filter(|place| answers[*place] == "won").collect()
}

/// Requirements 60, 200. A creator that only ever creates with `O_EXCL` and we exclude each other exactly.
#[test]
fn plain_creators_and_ours_have_one_winner_in_every_round() {
    let tasks = Tasks::with_locks();
    let names: Vec<String> = (0..10).map(|number| format!("w{number}")).collect();
    let mut workers: Vec<(Worker, &str)> = names
        .iter()
        .enumerate()
        .map(|(number, name)| match number {
            0..=4 => (Worker::ours(&tasks.dir(), name), "take"),
            5..=7 => (python(&tasks, name), "take"),
            _ => (shell(&tasks, name), "take"),
        })
        .collect();
    let mut foreign = 0;
    for round in 0..200 {
        let stale = round % 4 == 3;
        if stale {
            tasks.write_record("a", "old", HOUR, 300);
        }
        let winners = winners(&orders(&mut workers));
        assert_eq!(winners.len(), 1, "round {round}: {winners:?}");
        assert!(!stale || winners[0] < 5, "only we take over in round {round}");
        assert_eq!(tasks.read("a")["worker_id"], names[winners[0]]);
        foreign += usize::from(winners[0] >= 5);
        std::fs::remove_file(tasks.file("a")).unwrap();
    }
    assert!((1..200).contains(&foreign), "both kinds have to win sometimes: {foreign}");
}

/// Requirement 202. A program that breaks stale locks by itself cannot be excluded, but the worker that lost its lock learns it: after one
/// heartbeat of ours and one look of theirs, exactly one believes, and it is the one in the file.
#[test]
fn after_a_foreign_breaker_the_loser_learns_it_at_its_next_heartbeat() {
    let tasks = Tasks::with_locks();
    let names: Vec<String> = (0..6).map(|number| format!("w{number}")).collect();
    let mut workers: Vec<(Worker, &str)> = names
        .iter()
        .enumerate()
        .map(|(number, name)| match number {
            0..=3 => (Worker::ours(&tasks.dir(), name), "take"),
            _ => (python(&tasks, name), "break"),
        })
        .collect();
    for round in 0..200 {
        tasks.write_record("a", "old", HOUR, 300);
        let winners = winners(&orders(&mut workers));
        assert!(!winners.is_empty(), "round {round}");
        let owner = tasks.read("a")["worker_id"].as_str().unwrap().to_owned();
        for place in winners {
            let (worker, _) = &mut workers[place];
            worker.order(if place < 4 { "beat" } else { "check" });
            let expected = if names[place] == owner { "kept" } else { "lost" };
            assert_eq!(worker.answer(), expected, "round {round}: {} against {owner}", names[place]);
        }
        assert_eq!(tasks.read("a")["worker_id"], owner.as_str(), "no heartbeat overwrote another owner");
        for (worker, _) in &mut workers[..4] {
            worker.order("forget");
            assert_eq!(worker.answer(), "forgotten");
        }
    }
}

/// Requirement 202. The old worker revives in the very moment of the takeover, and renames its record over the file.
#[test]
fn a_holder_that_revives_during_a_takeover_and_ours_never_both_stay() {
    let tasks = Tasks::with_locks();
    let mut old = python(&tasks, "old");
    let mut new = Worker::ours(&tasks.dir(), "new");
    let (mut revived, mut taken) = (0, 0);
    for round in 0..300 {
        tasks.write_record("a", "old", HOUR, 300);
        let (first, second) = if round % 2 == 0 { (&mut old, &mut new) } else { (&mut new, &mut old) };
        let order = |is_old: bool| if is_old { "beat" } else { "take" };
        first.order(order(round % 2 == 0));
        second.order(order(round % 2 == 1));
        let (old_says, new_says) = (old.answer(), new.answer());
        new.order("beat");
        old.order("check");
        let (new_stays, old_stays) = (new.answer(), old.answer());
        let owner = tasks.read("a")["worker_id"].as_str().unwrap().to_owned();
        match owner.as_str() {
            "old" => {
                revived += 1;
                assert_eq!((old_says.as_str(), old_stays.as_str()), ("kept", "kept"), "round {round}");
                assert_ne!(new_stays, "kept", "round {round}");
            }
            "new" => {
                taken += 1;
                assert_eq!((new_says.as_str(), new_stays.as_str()), ("won", "kept"), "round {round}");
                assert_eq!(old_stays, "lost", "round {round}");
            }
            other => panic!("{other}"),
        }
        new.order("forget");
        assert_eq!(new.answer(), "forgotten");
    }
    eprintln!("revived {revived}, taken over {taken}");
    assert_eq!(revived + taken, 300);
}

/// Requirements 60, 61. What we write, the original reads, renews and removes; and the other way round.
#[test]
fn locks_pass_between_ours_and_theirs() {
    let tasks = Tasks::with_locks();
    let mut theirs = python(&tasks, "w");
    tasks.run(&["task", "lock", "a", "--worker", "w"]).code(0);
    for (order, answer) in [("take", "busy"), ("break", "busy"), ("beat", "kept")] {
        theirs.order(order);
        assert_eq!(theirs.answer(), answer);
    }
    tasks.run(&["task", "heartbeat", "a", "--worker", "w"]).code(0);
    theirs.order("unlock");
    assert_eq!(theirs.answer(), "unlocked");
    theirs.order("take");
    assert_eq!(theirs.answer(), "won");
    tasks.run(&["task", "lock", "a", "--worker", "other"]).code(75);
    tasks.run(&["task", "unlock", "a", "--worker", "w"]).code(0);
    assert!(tasks.names().is_empty());
}
