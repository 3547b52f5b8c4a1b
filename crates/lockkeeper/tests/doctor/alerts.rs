//! Counts above their limits, raised for real, in the doctor and in `locks`.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use lockkeeper_platform::wall_clock::WallTime;
use rusqlite::Connection;

use crate::clinic::{Clinic, GONE, LONG_AGO};
use crate::machine::look;

/// Requirement 139. Nobody waits for a minute here: the ticket of one who waits is made older.
#[test]
fn a_wait_of_more_than_a_minute_raises_an_alert() {
    let clinic = Clinic::new();
    let mut holder = clinic.env.hold(&["db"]);
    let mut waiter = clinic.env.start(["exec", "db", "--", "true"]);
    clinic.env.until_waiting(1);
    assert_eq!(clinic.quick().alerts(), [""; 0]);
    let database = Connection::open(clinic.state().join("leases.db")).unwrap();
    database.execute("UPDATE record SET since = since - 61000000 WHERE rank IS NOT NULL", []).unwrap();
    drop(database);
    let diagnosis = clinic.quick();
    assert_eq!((diagnosis.alerts(), diagnosis.troubles()), (vec!["LOCK_WAIT"], vec!["alerts"]));
    diagnosis
        .says("alerts", "WARN", "LOCK_WAIT: somebody has waited for 1m")
        .fix("alerts", "lockkeeper locks");
    let alert = &diagnosis.value["alerts"][0];
    assert!(alert["value"].as_u64().unwrap() >= 61 && alert["limit"] == 60, "{alert}");
    let listing = clinic.env.run(["locks", "--json"]).code(0).json();
    assert_eq!(listing["alerts"][0]["code"], "LOCK_WAIT", "{listing}");
    let _ = clinic.env.run(["locks"]).code(0).prints("alert LOCK_WAIT: somebody has waited for 1m");
    // A waiter that died waits no longer.
    waiter.kill();
    assert_eq!(clinic.quick().alerts(), [""; 0]);
    holder.kill();
}

/// Requirement 140.
#[test]
fn holders_that_wait_for_each_other_raise_an_alert_and_fail() {
    let clinic = Clinic::new();
    let script = r#"
        exec 200<>"$("$0" group path "$1")" 201<>"$("$0" group path "$2")"
        "$0" group acquire "$1" --fd 200; echo held; read line
        exec "$0" group acquire "$2" --fd 201"#;
    let start = |held: &str, wanted: &str| {
        let mut command = clinic.env.command("bash");
        command.args(["-c", script, crate::env::PROGRAM, held, wanted]);
        let mut process =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "held\n");
        process
    };
    let mut stuck = [start("a", "b"), start("b", "a")];
    assert_eq!(clinic.quick().troubles(), [""; 0]);
    for one in &mut stuck {
        drop(one.stdin.take());
    }
    // Nobody tells when the kernel has put the second one to sleep.
    let begun = Instant::now();
    let diagnosis = loop {
        let diagnosis = clinic.quick();
        if diagnosis.code == Some(1) {
            break diagnosis;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{}", diagnosis.value);
    };
    diagnosis.says("deadlocks", "FAIL", "wait for each other: a, b").fix("deadlocks", "end one");
    assert_eq!(diagnosis.alerts(), ["DEADLOCKS"]);
    diagnosis.says("alerts", "WARN", "DEADLOCKS: 1 deadlocked");
    for mut one in stuck {
        one.kill().unwrap();
        one.wait().unwrap();
    }
}

/// Requirement 141. Orphans of all formats count together.
#[test]
fn more_than_five_orphans_raise_an_alert_until_they_are_put_away() {
    let clinic = Clinic::new();
    for name in ["a", "b", "c"] {
        let _ = clinic.env.run(["acquire", name, "--ttl", "1ms"]).code(0);
    }
    let task = format!(
        r#"{{"worker_id":"w","task_id":"t","acquired_at":"{LONG_AGO}","heartbeat_at":"{LONG_AGO}","ttl":1}}"#
    );
    clinic.write(&clinic.tasks().join("t.lock"), &task);
    clinic.write(&clinic.groups().join("registry.log"), &format!("g:{GONE}:g:1700000000:ACTIVE\n"));
    assert_eq!(clinic.quick().alerts(), [""; 0], "five are not more than five");
    let request = format!(
        r#"{{"version":"1.0","lock_type":"queue","run_id":"r","pid":{GONE},"host":"127.0.0.1","created_at":"{LONG_AGO}","expires_at":"{LONG_AGO}"}}"#
    );
    clinic.write(&clinic.requests().join("queue.lock.json"), &request);
    let diagnosis = clinic.quick();
    assert_eq!(diagnosis.alerts(), ["ORPHAN_LOCKS"], "{}", diagnosis.value);
    diagnosis.says("alerts", "WARN", "6 locks outlived their holders").fix("alerts", "doctor --full");
    let full = clinic.full();
    assert_eq!((full.alerts(), full.value["summary"]["recovered_count"].as_u64()), (vec![], Some(6)));
    for number in 0..6 {
        let _ = clinic.env.run(["acquire", &format!("n{number}"), "--ttl", "1ms"]).code(0);
    }
    let listing = clinic.env.run(["locks", "--json"]).code(0).json();
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
