//! Hostile files at lock paths: the doctor does not hang, follows no link, and makes all other checks.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use lockkeeper_testing::files;

use crate::doctor::Doctor;

/// Reached only when something hangs.
const LIMIT: Duration = Duration::from_secs(60);

fn fifo(path: &std::path::Path) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    files::make_fifo(path);
}

/// Requirement 149.
#[test]
fn fifos_links_folders_and_giants_are_named_and_left_alone() {
    let doctor = Doctor::new().with_store();
    let secret = doctor.world.home().join("secret");
    doctor.write(&secret, "{}");
    for folder in [doctor.tasks(), doctor.requests()] {
        let name = |id: &str| {
            let name = if folder.ends_with("swarm/locks") {
                format!("{id}.lock")
            } else {
                format!("request.{id}.lock.json")
            };
            folder.join(name)
        };
        fifo(&name("fifo"));
        symlink(&secret, name("link")).unwrap();
        fs::create_dir(name("folder")).unwrap();
        fs::write(name("giant"), vec![b' '; 1 << 20]).unwrap();
        fs::write(name("bytes"), [0xff; 100]).unwrap();
    }
    fifo(&doctor.groups().join("g.lock"));
    fifo(&doctor.groups().join("registry.log"));
    fifo(&doctor.root().join(".sprint-running"));
    let before = doctor.world.tree().into_keys().collect::<Vec<_>>();
    let begun = Instant::now();
    for diagnosis in [doctor.quick(), doctor.full()] {
        for id in ["swarm-locks", "aiflow-locks"] {
            let detail = diagnosis.text(id, "detail");
            for what in ["FIFO", "symbolic link", "folder", "bytes"] {
                assert!(detail.contains(what), "{what}: {detail}");
            }
            diagnosis.says(id, "WARN", "is not a lock file").fix(id, "move it away");
        }
        diagnosis.says("group-locks", "WARN", "not a regular file").says("sprint-lock", "WARN", "");
        diagnosis.says("store", "PASS", "0 leases");
    }
    assert!(begun.elapsed() < LIMIT, "{:?}", begun.elapsed());
    assert_eq!(doctor.world.tree().into_keys().collect::<Vec<_>>(), before);
}

/// Requirement 149.
#[test]
fn a_deeply_nested_document_is_named_and_left_alone() {
    let doctor = Doctor::new();
    let (task, request) =
        (doctor.tasks().join("deep.lock"), doctor.requests().join("request.deep.lock.json"));
    let deep = "[".repeat(60_000);
    for path in [&task, &request] {
        doctor.write(path, &deep);
    }
    for diagnosis in [doctor.quick(), doctor.full()] {
        diagnosis.says("swarm-locks", "WARN", "deep").says("aiflow-locks", "WARN", "deep");
    }
    assert_eq!(
        [fs::read_to_string(task).unwrap(), fs::read_to_string(request).unwrap()],
        [deep.clone(), deep]
    );
}

#[test]
fn names_cannot_disturb_a_terminal() {
    let doctor = Doctor::new();
    doctor.write(&doctor.tasks().join("\u{1b}[2J.lock"), "rubbish");
    let done = doctor.world.run(["doctor"]).code(0).prints("WARN  swarm-locks");
    assert!(!done.stdout().contains('\u{1b}'), "{}", done.stdout());
}

#[test]
fn thousands_of_stale_locks_are_counted_and_put_away() {
    let doctor = Doctor::new();
    let count = 2_000;
    for number in 0..count {
        let record = format!(
            r#"{{"worker_id":"w","task_id":"t{number}","acquired_at":"{0}","heartbeat_at":"{0}","ttl":300}}"#,
            crate::doctor::LONG_AGO
        );
        doctor.write(&doctor.tasks().join(format!("t{number}.lock")), &record);
    }
    let begun = Instant::now();
    let quick = doctor.quick();
    quick.says("swarm-locks", "WARN", &format!("and {} more", count - 5));
    assert!(quick.text("swarm-locks", "detail").len() < 500);
    let text = doctor.world.run(["doctor", "--full"]).code(0).prints("2000 recovered").stdout();
    assert!(text.lines().count() < 60 && text.contains("and 1980 more, see --json"), "{text}");
    assert!(begun.elapsed() < LIMIT, "{:?}", begun.elapsed());
    assert_eq!(doctor.quick().troubles(), [""; 0]);
}
