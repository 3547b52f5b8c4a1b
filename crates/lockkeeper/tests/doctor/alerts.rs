//! Alerts: real counts above their limits, in `doctor` and in `locks`.

use lockkeeper_platform::wall_clock::WallTime;
use lockkeeper_testing::{Started, until_seen};
use rusqlite::Connection;

use crate::doctor::{Doctor, GONE, LONG_AGO};
use crate::machine::look;

/// Requirement 139. Nobody waits for a minute here: the ticket of one who waits is made older.
#[test]
fn a_wait_of_more_than_a_minute_raises_an_alert() {
    let doctor = Doctor::new();
    let mut holder = doctor.world.hold(&["db"]);
    let mut waiter = doctor.world.start(["exec", "db", "--", "true"]);
    doctor.world.until_waiting(1);
    assert_eq!(doctor.quick().alerts(), [""; 0]);
    let database = Connection::open(doctor.state().join("leases.db")).unwrap();
    database.execute("UPDATE record SET since = since - 61000000 WHERE rank IS NOT NULL", []).unwrap();
    drop(database);
    let diagnosis = doctor.quick();
    assert_eq!((diagnosis.alerts(), diagnosis.troubles()), (vec!["LOCK_WAIT"], vec!["alerts"]));
    diagnosis
        .says("alerts", "WARN", "LOCK_WAIT: somebody has waited for 1m")
        .fix("alerts", "lockkeeper locks");
    let alert = &diagnosis.value["alerts"][0];
    assert!(alert["value"].as_u64().unwrap() >= 61 && alert["limit"] == 60, "{alert}");
    let listing = doctor.world.run(["locks", "--json"]).code(0).json();
    assert_eq!(listing["alerts"][0]["code"], "LOCK_WAIT", "{listing}");
    doctor.world.run(["locks"]).code(0).prints("alert LOCK_WAIT: somebody has waited for 1m");
    for command in ["doctor", "status"] {
        let shown =
            doctor.world.run(["--lang", "ja", command]).code(0).prints("待機しています（上限 60 秒）");
        assert!(!shown.stdout().contains("somebody has waited"), "{}", shown.stdout());
    }
    // A waiter that died waits no longer.
    waiter.kill();
    assert_eq!(doctor.quick().alerts(), [""; 0]);
    holder.kill();
}

/// Requirement 140.
#[test]
fn holders_that_wait_for_each_other_raise_an_alert_and_fail() {
    let doctor = Doctor::new();
    let script = r#"
        exec 200<>"$("$0" group path "$1")" 201<>"$("$0" group path "$2")"
        "$0" group acquire "$1" --fd 200; echo held; read line
        exec "$0" group acquire "$2" --fd 201"#;
    let start = |held: &str, wanted: &str| {
        let mut command = doctor.world.command("bash");
        command.args(["-c", script, doctor.world.program(), held, wanted]);
        let mut process = Started::of(&mut command);
        assert_eq!(process.line(), "held");
        process
    };
    let mut stuck = [start("a", "b"), start("b", "a")];
    assert_eq!(doctor.quick().troubles(), [""; 0]);
    for one in &mut stuck {
        one.close_input();
    }
    // Nothing notifies a test when the kernel has put both to sleep.
    let diagnosis = until_seen("both wait", || doctor.quick(), |diagnosis| diagnosis.code == Some(1));
    diagnosis.says("deadlocks", "FAIL", "wait for each other: a, b").fix("deadlocks", "end one");
    assert_eq!(diagnosis.alerts(), ["DEADLOCKS"]);
    diagnosis.says("alerts", "WARN", "DEADLOCKS: 1 deadlocked");
}

/// Requirement 141. Orphans of all formats count together.
#[test]
fn more_than_five_orphans_raise_an_alert_until_they_are_put_away() {
    let doctor = Doctor::new();
    for name in ["a", "b", "c"] {
        doctor.world.run(["acquire", name, "--ttl", "1ms"]).code(0);
    }
    let task = format!(
        r#"{{"worker_id":"w","task_id":"t","acquired_at":"{LONG_AGO}","heartbeat_at":"{LONG_AGO}","ttl":1}}"#
    );
    doctor.write(&doctor.tasks().join("t.lock"), &task);
    doctor.write(&doctor.groups().join("registry.log"), &format!("g:{GONE}:g:1700000000:ACTIVE\n"));
    assert_eq!(doctor.quick().alerts(), [""; 0], "five are not more than five");
    let request = format!(
        r#"{{"version":"1.0","lock_type":"queue","run_id":"r","pid":{GONE},"host":"127.0.0.1","created_at":"{LONG_AGO}","expires_at":"{LONG_AGO}"}}"#
    );
    doctor.write(&doctor.requests().join("queue.lock.json"), &request);
    let diagnosis = doctor.quick();
    assert_eq!(diagnosis.alerts(), ["ORPHAN_LOCKS"], "{}", diagnosis.value);
    diagnosis.says("alerts", "WARN", "6 locks outlived their holders").fix("alerts", "doctor --full");
    let full = doctor.full();
    assert_eq!((full.alerts(), full.value["summary"]["recovered_count"].as_u64()), (vec![], Some(6)));
    for number in 0..6 {
        doctor.world.run(["acquire", &format!("n{number}"), "--ttl", "1ms"]).code(0);
    }
    let listing = doctor.world.run(["locks", "--json"]).code(0).json();
    assert_eq!(listing["alerts"][0]["code"], "ORPHAN_LOCKS", "{listing}");
}

/// Requirement 142.
#[test]
fn more_than_ten_downgrades_an_hour_raise_an_alert() {
    let folder = tempfile::tempdir().unwrap();
    let alerts = |downgrades| look(folder.path(), WallTime::now(), downgrades).alerts;
    assert_eq!(alerts(10), []);
    let raised = alerts(11);
    assert_eq!(
        raised.iter().map(|alert| (alert.code(), alert.value())).collect::<Vec<_>>(),
        [("DOWNGRADES", 11)]
    );
}
