//! Tests of edits of settings: what is added, what stays, what is refused.

use super::*;

const COMMAND: &str = "[ -x '/opt/lockkeeper' ] || exit 0; exec '/opt/lockkeeper' hook";

fn with(harness: Harness, text: &str) -> String {
    with_entries(harness, text, COMMAND).unwrap()
}

/// Harnesses whose settings have other things, too.
const MIXED: [Harness; 6] =
    [Harness::Claude, Harness::Codex, Harness::Gemini, Harness::Qwen, Harness::Cursor, Harness::Windsurf];

#[test]
fn every_event_gets_one_entry_and_twice_changes_nothing() {
    for harness in MIXED {
        for text in
            ["", "{}", "{ }\n", "{\"a\": 1}", "{\n  \"hooks\": {}\n}\n", "{\"hooks\":{\"PreToolUse\":[]}}"]
        {
            let once = with(harness, text);
            let found = commands(&value(harness, &once).unwrap());
            assert_eq!(found.len(), events(harness).len(), "{harness:?} {text:?} {once}");
            assert!(found.iter().all(|(_, command)| command == COMMAND), "{once}");
            assert_eq!(with(harness, &once), once, "{harness:?} {text:?}");
        }
    }
}

#[test]
fn comments_order_and_blanks_of_others_stay() {
    let text = "// mine\n{\n\t\"z\": 1, /* two */\n\n\t\"hooks\": {\n\t\t\"BeforeTool\": [\n\t\t\t{\"matcher\": \"x\", \"hooks\": [{\"type\": \"command\", \"command\": \"other\"}]} // other\n\t\t]\n\t},\n\t\"a\":   [1,2]\n}\n";
    let changed = with(Harness::Gemini, text);
    for line in text.lines().filter(|line| line.len() > 5 && !line.contains("// other")) {
        assert!(changed.contains(line), "{line:?} in {changed}");
    }
    assert!(changed.contains("// other") && changed.contains("\"command\": \"other\""), "{changed}");
    let removed = without_entries(Harness::Gemini, &changed).unwrap().unwrap();
    assert_eq!(value(Harness::Gemini, &removed), value(Harness::Gemini, text));
    assert!(
        ["// mine", "/* two */", "// other"].iter().all(|comment| removed.contains(comment)),
        "{removed}"
    );
}

#[test]
fn an_older_entry_is_replaced_where_others_stay() {
    let text = r#"{"hooks": {"PreToolUse": [{"hooks": [{"command": "mine"}, {"command": "lockkeeper hook"}]}],
        "Gone": [{"hooks": [{"command": "/old/lockkeeper hook"}]}]}}"#;
    let changed = with(Harness::Claude, text);
    let settings = value(Harness::Claude, &changed).unwrap();
    assert!(commands(&settings).iter().all(|(_, command)| command == COMMAND), "{changed}");
    assert_eq!(settings["hooks"]["PreToolUse"][0]["hooks"][0]["command"], "mine", "{changed}");
    assert!(settings["hooks"]["Gone"].is_null(), "{changed}");
}

#[test]
fn removing_leaves_what_others_wrote() {
    for harness in MIXED {
        let before = r#"{"model": "m", "hooks": {"Mine": [{"command": "mine"}]}}"#;
        let removed = without_entries(harness, &with(harness, before)).unwrap().unwrap();
        assert_eq!(value(harness, &removed), value(harness, before), "{removed}");
        assert_eq!(without_entries(harness, before), Ok(None));
        assert_eq!(without_entries(harness, ""), Ok(None));
    }
}

#[test]
fn line_ends_stay() {
    let changed = with(Harness::Claude, "{\r\n  \"a\": 1\r\n}\r\n");
    assert!(!changed.replace("\r\n", "").contains('\n'), "{changed:?}");
}

#[test]
fn events_of_others_may_have_any_form() {
    let changed = with(Harness::Claude, "{\"hooks\": {\"Theirs\": {\"x\": 1}}}");
    assert_eq!(value(Harness::Claude, &changed).unwrap()["hooks"]["Theirs"]["x"], 1);
}

#[test]
fn deep_settings_are_refused_and_not_followed() {
    let deep = format!("{{\"a\": {}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    for harness in MIXED {
        assert!(with_entries(harness, &deep, COMMAND).is_err(), "{harness:?}");
    }
}

#[test]
fn what_the_harness_cannot_read_is_named() {
    let comment = with_entries(Harness::Claude, "{\n// no\n}", COMMAND).unwrap_err();
    assert!(matches!(comment, TextError::Comment("claude", _)), "{comment}");
    assert!(comment.to_string().contains("line 2"), "{comment}");
    for text in
        ["{", "{\"a\":1,}", "[]", "3", "{\"hooks\": []}", "{\"hooks\": {\"Stop\": {}}}", "{'a': 1}", "{} {}"]
    {
        assert!(with_entries(Harness::Claude, text, COMMAND).is_err(), "{text}");
    }
    assert!(matches!(
        with_entries(Harness::Claude, "{\"a\": \"\t\"}", COMMAND),
        Err(TextError::NotParsed(_))
    ));
    with_entries(Harness::Gemini, "{\n// yes\n}", COMMAND).unwrap();
}
