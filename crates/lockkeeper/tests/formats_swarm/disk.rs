//! A full disk: a holder goes on, because the blocks of its heartbeats are already allocated.

use lockkeeper_testing::{Finished, skip};

use crate::tasks::Tasks;

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
    let tasks = Tasks::new();
    let mount = r#"mount -t tmpfs -o size=128k tmpfs "$AI_SWARM_DIR" || exit 99
        exec "$OURS" task hold a --worker w --interval 20ms -- sh -c "$WORK""#;
    let mut command = tasks.world.command("unshare");
    command.args(["--mount", "--map-root-user", "sh", "-c", mount]);
    command.env("OURS", tasks.world.program()).env("WORK", WORK);
    let finished = Finished::of(&mut command);
    if finished.exit_code() == Some(99) || finished.stderr().contains("unshare") {
        return skip("a mount namespace of its own");
    }
    finished.code(42).says("cannot write the lock file");
}
