//! Duration estimates of groups, from the durations of their agents in the file.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use lockkeeper_core::time::format_span;

use super::model::{Group, Phase};

/// The estimate if the phase has no duration at all.
pub(super) const UNKNOWN: Duration = Duration::from_secs(60);

/// Estimates each group of a phase. An agent without a duration takes as long as the others on average.
pub(super) fn estimates(phase: &Phase, chosen: &[usize]) -> Vec<Duration> {
    let known: Vec<Duration> = phase
        .groups
        .iter()
        .flat_map(|group| &group.agents)
        .filter_map(|agent| agent.estimated_time)
        .collect();
    let sum = known.iter().fold(Duration::ZERO, |sum, span| sum.saturating_add(*span));
    let usual = u32::try_from(known.len()).ok().and_then(|count| sum.checked_div(count)).unwrap_or(UNKNOWN);
    chosen.iter().map(|place| estimate(&phase.groups[*place], usual)).collect()
}

/// Estimates one group: its agents share its slots, the longest first.
fn estimate(group: &Group, usual: Duration) -> Duration {
    if let Some(span) = group.estimated_time {
        return span;
    }
    let mut spans: Vec<Duration> =
        group.agents.iter().map(|agent| agent.estimated_time.unwrap_or(usual)).collect();
    if spans.is_empty() {
        return usual;
    }
    spans.sort_unstable_by_key(|span| Reverse(*span));
    let slots = group.slots();
    let mut free: BinaryHeap<Reverse<Duration>> =
        std::iter::repeat_n(Reverse(Duration::ZERO), slots).collect();
    let mut end = Duration::ZERO;
    for span in spans {
        let Reverse(begin) = free.pop().unwrap_or_default();
        let done = begin.saturating_add(span);
        end = end.max(done);
        free.push(Reverse(done));
    }
    end
}

/// Formats a duration for people, with tenths of a second if it is short: `1.5s`, `10m 0s`.
pub fn span_in_words(span: Duration) -> String {
    let tenths = span.as_millis() / 100;
    if (10..100).contains(&tenths) && !tenths.is_multiple_of(10) {
        format!("{}.{}s", tenths / 10, tenths % 10)
    } else {
        format_span(span)
    }
}

impl Group {
    /// Returns how many of its agents work at a time: all of them, unless the file says fewer.
    pub fn slots(&self) -> usize {
        let agents = self.agents.len().max(1);
        let wanted = self.max_concurrent.as_ref().and_then(|most| usize::try_from(most.value).ok());
        wanted.filter(|most| *most > 0).map_or(agents, |most| most.min(agents))
    }
}
