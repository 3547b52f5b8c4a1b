//! What a line looks like, byte for byte, and what else is read.

use lockkeeper_formats::json::Json;
use lockkeeper_formats::status::{LineError, MAX_LINE, State, StatusLine, StatusLog};
use lockkeeper_platform::wall_clock::WallTime;
use serde_json::{Map, Value, json};

const SAMPLES: [&str; 2] = [
    r#"{"state": "START", "task_id": "task-123", "timestamp": "2026-01-31T12:00:00.000Z", "message": "开始执行"}"#,
    r#"{"state": "DONE", "task_id": "task-123", "timestamp": "2026-01-31T12:00:05.000Z", "message": "执行完成"}"#,
];

fn noon() -> WallTime {
    "2026-01-31T12:00:00Z".parse().unwrap()
}

fn object(value: &Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

/// Requirements 52, 56.
#[test]
fn the_samples_come_back_byte_for_byte() {
    for sample in SAMPLES {
        assert_eq!(sample.parse::<StatusLine>().unwrap().to_text(), sample);
    }
    let built = StatusLine::new(State::Start, "task-123", noon()).unwrap().with_message("开始执行");
    assert_eq!(built.to_text(), SAMPLES[0]);
    let folder = tempfile::tempdir().unwrap();
    let log = StatusLog::open(folder.path()).unwrap();
    for sample in SAMPLES {
        log.append(&sample.parse().unwrap()).unwrap();
    }
    let written = std::fs::read_to_string(log.path()).unwrap();
    assert_eq!(written, format!("{}\n{}\n", SAMPLES[0], SAMPLES[1]));
}

/// Requirement 53.
#[test]
fn only_six_states_are_written() {
    let words: Vec<&str> = State::WRITTEN.iter().map(|state| state.as_str()).collect();
    assert_eq!(words, ["START", "DONE", "WAIT", "ERROR", "HELP", "SKIP"]);
    for word in words {
        let line = StatusLine::new(word.parse().unwrap(), "t", noon()).unwrap().to_text();
        assert_eq!(line.parse::<StatusLine>().unwrap().state().as_str(), word);
    }
    for word in ["", "start", "START ", "RUNNING", "ASSIGNED2"] {
        assert!(matches!(word.parse::<State>(), Err(LineError::State(_))), "{word}");
    }
    assert!(matches!(StatusLine::new(State::Assigned, "t", noon()), Err(LineError::NeverWritten)));
}

/// Requirements 53, 203.
#[test]
fn assigned_is_read_and_not_written_back() {
    let text = r#"{"state": "ASSIGNED", "task_id": "t", "timestamp": "2026-01-31T12:00:00.000Z"}"#;
    let line: StatusLine = text.parse().unwrap();
    assert_eq!(line.state(), State::Assigned);
    let folder = tempfile::tempdir().unwrap();
    let log = StatusLog::open(folder.path()).unwrap();
    assert!(log.append(&line).is_err());
    assert!(!log.path().exists());
}

/// Requirements 54, 71.
#[test]
fn what_lacks_a_required_field_is_no_status_line() {
    for text in [
        r#"{"task_id": "t", "timestamp": "2026-01-31T12:00:00.000Z"}"#,
        r#"{"state": "DONE", "timestamp": "2026-01-31T12:00:00.000Z"}"#,
        r#"{"state": "DONE", "task_id": "", "timestamp": "2026-01-31T12:00:00.000Z"}"#,
        r#"{"state": "DONE", "task_id": "t"}"#,
        r#"{"state": "DONE", "task_id": "t", "timestamp": "yesterday"}"#,
        r#"{"state": "NEW", "task_id": "t", "timestamp": "2026-01-31T12:00:00.000Z"}"#,
        r#"["DONE", "t", "2026-01-31T12:00:00.000Z"]"#,
        r#"{"state": "DONE", "task_id": "t", "timestamp": "2026-01-31T12:00:00.000Z""#,
        r#"{"state": "DONE"}{"state": "DONE", "task_id": "t", "timestamp": "2026-01-31T12:00:00.000Z"}"#,
        "DONE",
        "",
    ] {
        let error = text.parse::<StatusLine>().unwrap_err();
        assert!(!error.hint().is_empty(), "{text}");
    }
}

/// Requirement 55.
#[test]
fn message_and_meta_are_optional_and_meta_carries_the_rest() {
    let bare = StatusLine::new(State::Done, "t", noon()).unwrap();
    let text = r#"{"state": "DONE", "task_id": "t", "timestamp": "2026-01-31T12:00:00.000Z"}"#;
    assert_eq!(bare.to_text(), text);
    let meta =
        object(&json!({ "error_type": "Timeout", "retry_count": 2, "timeout_sec": 1.5, "x": [null, {}] }));
    let full = bare.with_meta(meta.clone()).unwrap().with_worker("worker-1").unwrap();
    let text = concat!(
        r#"{"state": "DONE", "task_id": "t", "timestamp": "2026-01-31T12:00:00.000Z", "#,
        r#""meta": {"error_type": "Timeout", "retry_count": 2, "timeout_sec": 1.5, "x": [null, {}], "#,
        r#""worker_id": "worker-1"}}"#
    );
    assert_eq!(full.to_text(), text);
    let read: StatusLine = text.parse().unwrap();
    assert_eq!(read, full);
    assert_eq!(
        read.meta().unwrap().get("retry_count").cloned(),
        meta.get("retry_count").cloned().map(Json::from)
    );
}

/// Requirements 71, 203.
#[test]
fn what_other_programs_write_is_read() {
    for (text, expected) in [
        (r#"{"ts":"2026-01-31T12:00:00.000Z","state":"DONE","task_id":"t","worker_id":"w"}"#, Some("w")),
        (r#"{"ts": 1769860800.0, "state": "DONE", "task_id": "t", "worker_id": 7}"#, Some("7")),
        (r#"{"timestamp":"2026-01-31T12:00:00","state":"DONE","task_id":"t","worker_id":null}"#, None),
        (r#"{"timestamp":"2026-01-31T21:00:00+09:00","state":"DONE","task_id":"t","new":{"a":[1]}}"#, None),
        (
            r#"{"timestamp":null,"ts":"2026-01-31T12:00:00Z","state":"DONE","task_id":"t","meta":{"worker_id":"w"},"worker_id":"x"}"#,
            Some("w"),
        ),
        (
            r#"{"timestamp":"2026-01-31T12:00:00.0004Z","state":"DO\u004eE","task_id":"\u0074","meta":[1]}"#,
            None,
        ),
    ] {
        let line: StatusLine = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!((line.state(), line.task(), line.at()), (State::Done, "t", noon()), "{text}");
        assert_eq!(line.worker(), expected, "{text}");
        let again: StatusLine = line.to_text().parse().unwrap();
        assert_eq!(again, line, "what is read can be written in our own words");
    }
}

/// Requirement 52.
#[test]
fn a_line_stays_one_line_whatever_is_in_it() {
    let text = "a\nb\r\n\u{2028}\u{85}\0\u{7f}\u{1b}[31m\"\\ \u{1f600}";
    let line = StatusLine::new(State::Help, "t", noon()).unwrap().with_message(text);
    let written = line.to_text();
    assert!(
        !written.contains(|c: char| c.is_ascii_control() && c != '\u{7f}' || "\u{2028}\u{85}".contains(c))
    );
    assert_eq!(written.parse::<StatusLine>().unwrap().message(), Some(text));
}

/// Requirement 54.
#[test]
fn bad_ids_are_refused() {
    let long = "x".repeat(256);
    for id in ["", "a\nb", long.as_str()] {
        assert!(StatusLine::new(State::Done, id, noon()).is_err(), "{id:?}");
        assert!(StatusLine::new(State::Done, "t", noon()).unwrap().with_worker(id).is_err(), "{id:?}");
    }
}

#[test]
fn a_line_has_a_greatest_length_and_depth() {
    let folder = tempfile::tempdir().unwrap();
    let log = StatusLog::open(folder.path()).unwrap();
    let sized =
        |length: usize| StatusLine::new(State::Done, "t", noon()).unwrap().with_message("x".repeat(length));
    let fits = MAX_LINE - sized(0).to_text().len() - 1;
    log.append(&sized(fits)).unwrap();
    let error = log.append(&sized(fits + 1)).unwrap_err();
    assert!(error.to_string().contains(&(MAX_LINE + 1).to_string()), "{error}");
    assert_eq!(std::fs::metadata(log.path()).unwrap().len(), MAX_LINE as u64);
    let deep = |depth: usize| {
        let nested = (0..depth).fold(json!(1), |inner, _| json!([inner]));
        StatusLine::new(State::Done, "t", noon()).unwrap().with_meta(object(&json!({ "x": nested })))
    };
    assert!(deep(63).unwrap().to_text().parse::<StatusLine>().is_ok());
    assert!(matches!(deep(64), Err(LineError::TooDeep)));
}

/// Requirement 56. Numbers of any size come through.
#[test]
fn integers_of_any_size_survive() {
    let digits = "9".repeat(400);
    for number in ["123456789012345678901234567890", "-18446744073709551616", &digits] {
        let line = format!(
            r#"{{"state": "DONE", "task_id": "t", "timestamp": "2026-01-31T12:00:00.000Z", "meta": {{"n": [{number}]}}}}"#
        );
        assert_eq!(line.parse::<StatusLine>().unwrap().to_text(), line);
        let world = lockkeeper_testing::world!();
        let meta = format!(r#"{{"n": {number}}}"#);
        let written =
            world.run(["--json", "status", "emit", "DONE", "--task", "t", "--meta", &meta]).code(0).stdout();
        assert!(written.contains(&format!(r#""meta": {{"n": {number}}}"#)), "{written}");
        let log = std::fs::read_to_string(world.beside("swarm").join("status.log")).unwrap();
        assert_eq!(log, written);
    }
}
