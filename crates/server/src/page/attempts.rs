//! The attempts of a run, read from its events.

use lockkeeper_core::run::{Reason, Status};
use lockkeeper_core::time::format_span;
use lockkeeper_engine::runs::StoredEvent;
use std::collections::BTreeMap;
use std::time::Duration;

use super::request_row::reason_words;
use super::status::{Badge, of_run};
use super::texts::Texts;
use super::times::{TimeFormat, TimePoint};

/// One attempt.
pub(super) struct AttemptRow {
    pub(super) number: u32,
    pub(super) badge: Badge,
    pub(super) why: Option<String>,
    pub(super) started: Option<TimePoint>,
    pub(super) took: Option<String>,
    /// How long the run waited before it.
    pub(super) waited: Option<String>,
    /// Whether the page shows its output.
    pub(super) is_shown: bool,
}

#[derive(Default)]
struct Span {
    started_at: Option<i64>,
    ended: Option<(i64, Status, Option<String>)>,
}

/// The attempts, the first one first.
pub(super) fn attempts(
    events: &[StoredEvent],
    shown: u32,
    texts: &'static Texts,
    times: &TimeFormat,
) -> Vec<AttemptRow> {
    let mut spans: BTreeMap<u32, Span> = BTreeMap::new();
    for event in events.iter().filter(|event| event.attempt > 0) {
        let span = spans.entry(event.attempt).or_default();
        match event.kind.as_str() {
            "claimed" | "retried" => span.started_at = span.started_at.or(Some(event.at)),
            "retrying" => span.ended = Some((event.at, Status::Failed, why(event, texts))),
            "ended" => {
                let status = event.to.parse().unwrap_or(Status::Failed);
                span.ended = Some((event.at, status, why(event, texts)));
            }
            _ => {}
        }
    }
    let mut before = events.first().map(|event| event.at);
    let mut rows = Vec::new();
    for (number, span) in spans {
        let between = |from: Option<i64>, to: Option<i64>| {
            let micros = u64::try_from(to?.saturating_sub(from?)).unwrap_or(0);
            Some(format_span(Duration::from_micros(micros)))
        };
        let ended_at = span.ended.as_ref().map(|(at, _, _)| *at);
        let status = span.ended.as_ref().map_or(Status::Running, |(_, status, _)| *status);
        rows.push(AttemptRow {
            number,
            badge: of_run(status, texts),
            started: span.started_at.map(|at| times.since_micros(at)),
            took: between(span.started_at, ended_at),
            waited: between(before, span.started_at),
            is_shown: number == shown,
            why: span.ended.and_then(|(_, _, why)| why),
        });
        before = ended_at;
    }
    rows
}

fn why(event: &StoredEvent, texts: &Texts) -> Option<String> {
    let reason = event.reason.as_deref().and_then(Reason::from_code);
    event.message.clone().or_else(|| reason.map(|reason| reason_words(reason, None, texts)))
}

#[cfg(test)]
mod tests {
    use lockkeeper_core::run::EventId;
    use lockkeeper_core::time::Moment;
    use lockkeeper_engine::messages::Language;

    use super::*;

    fn event(seq: u32, kind: &str, to: &str, attempt: u32, seconds: i64) -> StoredEvent {
        StoredEvent {
            position: u64::from(seq),
            id: EventId { run: "RUN-1".parse().unwrap(), seq },
            request: "RQ-1".to_owned(),
            at: seconds * 1_000_000,
            kind: kind.to_owned(),
            from: None,
            to: to.to_owned(),
            attempt,
            claim: 1,
            reason: (kind == "retrying").then(|| "WORKER_SILENT".to_owned()),
            message: None,
        }
    }

    #[test]
    fn each_attempt_has_its_wait_its_time_and_its_end() {
        let events = [
            event(1, "submitted", "queued", 0, 0),
            event(2, "claimed", "running", 1, 10),
            event(3, "retrying", "queued", 1, 40),
            event(4, "retried", "running", 2, 100),
        ];
        let times = TimeFormat::new(Moment::from_micros(0));
        let rows = attempts(&events, 2, Texts::of(Language::En), &times);
        let told: Vec<_> = rows.iter().map(|row| (row.number, row.badge.text, row.is_shown)).collect();
        assert_eq!(told, [(1, "failed", false), (2, "running", true)]);
        let spans: Vec<_> = rows.iter().map(|row| (row.waited.as_deref(), row.took.as_deref())).collect();
        assert_eq!(spans, [(Some("10s"), Some("30s")), (Some("1m 0s"), None)]);
        assert_eq!(rows[0].why.as_deref(), Some("Its worker did not respond"));
    }
}
