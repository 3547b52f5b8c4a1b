//! The group's own lock in the lock folder: it keeps the shell scripts of the format out, and shows in `group status`.

use lockkeeper_testing::{Finished, Started, until};

use crate::stages::Stages;

/// What `acquire_lock` of the shell scripts does, written from the design.
const FOREIGN: &str = r#"
mkdir -p "$LOCK_DIR"
exec 200>"$LOCK_DIR/$1.lock"
flock -x -w "$2" 200 || exit 9
echo "$1:$$:$1:$(date +%s):ACTIVE" >> "$LOCK_DIR/registry.log"
touch foreign
until test -e go; do sleep 0.01; done
"#;

/// What `cleanup_orphan_locks` of the shell scripts does: it removes the lock of every process that is dead.
const CLEANUP: &str = r#"
while IFS=: read -r group pid _ _ status; do
    if [ "$status" = ACTIVE ] && ! kill -0 "$pid" 2>/dev/null; then rm -f "$LOCK_DIR/$group.lock"; fi
done < "$LOCK_DIR/registry.log"
"#;

fn one_group(command: &str, more: &str) -> Stages {
    let stages = Stages::new(&format!(
        "parallel_groups:\n  P1: [{{group_id: api, conflict_paths: [\"api/**\"], command: '{command}'}}]\n{more}\n"
    ));
    std::fs::write(stages.path("foreign.sh"), FOREIGN).unwrap();
    stages
}

fn foreign(stages: &Stages, seconds: &str) -> Started {
    Started::of(stages.world.command("bash").args(["foreign.sh", "api", seconds]))
}

/// Requirements 126, 101.
#[test]
fn a_group_that_runs_keeps_the_scripts_out() {
    let stages = one_group("touch begun; until test -e end; do sleep 0.01; done", "");
    let running = stages.start("P1", &[]);
    stages.until_there("begun");
    foreign(&stages, "0").wait().code(9);
    let status = stages.world.json(&["group", "status"]);
    let group = &status["groups"][0];
    assert_eq!((&group["group"], &group["locked"]), (&"api".into(), &true.into()), "{status}");
    assert_eq!(group["active"].as_array().map(Vec::len), Some(1), "{status}");
    stages.world.run(["group", "exec", "api", "--timeout", "0", "--", "true"]).code(75);
    stages.world.touch("end");
    running.wait().code(0);
    let registry = std::fs::read_to_string(stages.world.beside("groups").join("registry.log")).unwrap();
    assert!(registry.contains(":RELEASED:") && !registry.contains(":ACTIVE"), "{registry}");
}

/// Requirement 126. What runs has the lock, not only the process that started it.
#[test]
fn after_a_kill_the_agents_keep_the_scripts_out_until_they_end() {
    let stages = one_group("touch begun; until test -e end; do sleep 0.01; done; touch done", "");
    let mut running = stages.start("P1", &[]);
    stages.until_there("begun");
    running.kill();
    Finished::of(stages.world.command("bash").args(["-c", CLEANUP])).code(0);
    foreign(&stages, "0").wait().code(9);
    stages.world.run(["group", "exec", "api", "--timeout", "0", "--", "true"]).code(75);
    let status = stages.world.json(&["group", "status"]);
    assert_eq!(status["groups"][0]["locked"], true, "{status}");
    stages.world.touch("end");
    stages.world.run(["group", "exec", "api", "--timeout", "60", "--", "test", "-e", "done"]).code(0);
}

/// Requirement 126. The agents that it adopts have the lock of the group.
#[test]
fn a_resume_waits_for_the_agents_of_a_killed_run_and_then_takes_the_lock() {
    let stages = one_group("touch begun; until test -e end; do sleep 0.01; done; echo done >> log", "");
    let mut running = stages.start("P1", &[]);
    stages.until_there("begun");
    running.kill();
    let mut command =
        stages.world.lockkeeper(["stages", "run", "STAGES.yml", "P1", "--load", "0", "--resume"]);
    let resumed = Started::of(command.env("LOCK_TIMEOUT", "0"));
    until("the group is started again", || stages.logged("STARTED").len() == 2);
    stages.world.touch("end");
    resumed.wait().code(0);
    assert_eq!(std::fs::read_to_string(stages.path("log")).unwrap(), "done\n");
}

/// Requirements 126, 105. It says for whom it waits, and for how long.
#[test]
fn a_group_waits_for_a_script_that_has_its_lock() {
    let stages = one_group("true", "");
    let script = foreign(&stages, "5");
    stages.until_there("foreign");
    let mut running = stages.world.start(["stages", "run", "STAGES.yml", "P1", "--load", "0"]);
    running.until_stderr("api: waits at most 5m 0s, the lock of group api is held by process");
    stages.world.touch("go");
    script.wait().code(0);
    running.wait().code(0);
}

/// Requirement 105.
#[test]
fn lock_timeout_limits_the_wait() {
    let stages = one_group("true", "conflict_resolution: {timeout: 1h, max_retries: 9}");
    let script = foreign(&stages, "5");
    stages.until_there("foreign");
    let mut command = stages.world.lockkeeper(["--json", "stages", "run", "STAGES.yml", "P1", "--load", "0"]);
    let document = Finished::of(command.env("LOCK_TIMEOUT", "0.1")).code(1).json();
    let why = document["groups"][0]["reason"].as_str().unwrap();
    assert!(
        why.contains("it did not get its lock within ") && why.contains("api is held by process"),
        "{document}"
    );
    stages.world.touch("go");
    script.wait().code(0);
    let registry = std::fs::read_to_string(stages.world.beside("groups").join("registry.log")).unwrap();
    assert!(registry.contains(":TIMEOUT:"), "{registry}");
}

/// Requirement 126. The folder that all scripts share would join unrelated repositories, so it has to be named.
#[test]
fn without_a_named_folder_no_lock_is_taken() {
    let stages = one_group("true", "");
    let mut command = stages.world.lockkeeper(["stages", "run", "STAGES.yml", "P1", "--load", "0"]);
    Finished::of(command.env_remove("LOCK_DIR")).code(0);
    assert!(!stages.world.beside("groups").exists());
    std::fs::write(stages.path("lockkeeper.toml"), "lock_dir = \"locks\"\n").unwrap();
    let mut command = stages.world.lockkeeper(["stages", "run", "STAGES.yml", "P1", "--load", "0"]);
    Finished::of(command.env_remove("LOCK_DIR")).code(0);
    assert!(stages.path("locks/api.lock").exists());
    let mut command = stages.world.lockkeeper(["--json", "group", "status"]);
    let status = Finished::of(command.env_remove("LOCK_DIR")).code(0).json();
    assert_eq!(status["groups"][0]["group"], "api", "the setting is for `group`, too: {status}");
}
