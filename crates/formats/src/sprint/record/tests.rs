//! Records in the forms that people and programs write.

use std::time::Duration;

use super::*;
use crate::safe_open;

const SEED: &str = r#"# .sprint-running
pid: 12345                                    # 当前进程 PID
session_id: "sprint-2026-02-07-001"           # Sprint 会话唯一标识
started_at: "2026-02-07T22:30:00Z"            # 锁创建时间（ISO 8601 UTC）
epic_spec: "epic5"                            # 正在执行的 Epic 标识
lock_version: 1                               # 锁文件格式版本（向后兼容）
"#;
/// 2026-02-07T22:30:00Z.
const SEED_TIME: WallTime = WallTime::from_micros(1_770_503_400_000_000);

fn seed() -> Record {
    Record::new(12345, "sprint-2026-02-07-001", "epic5", SEED_TIME)
}

fn invalid(text: &str) -> String {
    match Record::parse(text.as_bytes()) {
        Err(RecordError::Invalid(reason)) => reason,
        other => panic!("{text:?} gave {other:?}"),
    }
}

/// Requirements 15, 203.
#[test]
fn the_example_of_the_format_is_parsed() {
    assert_eq!(Record::parse(SEED.as_bytes()), Ok(seed()));
}

/// Requirement 15.
#[test]
fn a_new_record_is_written_as_the_format_says() {
    let text = "pid: 12345\nsession_id: \"sprint-2026-02-07-001\"\nstarted_at: \"2026-02-07T22:30:00Z\"\n\
                epic_spec: \"epic5\"\nlock_version: 1\n";
    assert_eq!(seed().to_yaml(), text);
    let later = Record::new(1, "s", "e", SEED_TIME.after(Duration::from_millis(999)));
    assert_eq!(later.started_at, seed().started_at, "the format has whole seconds");
}

/// Requirement 203.
#[test]
fn forms_that_programs_write_in_practice_are_parsed() {
    let json = r#"{"started_at": "2026-02-07T22:30:00Z", "mode": "acquire", "pid": 12345,
        "epic_spec": "epic5", "session_id": "sprint-2026-02-07-001"}"#;
    let record = Record::parse(json.as_bytes()).unwrap();
    assert_eq!(record, Record { lock_version: None, ..seed() });
    assert!(record.version_is_known());
    let loose =
        "---\nextra: {deep: [1, 2]}\nlock_version: '1'\nstarted_at: 2026-02-07T22:30:00Z\npid: '12345'\n";
    let record = Record::parse(loose.as_bytes()).unwrap();
    assert_eq!(record, Record { session_id: None, epic_spec: None, ..seed() });
    let numbers = "pid: 5\nsession_id: 007\nepic_spec: 5\nstarted_at: 2026-02-07T22:30:00Z\n";
    let record = Record::parse(numbers.as_bytes()).unwrap();
    assert_eq!((record.session_id.as_deref(), record.epic_spec.as_deref()), (Some("007"), Some("5")));
}

#[test]
fn times_with_an_offset_or_with_none_are_understood() {
    for text in [
        "2026-02-08T07:30:00+09:00",
        "2026-02-07T22:30:00.000000",
        "2026-02-07 22:30:00Z",
        "2026-02-07T22:30:00z",
    ] {
        let record = Record::parse(format!("pid: 1\nstarted_at: '{text}'\n").as_bytes()).unwrap();
        assert_eq!(record.started_at.time(), SEED_TIME, "{text}");
        assert_eq!(record.started_at.as_str(), text);
    }
}

/// Requirement 18.
#[test]
fn anything_else_is_refused() {
    let broken = [
        "",
        "\n",
        "pid",
        "pid: [",
        "- 1\n- 2\n",
        "pid: 1\n",
        "started_at: 2026-02-07T22:30:00Z\n",
        "pid: 1.5\nstarted_at: 2026-02-07T22:30:00Z\n",
        "pid: +1\nstarted_at: 2026-02-07T22:30:00Z\n",
        "pid:\nstarted_at: 2026-02-07T22:30:00Z\n",
        "pid: 99999999999999999999\nstarted_at: 2026-02-07T22:30:00Z\n",
        "pid: 1\nstarted_at: yesterday\n",
        "pid: 1\nstarted_at: 1770503400\n",
        "pid: {a: 1}\nstarted_at: 2026-02-07T22:30:00Z\n",
        "pid: 1\nstarted_at: 2026-02-07T22:30:00Z\n---\npid: 2\n",
        "\u{0}\u{0}\u{0}\u{0}",
    ];
    for text in broken {
        assert!(!invalid(text).is_empty());
    }
    assert!(Record::parse(b"pid: 1\nstarted_at: \xff\n").is_err());
}

#[test]
fn duplicate_keys_are_refused_at_any_depth() {
    let time = "started_at: 2026-02-07T22:30:00Z\n";
    assert!(invalid(&format!("pid: 1\npid: 2\n{time}")).contains("pid"));
    assert!(invalid(&format!("pid: 1\n{time}mode: a\nmode: b\n")).contains("mode"));
    assert!(invalid(&format!("pid: 1\n{time}x: {{y: 1, y: 2}}\n")).contains('y'));
}

/// Requirement 148.
#[test]
fn a_file_made_to_exhaust_the_reader_is_refused_quickly() {
    let bomb = (1..30).fold("a0: &a0 [x, x]\n".to_owned(), |text, n| {
        let before = n - 1;
        format!("{text}a{n}: &a{n} [*a{before}, *a{before}, *a{before}, *a{before}]\n")
    });
    let tail = "pid: 1\nstarted_at: 2026-02-07T22:30:00Z\n";
    const MAX_BYTES: usize = safe_open::MAX_BYTES as usize;
    let deep = |open: &str| open.repeat(MAX_BYTES / open.len());
    let long = " ".repeat(MAX_BYTES);
    for text in
        [format!("{bomb}{tail}"), deep("["), deep("{a: "), deep("- "), deep("? "), format!("{tail}{long}")]
    {
        let begun = std::time::Instant::now();
        assert!(!invalid(&text).is_empty());
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?} for {:?}", begun.elapsed(), &text[..20]);
    }
}

#[test]
fn a_newer_version_is_parsed_if_it_has_the_known_fields() {
    let text = "pid: 1\nstarted_at: 2026-02-07T22:30:00Z\nlock_version: 2\n";
    assert!(!Record::parse(text.as_bytes()).unwrap().version_is_known());
    for (text, version) in [("lock_version: 2\nholder: {pid: 1}\n", "2"), ("lock_version: v3\n", "v3")] {
        assert_eq!(Record::parse(text.as_bytes()), Err(RecordError::UnknownVersion(version.to_owned())));
    }
    assert!(invalid("lock_version: 1\n").contains("pid"));
}

proptest::proptest! {
    /// Requirement 15.
    #[test]
    fn whatever_is_written_is_read_back(pid in 1..=4_194_304_u32, session in "\\PC{1,40}", epic in ".{1,40}") {
        let record = Record::new(pid, &session, &epic, SEED_TIME);
        proptest::prop_assert_eq!(Record::parse(record.to_yaml().as_bytes()), Ok(record));
    }

    #[test]
    fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
        let _ = Record::parse(&bytes);
    }
}
