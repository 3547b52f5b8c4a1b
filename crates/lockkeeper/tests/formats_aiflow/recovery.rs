//! When a lock is stale, and how it is recovered.

use std::process::Command;

use lockkeeper_formats::aiflow::{AiflowLock, Attempt, Pass, Recovered, Subject, Terms};
use lockkeeper_formats::{HeldReason, StaleReason, Verdict};
use lockkeeper_platform::wall_clock::WallTime;
use lockkeeper_testing::{Finished, Started, files, processes};
use serde_json::{Value, json};

use crate::project::{HOUR, Project, expired, locked, request, terms};

/// Requirements 178, 179, 180. Expired is not enough where the process lives on this machine.
#[test]
fn an_expired_lock_is_stale_only_when_its_process_is_dead_or_unknown() {
    let living = Started::of(&mut Command::new("cat"));
    let host = Finished::of(Command::new("uname").arg("-n")).code(0).stdout();
    let gone = Verdict::Stale(StaleReason::ProcessGone);
    let alive = Verdict::Held(HeldReason::ProcessAlive);
    let by_time = Verdict::Stale(StaleReason::Expired);
    let cases = [
        (json!(living.pid()), "127.0.0.1", alive),
        (json!(living.pid()), "localhost", alive),
        (json!(living.pid()), host.trim_end(), alive),
        (json!(processes::exited_pid()), "127.0.0.1", gone),
        // The process numbers of another machine mean nothing here: only time counts.
        (json!(living.pid()), "another-machine", by_time),
        (json!(null), "127.0.0.1", by_time),
        (json!(0), "127.0.0.1", by_time),
        (json!(-1), "127.0.0.1", by_time),
        (json!(4_194_305), "127.0.0.1", by_time),
        (json!("12"), "127.0.0.1", by_time),
    ];
    for (pid, host, expected) in cases {
        let project = Project::new();
        let mut record = expired(&pid, host);
        project.write("request.RQ-1.lock.json", &record.to_string());
        let now = WallTime::now();
        let standing = project.aiflow().show(&request("RQ-1"), now).unwrap().unwrap();
        assert_eq!(standing.verdict, expected, "{pid} on {host}");
        match (project.lock(&request("RQ-1"), now), expected.is_stale()) {
            (Attempt::Locked { recovered: Some(recovered), .. }, true) => {
                assert_eq!(recovered.state.record.unwrap().run_id.as_deref(), Some("RUN-0"));
                assert_eq!(Recovered::REASON_CODE, "LOCK_STALE_RECOVERED");
            }
            (Attempt::Busy(_), false) => {}
            (other, _) => panic!("{pid} on {host}: {other:?}"),
        }
        // Before it expires, the lock is always held.
        record["expires_at"] = now.after(HOUR).local().into();
        project.write("request.RQ-1.lock.json", &record.to_string());
        assert!(matches!(project.lock(&request("RQ-1"), now), Attempt::Busy(_)), "{pid} on {host}");
    }
}

/// Requirements 180, 181, 182, 186.
#[test]
fn recovery_puts_away_what_is_stale_and_nothing_else() {
    for (pass, expected) in [(Pass::Quick, vec!["RQ-1"]), (Pass::Full, vec!["RQ-1", "RQ-torn"])] {
        let project = Project::new();
        let living = Started::of(&mut Command::new("cat"));
        let now = WallTime::now();
        let dead = expired(&json!(processes::exited_pid()), "127.0.0.1");
        let named = |id: &str, mut record: Value| {
            record["request_id"] = id.into();
            project.write(&format!("request.{id}.lock.json"), &record.to_string());
        };
        named("RQ-1", dead.clone());
        named("RQ-2", expired(&json!(living.pid()), "127.0.0.1"));
        project.write("request.RQ-torn.lock.json", "{\"version\": \"1.");
        files::set_age(&project.file("request.RQ-torn.lock.json"), 1_000 * HOUR);
        project.write("request.RQ-odd.lock.json", "{\"version\": \"2.0\"}");
        let queue = locked(project.lock(&Subject::Queue, now));
        let recovery = project.aiflow().recover(pass, now).unwrap();
        let ids: Vec<String> = recovery.recovered.iter().map(|one| one.subject.to_string()).collect();
        let expected: Vec<String> = expected.iter().map(|id| format!("request {id}")).collect();
        assert_eq!(ids, expected, "{pass:?}");
        assert_eq!(recovery.problems.len(), usize::from(pass == Pass::Full));
        assert!(!project.file("request.RQ-1.lock.json").exists());
        for name in ["request.RQ-2.lock.json", "request.RQ-odd.lock.json", "queue.lock.json"] {
            assert!(project.file(name).exists(), "{pass:?}: {name}");
        }
        assert!(queue.release().unwrap());
        let again = project.aiflow().recover(pass, now).unwrap();
        assert!(again.recovered.is_empty());
    }
    let nothing = Project::new();
    assert!(nothing.aiflow().recover(Pass::Full, WallTime::now()).unwrap().recovered.is_empty());
    assert!(!nothing.root().join(".aiflow").exists());
}

