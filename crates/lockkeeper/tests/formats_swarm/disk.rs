//! A disk that is full: a healthy holder goes on, since its heartbeats have their blocks already.

use std::process::Command;

use crate::support::Nest;

/// Fills the disk, shows that it is full, and waits for two heartbeats.
const WORK: &str = r#"
    cd "$AI_SWARM_DIR"
    dd if=/dev/zero of=fill bs=1024 2>/dev/null
    if echo x > one-more && [ -s one-more ]; then echo "the disk is not full"; exit 3; fi
    beat() { grep heartbeat_at locks/a.lock; }
    for round in 1 2; do
        before=$(beat); tries=0
        while [ "$(beat)" = "$before" ]; do
            tries=$((tries + 1)); [ $tries -lt 3000 ] || { echo "no heartbeat"; exit 4; }
            sleep 0.01
        done
    done
    "$OURS" task lock b --worker w; code=$?
    [ $code = 1 ] || { echo "a new lock on a full disk: $code"; exit 5; }
    exit 42"#;

/// Requirements 64, 201.
#[test]
fn heartbeats_go_on_when_the_disk_is_full() {
    let nest = Nest::new();
    let ours = env!("CARGO_BIN_EXE_lockkeeper");
    let mount = r#"mount -t tmpfs -o size=128k tmpfs "$AI_SWARM_DIR" || exit 99
        exec "$OURS" task hold a --worker w --interval 20ms -- sh -c "$WORK""#;
    let mut command = Command::new("unshare");
    command.args(["--mount", "--map-root-user", "sh", "-c", mount]);
    command.env("AI_SWARM_DIR", nest.dir()).env("OURS", ours).env("WORK", WORK);
    let output = command.output().unwrap();
    let talk = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(99) || talk.contains("unshare") {
        eprintln!("skipped: needs a private mount namespace: {talk}");
        return;
    }
    assert_eq!(output.status.code(), Some(42), "{output:?}");
    assert!(talk.contains("cannot write the lock file"), "{talk}");
}
