//! Messages about a lock, in the language of the user.

use std::time::Duration;

use lockkeeper_core::printable::printable;

use super::decide::Question;
use super::judgement::{Judged, hours};
use super::translations::{Lang, Text};

/// Returns the text of a question.
pub(super) fn question(question: Question, judged: &Judged, lang: Lang) -> String {
    let text = match question {
        Question::Zombie => Text::ZombiePrompt,
        Question::Active => Text::ActivePrompt,
    };
    fill(text, judged, lang)
}

/// Returns why the lock is not free: the sentence of the format, if the file has a record.
pub(super) fn running(judged: &Judged, lang: Lang) -> String {
    match &judged.record {
        Some(record) => format!(
            "Sprint already running (PID: {}, session: {}, started: {})",
            record.pid,
            record.session_id.as_deref().unwrap_or_default(),
            record.started_at.as_str()
        ),
        None => Text::HeldUnknown.fill(lang, &[]),
    }
}

/// Returns why a lock of another user is not taken over.
pub(super) fn not_ours(judged: &Judged, lang: Lang) -> String {
    if judged.is_zombie() { fill(Text::NotOurs, judged, lang) } else { running(judged, lang) }
}

/// Fills a text with the values of a lock.
pub(super) fn fill(text: Text, judged: &Judged, lang: Lang) -> String {
    let unknown = Text::Unknown.fill(lang, &[]);
    let record = judged.record.as_ref();
    let value = |value: Option<String>| value.map_or_else(|| unknown.clone(), |value| plain(&value));
    // The format prescribes these words for its two languages.
    let state = judged.pid_alive.map(|alive| match (lang, alive) {
        (Lang::Ja, true) => "実行中",
        (Lang::Ja, false) => "終了",
        (Lang::En | Lang::Zh, true) => "alive",
        (Lang::En | Lang::Zh, false) => "dead",
    });
    let state = state.map(ToOwned::to_owned);
    text.fill(
        lang,
        &[
            ("pid", &value(record.map(|record| record.pid.to_string()))),
            ("state", &value(state)),
            ("session_id", &value(record.and_then(|record| record.session_id.clone()))),
            ("started_at", &value(record.map(|record| record.started_at.as_str().to_owned()))),
            ("age", &value(judged.age.map(|age| ago(age, Lang::En)))),
            ("ago", &value(judged.age.map(|age| ago(age, lang)))),
            ("epic_spec", &value(record.and_then(|record| record.epic_spec.clone()))),
        ],
    )
}

/// Returns an age as the format writes it: hours, with at most one digit after the point.
fn ago(age: Duration, lang: Lang) -> String {
    let hours = (hours(age) * 10.0).round() / 10.0;
    Text::Ago.fill(lang, &[("hours", &hours.to_string())])
}

/// Replaces control characters. Another program wrote the text, and it must not control the terminal.
fn plain(text: &str) -> String {
    printable(text).into_owned()
}

#[cfg(test)]
mod tests {
    use lockkeeper_platform::wall_clock::WallTime;

    use super::*;
    use crate::sprint::{Record, RecordError};

    const START: WallTime = WallTime::from_micros(1_770_503_400_000_000);

    fn judged(content: Result<Record, RecordError>) -> Judged {
        Judged::new(content, |_| Ok(true), START.after(Duration::from_secs(9000)), false)
    }

    /// Requirement 31.
    #[test]
    fn a_running_sprint_is_described_in_the_words_of_the_format() {
        let judged = judged(Ok(Record::new(12345, "sprint-1", "epic5", START)));
        let expected =
            "Sprint already running (PID: 12345, session: sprint-1, started: 2026-02-07T22:30:00Z)";
        for lang in [Lang::En, Lang::Ja, Lang::Zh] {
            assert_eq!(running(&judged, lang), expected);
        }
    }

    /// Requirements 28, 30.
    #[test]
    fn questions_show_the_values_of_the_file() {
        let judged = judged(Ok(Record::new(12345, "sprint-1\u{1b}[2J", "epic5", START)));
        let asked = question(Question::Active, &judged, Lang::Zh);
        let lines: Vec<&str> = asked.lines().collect();
        assert_eq!(
            lines[1..4],
            [
                "- PID: 12345 (进程状态: alive)",
                "- Session: sprint-1\\u{1b}[2J",
                "- 启动时间: 2026-02-07T22:30:00Z (2.5h ago)",
            ]
        );
    }

    #[test]
    fn a_missing_value_is_shown_as_unknown() {
        let judged = judged(Err(RecordError::Invalid(String::new())));
        assert!(
            question(Question::Zombie, &judged, Lang::En).contains("PID: unknown (process state: unknown)")
        );
        assert!(running(&judged, Lang::En).contains("counts as held"));
    }
}
