//! What is printed for each harness.

use super::*;

fn printed(answer: &Answer, harness: Harness, event: &Event) -> Value {
    let printed = answer.render(harness, event);
    assert_eq!((printed.code, printed.stderr.as_str()), (0, ""));
    if printed.stdout.is_empty() { Value::Null } else { serde_json::from_str(&printed.stdout).unwrap() }
}

#[test]
fn a_deny_is_what_each_harness_documents() {
    let deny = Answer::Deny("held".to_owned());
    let claude = json!({"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "deny",
        "permissionDecisionReason": "held"}});
    for harness in [Harness::Claude, Harness::Codex, Harness::Copilot, Harness::Qwen] {
        assert_eq!(printed(&deny, harness, &Event::BeforeTool), claude, "{harness:?}");
    }
    let before = &Event::BeforeTool;
    assert_eq!(printed(&deny, Harness::Gemini, before), json!({"decision": "deny", "reason": "held"}));
    assert_eq!(printed(&deny, Harness::OpenCode, before), json!({"deny": "held"}));
    let cursor = json!({"permission": "deny", "user_message": "held", "agent_message": "held"});
    assert_eq!(printed(&deny, Harness::Cursor, before), cursor);
}

#[test]
fn windsurf_alone_is_denied_by_an_exit_code() {
    let printed = Answer::Deny("held".to_owned()).render(Harness::Windsurf, &Event::BeforeTool);
    assert_eq!(printed, Printed { stdout: String::new(), stderr: "held".to_owned(), code: 2 });
}

#[test]
fn only_a_tool_that_has_not_run_can_be_denied() {
    let events =
        [Event::AfterTool, Event::ToolFailed, Event::TurnEnds, Event::SessionBegins, Event::SubagentEnds];
    for harness in Harness::ALL {
        for event in &events {
            assert_eq!(Answer::Deny("x".to_owned()).render(harness, event), Printed::default());
        }
    }
}

#[test]
fn passing_prints_nothing_and_nobody_ever_says_allow() {
    let events =
        [Event::BeforeTool, Event::AfterTool, Event::TurnBegins, Event::SessionBegins, Event::SubagentBegins];
    for harness in Harness::ALL {
        for event in &events {
            assert_eq!(Answer::Pass.render(harness, event), Printed::default());
            for answer in [Answer::Tell("news".to_owned()), Answer::Deny("held".to_owned())] {
                assert!(!answer.render(harness, event).stdout.contains("allow"));
            }
            let told = !Answer::Tell("news".to_owned()).render(harness, event).stdout.is_empty();
            assert_eq!(told, Answer::can_tell(harness, event), "{harness:?} {event:?}");
        }
    }
}

#[test]
fn a_model_is_told_under_the_name_of_the_event() {
    let tell = Answer::Tell("news".to_owned());
    let claude = printed(&tell, Harness::Claude, &Event::SubagentBegins);
    assert_eq!(
        claude,
        json!({"hookSpecificOutput": {"hookEventName": "SubagentStart", "additionalContext": "news"}})
    );
    let gemini = printed(&tell, Harness::Gemini, &Event::TurnBegins);
    assert_eq!(
        gemini,
        json!({"hookSpecificOutput": {"hookEventName": "BeforeAgent", "additionalContext": "news"}})
    );
    assert_eq!(printed(&tell, Harness::Copilot, &Event::AfterTool), json!({"additionalContext": "news"}));
    assert_eq!(printed(&tell, Harness::Cursor, &Event::AfterTool), json!({"additional_context": "news"}));
}

#[test]
fn texts_are_cut_and_have_no_control_characters() {
    let text = format!("first\u{1b}[2J\u{202e}\nsecond {}", "x".repeat(10_000));
    let printed = printed(&Answer::Deny(text), Harness::Gemini, &Event::BeforeTool);
    let reason = printed["reason"].as_str().unwrap();
    assert!(reason.starts_with("first[2J\nsecond x"), "{reason}");
    assert_eq!(reason.chars().count(), MAX_DENY);
}
