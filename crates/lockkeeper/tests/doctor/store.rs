//! The store of leases: damaged, foreign, newer, or inconsistent.

use std::fs;
use std::path::PathBuf;

use rusqlite::Connection;

use crate::doctor::Doctor;

fn database(doctor: &Doctor) -> PathBuf {
    doctor.state().join("leases.db")
}

fn sql(doctor: &Doctor, script: &str) {
    Connection::open(database(doctor)).unwrap().execute_batch(script).unwrap();
}

/// Invariant 12.
#[test]
fn a_file_that_is_no_database_fails_and_is_left_as_it_is() {
    let doctor = Doctor::new().with_store();
    for name in ["leases.db-wal", "leases.db-shm"] {
        let _ = fs::remove_file(doctor.state().join(name));
    }
    let rubbish = "rubbish ".repeat(1_000);
    fs::write(database(&doctor), &rubbish).unwrap();
    for diagnosis in [doctor.quick(), doctor.full()] {
        diagnosis.says("store", "FAIL", "is damaged").fix("store", "move");
        // All other checks are still made.
        diagnosis.says("flock", "PASS", "it could lock only after the release").says(
            "leases",
            "PASS",
            "no open store",
        );
    }
    assert_eq!(fs::read_to_string(database(&doctor)).unwrap(), rubbish);
}

/// Invariant 12.
#[test]
fn a_page_that_was_overwritten_fails() {
    let doctor = Doctor::new();
    for name in 0..40 {
        doctor.world.acquire(&[&format!("name-{name}")]);
    }
    sql(&doctor, "PRAGMA wal_checkpoint(TRUNCATE);");
    let mut bytes = fs::read(database(&doctor)).unwrap();
    let middle = bytes.len() / 2 / 1024 * 1024;
    bytes[middle..middle + 1024].fill(0x5a);
    fs::write(database(&doctor), bytes).unwrap();
    for diagnosis in [doctor.quick(), doctor.full()] {
        diagnosis.says("store", "FAIL", "").fix("store", "away");
    }
}

#[test]
fn a_newer_and_a_foreign_store_fail() {
    let doctor = Doctor::new().with_store();
    sql(&doctor, "PRAGMA user_version = 99;");
    doctor.quick().says("store", "FAIL", "version 99").fix("store", "install the newer lockkeeper");
    sql(&doctor, "PRAGMA application_id = 7;");
    doctor.quick().says("store", "FAIL", "belongs to another program").fix("store", "--dir");
}

#[test]
fn the_full_pass_finds_records_that_contradict_each_other() {
    let contradictions = [
        ("INSERT INTO filed VALUES (0, 'x', 0, 4711);", "1 keys lead to no lease"),
        ("DELETE FROM filed;", "1 leases are filed under no key"),
        ("INSERT INTO filed VALUES (1, 'x', 1, 4711);", "1 keys lead to no ticket"),
        ("UPDATE record SET token = 4711;", "the token 4711 is in use"),
    ];
    for (damage, told) in contradictions {
        let doctor = Doctor::new();
        doctor.world.acquire(&["db"]);
        sql(&doctor, damage);
        doctor.quick().says("store", "PASS", "1 leases");
        doctor.full().says("store", "FAIL", told).fix("store", "leases.db* away");
    }
}

#[test]
fn a_record_that_cannot_be_read_fails() {
    let doctor = Doctor::new();
    doctor.world.acquire(&["db"]);
    sql(&doctor, "UPDATE record SET claim = x'ff';");
    doctor.quick().says("store", "FAIL", "an impossible claim").fix("store", "leases.db* away");
}

#[test]
fn numbers_that_cannot_be_read_fail() {
    let doctor = Doctor::new().with_store();
    fs::write(doctor.state().join("tokens"), "rubbish").unwrap();
    doctor.quick().says("store", "FAIL", "tokens is damaged");
}
