//! Files that are broken, huge, or made to hurt: never a panic, never much time or memory.

use std::time::Duration;

use lockkeeper_stages::{File, MAX_BYTES, MAX_DEPTH, StagesError};
use proptest::prelude::*;
use rustix::time::{ClockId, clock_gettime};

use crate::{BAKERY, EXAMPLE, SHOP, WEATHER, codes, file, fuzz};

/// Far more than reading any of these takes.
const LIMIT: Duration = Duration::from_secs(20);

/// The processor time of this thread: what else the machine does is not counted.
fn spent() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap(), time.tv_nsec.try_into().unwrap())
}

proptest! {
    #[test]
    fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        fuzz::check(&bytes);
    }

    #[test]
    fn any_marks_of_yaml_are_survived(text in "[-:{}\\[\\],&*!|>'\"%@`#?\\n\\t ~<a1.]{0,200}") {
        fuzz::check(text.as_bytes());
    }

    /// Real files with a piece taken out, doubled or replaced.
    #[test]
    fn changed_files_are_survived(
        which in 0..4_usize,
        from in any::<prop::sample::Index>(),
        length in 0..40_usize,
        instead in "[-:{}\\[\\],&*!|>'\"\\n a0]{0,12}",
    ) {
        let text = [SHOP, WEATHER, EXAMPLE, BAKERY][which];
        let from = from.index(text.len());
        let to = (from + length).min(text.len());
        let mut bytes = text.as_bytes()[..from].to_vec();
        bytes.extend(instead.as_bytes());
        bytes.extend(&text.as_bytes()[to..]);
        fuzz::check(&bytes);
    }

    /// Keys that are known, in places where nobody expects them.
    #[test]
    fn shapes_that_are_wrong_everywhere_are_survived(parts in proptest::collection::vec((0..24_usize, 0..8_usize, 0..4_usize), 0..30)) {
        const KEYS: [&str; 24] = [
            "parallel_groups", "P1", "group_id", "agents", "name", "conflict_paths", "can_parallel", "max_concurrent",
            "dependencies", "source", "target", "conflict_detection", "rules", "severity", "action", "paths", "priority",
            "downgrade_rules", "condition", "conflict_resolution", "timeout", "autotune", "workflow_phase_parallel", "<<",
        ];
        const VALUES: [&str; 8] = ["", "x", "[a, b]", "{a: b}", "7", "'**'", "'load > 3'", "~"];
        let mut text = String::new();
        for (key, value, depth) in parts {
            let dash = if value % 3 == 0 { "- " } else { "" };
            text.push_str(&format!("{}{dash}{}: {}\n", "  ".repeat(depth), KEYS[key], VALUES[value]));
        }
        fuzz::check(text.as_bytes());
    }
}

#[test]
fn aliases_of_aliases_are_bounded() {
    let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..40 {
        let before = level - 1;
        text.push_str(&format!("a{level}: &a{level} [{}]\n", vec![format!("*a{before}"); 10].join(", ")));
    }
    let begun = spent();
    assert_eq!(codes(&file(&text))[0].0, "TOO_LARGE");
    assert!(spent() - begun < LIMIT, "{:?}", spent() - begun);
    assert_eq!(codes(&file("a: &a [*a]\n"))[0].0, "YAML_ALIAS");
}

#[test]
fn depth_is_bounded_also_through_aliases() {
    for text in [
        format!("a: {}x{}\n", "[".repeat(MAX_DEPTH), "]".repeat(MAX_DEPTH)),
        "- ".repeat(10_000),
        "{".repeat(100_000),
        "[".repeat(100_000),
        "? ".repeat(10_000),
    ] {
        let file = file(&text);
        assert!(file.errors().next().is_some(), "{}", &text[..20]);
    }
    let mut chain = format!("a0: &a0 {}x{}\n", "[".repeat(40), "]".repeat(40));
    for level in 1..30 {
        chain.push_str(&format!("a{level}: &a{level} {}*a{}{}\n", "[".repeat(40), level - 1, "]".repeat(40)));
    }
    assert_eq!(codes(&file(&chain))[0].0, "TOO_DEEP");
}

#[test]
fn size_is_bounded() {
    let large = vec![b'#'; MAX_BYTES + 1];
    assert!(matches!(File::parse("x", &large), Err(StagesError::TooLarge { .. })));
    assert!(matches!(File::from_reader("x", std::io::repeat(b'#')), Err(StagesError::TooLarge { .. })));
    let begun = spent();
    for unit in ["- a\n", "a", "'", "a: b\n", "# x\n", "- *x\n", "[", "a,"] {
        fuzz::check(unit.repeat((1 << 18) / unit.len()).as_bytes());
    }
    let (head, entry) = ("parallel_groups:\n  P1:\n", "    - {id: a, agents: [x], conflict_paths: ['**']}\n");
    fuzz::check(format!("{head}{}", entry.repeat(200)).as_bytes());
    assert!(spent() - begun < LIMIT, "{:?}", spent() - begun);
}

/// Work grows with the size of the file, not with its square.
#[test]
fn many_of_anything_are_read_in_bounded_time() {
    let many = |line: &dyn Fn(usize) -> String| (0..2_000).map(line).collect::<String>();
    let groups = format!(
        "parallel_groups:\n  P1:\n{}",
        many(&|n| format!("    - {{id: g{n}, agents: [x], conflict_paths: [p{n}/**]}}\n"))
    );
    let begun = spent();
    for (name, text, code) in [
        ("keys", many(&|n| format!("k{n}: 1\n")), "NO_GROUPS"),
        ("phases", format!("parallel_groups:\n{}", many(&|n| format!("  Q{n}: []\n"))), "TOO_LARGE"),
        (
            "unknown",
            format!("{groups}dependencies:\n{}", many(&|n| format!("  - {{source: h{n}, target: g{n}}}\n"))),
            "UNKNOWN_GROUP",
        ),
        (
            "circle",
            format!(
                "{groups}dependencies:\n{}",
                many(&|n| format!("  - {{source: g{n}, target: g{}}}\n", (n + 1) % 2_000))
            ),
            "CYCLE",
        ),
        (
            "circles",
            format!(
                "{groups}dependencies:\n{}",
                many(&|n| format!("  - {{source: g{n}, target: g{}}}\n", n ^ 1))
            ),
            "CYCLE",
        ),
        (
            "whole phases",
            format!("{groups}dependencies:\n{}", many(&|_| "  - {source: P1, target: P1}\n".to_owned())),
            "TOO_LARGE",
        ),
    ] {
        let file = file(&text);
        assert!(codes(&file).iter().any(|(found, _)| *found == code), "{name}");
        assert!(spent() - begun < LIMIT, "{name}: {:?}", spent() - begun);
    }
    fuzz::check(groups.as_bytes());
    assert!(spent() - begun < LIMIT, "{:?}", spent() - begun);
}

#[test]
fn what_is_not_a_file_is_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(File::load(folder.path()), Err(StagesError::NotAFile { .. })));
    let pipe = folder.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    assert!(matches!(File::load(&pipe), Err(StagesError::NotAFile { .. })));
    assert!(matches!(File::load(&folder.path().join("none")), Err(StagesError::Unreadable { .. })));
}
