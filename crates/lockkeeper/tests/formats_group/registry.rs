//! The registry with many writers: this program and other programs.

use lockkeeper_testing::Started;

use crate::groups::Groups;

/// Thirty processes take a group each, all at once.
fn thirty_writers(groups: &Groups) {
    let names: Vec<String> = (0..30).map(|number| format!("g{number}")).collect();
    let all: Vec<Vec<&str>> = names.iter().map(|name| vec!["exec", name, "--", "true"]).collect();
    groups.run_at_once(&all);
}

/// Requirements 101, 102, 103.
#[test]
fn thirty_of_ours_and_an_appending_shell_lose_nothing() {
    let groups = Groups::new();
    groups.write_registry("");
    let script = r#"for n in $(seq 300); do echo "f$n:$$:f$n:1728456789:RELEASED:1728456790" >>"$LOCK_DIR/registry.log"; done"#;
    let shell = Started::of(groups.world.command("bash").args(["-c", script]));
    thirty_writers(&groups);
    shell.wait().code(0);
    let registry = groups.registry();
    let lost: Vec<usize> = (1..=300).filter(|n| groups.statuses(&format!("f{n}")) != ["RELEASED"]).collect();
    assert!(lost.is_empty(), "{lost:?}");
    assert!((0..30).all(|n| groups.statuses(&format!("g{n}")) == ["RELEASED"]), "{registry}");
    assert_eq!(registry.lines().count(), 331);
}

/// Requirements 101, 103.
#[test]
fn editing_scripts_tear_no_line_and_what_they_undo_is_done_again() {
    let groups = Groups::new();
    groups.write_registry("kept by all of us\n");
    let script = r#"while [ -e go ]; do sed -i 's/^x:/y:/' "$LOCK_DIR/registry.log"; done"#;
    groups.world.touch("go");
    let editor = Started::of(groups.world.command("bash").args(["-c", script]));
    thirty_writers(&groups);
    std::fs::remove_file(groups.path("go")).unwrap();
    editor.wait().code(0);
    groups.run(&["cleanup"]).code(0);
    let registry = groups.registry();
    let status = groups.json(&["status"]);
    assert_eq!(status["odd_lines"].as_array().unwrap().len(), 1, "{registry}");
    assert!(!registry.contains(":ACTIVE"), "{registry}");
    assert!(registry.contains("\nkept by all of us\n"));
    for n in 0..30 {
        // `sed -i` may lose a line that was written after it read the file. The writer then writes it again, and
        // a line may be there twice. A line is never torn, and the lines of one group never differ.
        let mut statuses = groups.statuses(&format!("g{n}"));
        statuses.dedup();
        assert!(statuses.len() <= 1, "{registry}");
    }
}

/// Requirement 102.
#[test]
fn statuses_of_other_programs_are_read() {
    let groups = Groups::new();
    groups.write_registry("a:7:a:100:FAILED\nb:7:b:100:FORCE_RELEASED:101\nc:7:c:100:ORPHAN_CLEANED:102\n");
    assert!(groups.json(&["status"])["odd_lines"].as_array().unwrap().is_empty());
    groups.run(&["force-release-all", "--yes"]).code(0).says("0 marked as released");
}
