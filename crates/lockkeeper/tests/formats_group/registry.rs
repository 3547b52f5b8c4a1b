//! The registry under many writers, ours and others.

use std::process::Child;

use crate::site::{Site, text};

fn writers(site: &Site, count: usize) -> Vec<Child> {
    (0..count).map(|n| site.group(&["exec", &format!("g{n}"), "--", "true"]).spawn().unwrap()).collect()
}

/// Requirements 101, 102, 103.
#[test]
fn thirty_of_ours_and_an_appending_shell_lose_nothing() {
    let site = Site::new();
    site.write_registry("");
    let script = r#"for n in $(seq 300); do echo "f$n:$$:f$n:1728456789:RELEASED:1728456790" >>"$LOCK_DIR/registry.log"; done"#;
    let mut shell = site.command("bash").args(["-c", script]).spawn().unwrap();
    let ours = writers(&site, 30);
    assert!(ours.into_iter().all(|mut process| process.wait().unwrap().success()));
    assert!(shell.wait().unwrap().success());
    let registry = site.registry();
    let lost: Vec<usize> = (1..=300).filter(|n| site.statuses(&format!("f{n}")) != ["RELEASED"]).collect();
    assert!(lost.is_empty(), "{lost:?}");
    assert!((0..30).all(|n| site.statuses(&format!("g{n}")) == ["RELEASED"]), "{registry}");
    assert_eq!(registry.lines().count(), 331);
}

/// Requirements 101, 103.
#[test]
fn editing_scripts_tear_no_line_and_what_they_undo_is_done_again() {
    let site = Site::new();
    site.write_registry("kept by all of us\n");
    let script = r#"while [ -e go ]; do sed -i 's/^x:/y:/' "$LOCK_DIR/registry.log"; done"#;
    std::fs::write(site.dir.path().join("go"), "").unwrap();
    let mut editor = site.command("bash").args(["-c", script]).spawn().unwrap();
    let ours = writers(&site, 30);
    assert!(ours.into_iter().all(|mut process| process.wait().unwrap().success()));
    std::fs::remove_file(site.dir.path().join("go")).unwrap();
    assert!(editor.wait().unwrap().success());
    assert!(site.run(&["cleanup"]).status.success());
    let registry = site.registry();
    let status = site.json(&["status"]);
    assert_eq!(status["odd_lines"].as_array().unwrap().len(), 1, "{registry}");
    assert!(!registry.contains(":ACTIVE"), "{registry}");
    assert!(registry.contains("\nkept by all of us\n"));
    for n in 0..30 {
        // A line may have been lost to an editor that read the file before it, or stand there twice when two of their
        // copies took turns while it was done again; but it is never torn, and never says two things.
        let mut statuses = site.statuses(&format!("g{n}"));
        statuses.dedup();
        assert!(statuses.len() <= 1, "{registry}");
    }
}

/// Requirement 102.
#[test]
fn statuses_of_other_programs_are_read() {
    let site = Site::new();
    site.write_registry("a:7:a:100:FAILED\nb:7:b:100:FORCE_RELEASED:101\nc:7:c:100:ORPHAN_CLEANED:102\n");
    assert!(site.json(&["status"])["odd_lines"].as_array().unwrap().is_empty());
    let output = site.run(&["force-release-all", "--yes"]);
    assert!(text(&output.stderr).contains("0 struck off"), "{output:?}");
}
