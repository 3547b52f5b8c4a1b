//! Puts what is known of a lock into words.

use lockkeeper_core::printable::printable;

use super::decide::Question;
use super::judge::{Judged, hours};
use super::texts::{Lang, Text};

/// The question, as the person is asked it.
pub(super) fn question(question: Question, judged: &Judged, lang: Lang) -> String {
    let text = match question {
        Question::Zombie => Text::ZombiePrompt,
        Question::Active => Text::ActivePrompt,
    };
    tell(text, judged, lang)
}

/// What stops whoever wants the lock; the sentence of the format where the file holds a record.
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

/// A sentence about a lock.
pub(super) fn tell(text: Text, judged: &Judged, lang: Lang) -> String {
    let unknown = Text::Unknown.fill(lang, &[]);
    let record = judged.record.as_ref();
    let value = |value: Option<String>| value.map_or_else(|| unknown.clone(), |value| plain(&value));
    let state = judged.pid_alive.map(|alive| if alive { "alive" } else { "dead" }.to_owned());
    text.fill(
        lang,
        &[
            ("pid", &value(record.map(|record| record.pid.to_string()))),
            ("state", &value(state)),
            ("session_id", &value(record.and_then(|record| record.session_id.clone()))),
            ("started_at", &value(record.map(|record| record.started_at.as_str().to_owned()))),
            ("age_hours", &value(judged.age.map(|age| hours(age).to_string()))),
            ("epic_spec", &value(record.and_then(|record| record.epic_spec.clone()))),
        ],
    )
}

/// Others wrote it: nothing in it may steer a terminal.
fn plain(text: &str) -> String {
    printable(text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sprint::{NoRecord, Record};
    use lockkeeper_platform::wall_clock::WallTime;
    use std::time::Duration;

    const START: WallTime = WallTime::from_micros(1_770_503_400_000_000);

    fn judged(content: Result<Record, NoRecord>) -> Judged {
        Judged::new(content, |_| Ok(true), START.after(Duration::from_secs(9000)), false)
    }

    /// Requirement 31.
    #[test]
    fn a_running_sprint_is_named_as_the_seed_names_it() {
        let judged = judged(Ok(Record::new(12345, "sprint-1", "epic5", START)));
        let expected =
            "Sprint already running (PID: 12345, session: sprint-1, started: 2026-02-07T22:30:00Z)";
        for lang in [Lang::En, Lang::Ja, Lang::Zh] {
            assert_eq!(running(&judged, lang), expected);
        }
    }

    /// Requirements 28, 30.
    #[test]
    fn questions_show_what_the_file_says() {
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
    fn what_the_file_does_not_say_is_unknown() {
        let judged = judged(Err(NoRecord::Invalid(String::new())));
        assert!(
            question(Question::Zombie, &judged, Lang::En).contains("PID: unknown (process state: unknown)")
        );
        assert!(running(&judged, Lang::En).contains("counts as held"));
    }
}
