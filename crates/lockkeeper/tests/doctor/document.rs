//! The answer as JSON and as text, and the page of documentation about it.

use std::path::Path;

use lockkeeper_engine::doctor::catalogue;

use crate::doctor::{Doctor, GONE, LONG_AGO};

/// Everything in the folders, except what reading a database touches.
fn tree(doctor: &Doctor) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let all = doctor.world.tree().into_iter();
    all.filter(|(path, _)| !path.ends_with("leases.db-shm")).collect()
}

#[test]
fn a_healthy_repository_passes_every_check() {
    for doctor in
        [Doctor::new(), Doctor::new().with_store(), Doctor::without_git(), Doctor::without_git().with_store()]
    {
        for diagnosis in [doctor.quick(), doctor.full()] {
            assert_eq!(diagnosis.troubles(), [""; 0], "{}", diagnosis.value);
            assert_eq!(diagnosis.value["summary"]["status"], "PASS");
            assert_eq!(diagnosis.value["alerts"].as_array().unwrap().len(), 0);
        }
    }
}

#[test]
fn the_answer_has_the_shape_that_programs_know() {
    let diagnosis = Doctor::new().with_store().full();
    let keys = |value: &serde_json::Value| {
        value.as_object().unwrap().keys().map(String::as_str).collect::<Vec<_>>().join(" ")
    };
    let value = &diagnosis.value;
    assert_eq!(keys(value), "version mode summary checks alerts environment");
    assert_eq!((&value["version"], &value["mode"]), (&"1.0".into(), &"full".into()));
    assert_eq!(keys(&value["summary"]), "status fail_count warn_count recovered_count");
    assert_eq!(keys(&value["checks"][0]), "id title status detail fix recovered");
    let ids: Vec<&str> =
        value["checks"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap()).collect();
    assert_eq!(ids, catalogue().map(|(id, _)| id).collect::<Vec<_>>());
    let environment = &value["environment"];
    assert_eq!(environment["lockkeeper"], env!("CARGO_PKG_VERSION"));
    assert!(environment["store"].as_str().unwrap().starts_with("SQLite 3."), "{environment}");
}

#[test]
fn the_quick_pass_changes_nothing() {
    for doctor in [Doctor::new(), Doctor::new().with_store()] {
        let expired = format!(
            r#"{{"worker_id":"w","task_id":"t","acquired_at":"{LONG_AGO}","heartbeat_at":"{LONG_AGO}","ttl":300}}"#
        );
        doctor.write(&doctor.tasks().join("t.lock"), &expired);
        doctor.write(&doctor.groups().join("registry.log"), &format!("g:{GONE}:g:1700000000:ACTIVE\n"));
        let before = tree(&doctor);
        let diagnosis = doctor.quick();
        assert_eq!(diagnosis.troubles(), ["swarm-locks", "group-locks"], "{}", diagnosis.value);
        assert_eq!(tree(&doctor), before);
    }
}

#[test]
fn people_read_lines_with_a_fix_below() {
    let doctor = Doctor::new().with_store();
    doctor.write(&doctor.groups().join("registry.log"), &format!("g:{GONE}:g:1700000000:ACTIVE\n"));
    let text = doctor.world.run(["doctor"]).code(0).stdout();
    assert!(text.contains("\nWARN  group-locks    held by dead processes: group g of process"), "{text}");
    assert!(text.contains("\n      fix: `lockkeeper doctor --full`"), "{text}");
    assert!(text.ends_with("\nWARN: 0 failed, 1 warning, 25 passed\n"), "{text}");
    let text = doctor.world.run(["doctor", "--full"]).code(0).stdout();
    assert!(text.contains("\n      LOCK_STALE_RECOVERED: group g of process"), "{text}");
    assert!(text.ends_with("\nPASS: 0 failed, 0 warnings, 27 passed, 1 recovered\n"), "{text}");
    doctor.world.run(["doctor", "--quick", "--full"]).code(2).says("hint: ");
}

#[test]
fn a_terminal_shows_which_check_is_being_made() {
    let doctor = Doctor::new();
    let live = doctor
        .world
        .on_terminal(&format!("TERM=xterm '{}' doctor --full", doctor.world.program()))
        .code(0)
        .stdout();
    assert!(
        live.contains("checking 1/27 state-folder") && live.contains("checking 27/27 alerts"),
        "{live:?}"
    );
    let dumb =
        doctor.world.on_terminal(&format!("'{}' doctor --full", doctor.world.program())).code(0).stdout();
    assert!(!dumb.contains("checking"), "{dumb:?}");
}

/// The table in docs/reference/doctor.md has exactly the checks of the code.
#[test]
fn the_page_explains_every_check() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/doctor.md");
    let text = std::fs::read_to_string(page).unwrap();
    let (_, section) = text.split_once("\n## The checks\n").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    let rows: Vec<(String, String)> = rows
        .map(|row| {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            assert!(cells.len() == 5 && cells[1..4].iter().all(|cell| !cell.is_empty()), "{row}");
            (cells[0].trim_end_matches('`').to_owned(), cells[1].to_owned())
        })
        .collect();
    let known: Vec<(String, String)> =
        catalogue().map(|(id, title)| (id.to_owned(), title.to_owned())).collect();
    assert_eq!(rows, known);
}