/// Requirement 186. After a crash of everything, first the queue's lock and then the request's is recovered by time.
#[test]
fn after_a_crash_both_locks_are_recovered_once_their_time_is_up() {
    let project = Project::new();
    let (long_ago, now) = (files::ago(HOUR), WallTime::now());
    let terms = Terms { pid: processes::exited_pid(), ..terms() };
    for subject in [Subject::Queue, request("RQ-1")] {
        // As if the process had been killed: nothing is released.
        std::mem::forget(locked(project.aiflow().lock(&subject, terms, long_ago).unwrap()));
    }
    for subject in [Subject::Queue, request("RQ-1")] {
        match project.lock(&subject, now) {
            Attempt::Locked { recovered: Some(recovered), .. } => assert_eq!(recovered.subject, subject),
            other => panic!("{other:?}"),
        }
    }
}

/// Requirements 180, 200. Threads are as good as processes here: each has its own open folder.
#[test]
fn a_storm_on_a_stale_lock_has_one_winner_in_every_round() {
    let project = Project::new();
    let dead = processes::exited_pid();
    for round in 0..200 {
        project.write("request.RQ-1.lock.json", &expired(&json!(dead), "127.0.0.1").to_string());
        let gate = std::sync::Barrier::new(8);
        let locks: Vec<Option<AiflowLock>> = std::thread::scope(|scope| {
            let attempt = || {
                gate.wait();
                match project.lock(&request("RQ-1"), WallTime::now()) {
                    Attempt::Locked { lock, .. } => Some(lock),
                    Attempt::Busy(_) => None,
                }
            };
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(attempt)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(locks.iter().flatten().count(), 1, "round {round}");
    }
}

/// Requirements 178, 179.
#[test]
fn locks_lists_each_file_with_its_verdict() {
    let project = Project::new();
    let now = WallTime::now();
    let _queue = locked(project.lock(&Subject::Queue, now));
    project
        .write("request.RQ-1.lock.json", &expired(&json!(processes::exited_pid()), "127.0.0.1").to_string());
    project.write("request.RQ-9.lock.json", "rubbish");
    project.write("RQ-5.lock", "RUN-X");
    let list = |args: &[&str]| {
        let root = project.root().to_str().unwrap();
        let mut command = project.world.lockkeeper(["locks", "--format", "aiflow", "--project-root", root]);
        Finished::of(command.args(args).current_dir("/")).code(0)
    };
    let listing = list(&["--json"]).json();
    let rows: Vec<(&str, &str)> = listing["locks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|lock| (lock["subject"].as_str().unwrap(), lock["state"].as_str().unwrap()))
        .collect();
    let expected =
        [("queue", "held"), ("request RQ-1", "stale"), ("request RQ-5", "held"), ("request RQ-9", "unknown")];
    assert_eq!(rows, expected);
    // The plain file of the program: a person who removes it by hand needs its own path.
    let plain = &listing["locks"][2];
    assert_eq!(
        (&plain["holder"], plain["path"].as_str()),
        (&json!("RUN-X"), project.file("RQ-5.lock").to_str())
    );
    assert_eq!(listing["locks"][0]["record"]["run_id"], "RUN-1");
    let text = list(&[]).prints("its process has ended").stdout();
    assert_eq!(text.lines().count(), 5, "{text}");
    assert!(text.contains("RUN-X"), "{text}");
}

/// Requirement 193. A process that takes over a stale lock prints that, and the events of the run have it.
#[test]
fn a_run_that_takes_over_a_stale_lock_reports_it() {
    let project = Project::new();
    let world = &project.world;
    let stale = expired(&json!(processes::exited_pid()), "127.0.0.1");
    project.write("request.RQ-1.lock.json", &stale.to_string());
    let mut queue = stale;
    queue["lock_type"] = json!("queue");
    project.write("queue.lock.json", &queue.to_string());
    world.run(["submit", "--id", "RQ-1", "--", "true"]).code(0);
    let executed = world.run(["queue", "run-next", "--lock-format", "aiflow"]).code(0);
    executed.says("LOCK_STALE_RECOVERED: took over the lock of RUN-0 on the queue");
    let shown = world.run(["--json", "run", "show", "RQ-1"]).code(0).json();
    let claimed = &shown["run"]["events"][1];
    assert_eq!(claimed["kind"], "claimed");
    assert!(
        claimed["message"]
            .as_str()
            .unwrap()
            .ends_with("LOCK_STALE_RECOVERED: took over the lock of RUN-0 on RQ-1, which had expired"),
        "{shown}"
    );
}
