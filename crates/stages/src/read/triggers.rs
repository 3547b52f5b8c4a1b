//! Triggers and comparisons in words: `system_load > 8.0`, `mutex_lock超过30秒`, `可用内存<20%`.
//!
//! The words are English, Chinese or Japanese. A text may compare a number (`≥2`, `> 30s`), or only have one (`连续3次`).

use std::time::Duration;

use super::values::read_span;
use crate::model::Trigger;

/// The number of failures before a downgrade, if the file has no number.
const FAILURES: u64 = 3;
/// The load above which groups run one by one, if the file has no number.
const LOAD: f64 = 4.0;
/// The share of memory in use, if the file has no number.
const MEMORY: f64 = 0.8;

const NETWORK: &[&str] = &["network", "connection", "connectivity", "网络", "網路", "ネットワーク"];
const MEMORY_WORDS: &[&str] = &["memory", "mem_", "ram", "内存", "記憶體", "メモリ"];
/// Of memory: the share that is left, not the share in use.
const AVAILABLE: &[&str] = &["available", "free", "可用", "空き"];
const LOAD_WORDS: &[&str] = &["load", "cpu", "负载", "負荷"];
const CRITICAL: &[&str] = &["critical", "关键路径", "クリティカル"];
const CONFLICT: &[&str] = &["conflict", "冲突", "衝突", "競合"];
const AGAIN: &[&str] = &["repeat", "again", "consecutive", "in a row", "连续", "連続"];
const DETECTED: &[&str] = &["detect", "found", "检测到", "検出"];
const LOCK: &[&str] = &["lock", "resource", "锁", "ロック"];
const FAILED: &[&str] = &["fail", "error", "失败", "失敗"];
const SLOW: &[&str] = &["timeout", "timed_out", "too_long", "duration", "超时", "タイムアウト"];

/// A number in a text, with its unit, and how the text compares with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Compared {
    /// Such as `30s`, `80%` or `3`.
    number: String,
    /// Whether only more than the number counts, and not the number itself.
    is_strict: bool,
}

impl Compared {
    /// The value of a key that has nothing but a number.
    pub(super) fn of_value(text: &str) -> Option<Self> {
        Some(Self { number: number_in(text)?, is_strict: false })
    }

    /// The number behind the last comparison of a text, else its first number.
    pub(super) fn find(text: &str) -> Option<Self> {
        let signs = [">=", "<=", "==", "≥", "≤", "＞", "＜", ">", "<", "=", "超过", "大于", "低于", "小于"];
        let places = signs.iter().filter_map(|sign| Some((text.rfind(sign)?, *sign)));
        // Of `>=` and `=` at the end of it, the longer one counts.
        let last = places.max_by_key(|(at, sign)| (at + sign.len(), sign.len()));
        let (right, is_strict) = match last {
            Some((at, sign)) => (
                &text[at + sign.len()..],
                matches!(sign, ">" | "<" | "＞" | "＜" | "超过" | "大于" | "低于" | "小于"),
            ),
            None => (text, false),
        };
        Some(Self { number: number_in(right)?, is_strict })
    }

    /// A count of at least one; the next one if the text says "more than".
    pub(super) fn count(&self) -> Option<u64> {
        let count = self.number.parse::<f64>().ok().filter(|count| *count >= 1.0)?;
        Some((count.min(1e9) as u64).saturating_add(u64::from(self.is_strict)))
    }

    fn average(&self) -> Option<f64> {
        self.number.parse::<f64>().ok().filter(|load| *load >= 1.0)
    }

    fn percent(&self) -> Option<f64> {
        let percent: f64 = self.number.strip_suffix('%')?.trim().parse().ok()?;
        (percent > 0.0).then_some(percent / 100.0)
    }

    /// `80%`, `80` or `0.8` as a share.
    fn share(&self) -> Option<f64> {
        let value: f64 = self.number.trim_end_matches('%').trim().parse().ok()?;
        let share = if value > 1.0 || self.number.ends_with('%') { value / 100.0 } else { value };
        (share > 0.0 && share <= 1.0).then_some(share)
    }
}

/// The first number of a text with its unit, in the spelling of durations and percentages: `30秒` is `30s`, `3次` is `3`.
fn number_in(text: &str) -> Option<String> {
    let start = text.find(|c: char| c.is_ascii_digit())?;
    let number = &text[start..];
    let digits = number.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(number.len());
    let (digits, unit) = number.split_at(digits);
    let unit = unit.trim_start();
    let units = [
        ("毫秒", "ms"),
        ("ミリ秒", "ms"),
        ("秒", "s"),
        ("分", "m"),
        ("小时", "h"),
        ("時間", "h"),
        ("％", "%"),
    ];
    if let Some((_, unit)) = units.iter().find(|(word, _)| unit.starts_with(word)) {
        return Some(format!("{digits}{unit}"));
    }
    // A duration may have several parts: `1h 30m`.
    let ascii = unit.find(|c: char| !c.is_ascii()).map_or(unit, |end| &unit[..end]).trim();
    let whole = format!("{digits}{ascii}");
    let is_known = ascii.starts_with('%') || read_span(&whole).is_some();
    Some(if is_known { whole } else { digits.to_owned() })
}

/// Finds the trigger by words in a text. The order matters: `network_timeout` is about the network. `rules` are the names of
/// the conflict rules.
pub(super) fn trigger_of(
    text: &str,
    number: Option<&Compared>,
    timeout: Option<Duration>,
    rules: &[&str],
) -> Option<Trigger> {
    let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
    let count = || number.and_then(Compared::count);
    let span = || timeout.or_else(|| read_span(&number?.number));
    let named =
        || rules.iter().find(|rule| text.contains(&rule.to_lowercase())).map(|rule| (*rule).to_owned());
    let trigger = match () {
        () if has(NETWORK) => Trigger::Network { count: count().unwrap_or(1) },
        () if has(MEMORY_WORDS) => Trigger::Memory { above: memory(text, number).unwrap_or(MEMORY) },
        () if has(LOAD_WORDS) => match number.and_then(Compared::percent) {
            Some(share) => Trigger::Load { above: share, per_core: true },
            None => {
                Trigger::Load { above: number.and_then(Compared::average).unwrap_or(LOAD), per_core: false }
            }
        },
        () if has(CRITICAL) => Trigger::CriticalPath,
        () if has(CONFLICT) && number.is_none() && !has(AGAIN) && (has(DETECTED) || named().is_some()) => {
            Trigger::Conflict { rule: named() }
        }
        () if has(CONFLICT) => Trigger::RepeatedConflict { times: count().unwrap_or(FAILURES) },
        () if has(LOCK) => Trigger::LockTimeout { after: span() },
        () if has(FAILED) => Trigger::Failures { count: count().unwrap_or(FAILURES) },
        () if has(SLOW) => Trigger::Timeout { after: span() },
        () => return None,
    };
    Some(trigger)
}

/// The load for each core that a text names as a percentage; none if it is not about the load.
pub(super) fn load_share(text: &str) -> Option<f64> {
    let about = LOAD_WORDS.iter().any(|word| text.contains(word));
    Compared::find(text).filter(|_| about)?.percent()
}

/// The share of memory in use that a text names; none if it is not about memory.
pub(super) fn memory_share(text: &str) -> Option<f64> {
    let about = MEMORY_WORDS.iter().any(|word| text.contains(word));
    memory(text, Compared::find(text).filter(|_| about).as_ref())
}

/// Whether a text is about conflicts, and not about repeated ones.
pub(super) fn is_about_conflicts(text: &str) -> bool {
    CONFLICT.iter().any(|word| text.contains(word)) && !AGAIN.iter().any(|word| text.contains(word))
}

fn memory(text: &str, number: Option<&Compared>) -> Option<f64> {
    let share = number?.share()?;
    let is_left = AVAILABLE.iter().any(|word| text.contains(word));
    Some(if is_left { 1.0 - share } else { share })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<Trigger> {
        trigger_of(text, Compared::find(text).as_ref(), None, &["same_file_write"])
    }

    /// Requirement 203.
    #[test]
    fn triggers_are_understood_in_the_words_of_real_files() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        let cases = [
            ("same_file_write检测到冲突", Trigger::Conflict { rule: Some("same_file_write".to_owned()) }),
            ("conflict detected", Trigger::Conflict { rule: None }),
            ("mutex_lock超过30秒", Trigger::LockTimeout { after: seconds(30) }),
            ("lock_wait > 1h 30m", Trigger::LockTimeout { after: seconds(5400) }),
            ("并行组中≥2个agent失败", Trigger::Failures { count: 2 }),
            ("agent_failures > 2", Trigger::Failures { count: 3 }),
            ("系统负载>80%", Trigger::Load { above: 0.8, per_core: true }),
            ("system_load > 8.0", Trigger::Load { above: 8.0, per_core: false }),
            ("可用内存<20%", Trigger::Memory { above: 0.8 }),
            ("memory_usage > 90%", Trigger::Memory { above: 0.9 }),
            ("同一文件路径连续3次冲突", Trigger::RepeatedConflict { times: 3 }),
            ("repeated_conflict", Trigger::RepeatedConflict { times: 3 }),
            ("关键路径agent失败", Trigger::CriticalPath),
            ("网络操作超时>3次", Trigger::Network { count: 4 }),
            ("network_error", Trigger::Network { count: 1 }),
            ("任务超时", Trigger::Timeout { after: None }),
        ];
        for (text, trigger) in cases {
            assert_eq!(read(text), Some(trigger), "{text}");
        }
        assert_eq!(read("the moon is full"), None);
    }

    #[test]
    fn a_number_keeps_its_unit_and_loses_its_counting_word() {
        let cases =
            [("≥2个agent", "2"), ("超过1.5秒", "1.5s"), ("> 30s", "30s"), ("连续3次", "3"), ("<20%", "20%")];
        for (text, number) in cases {
            assert_eq!(Compared::find(text).unwrap().number, number, "{text}");
        }
        assert_eq!(Compared::find("critical_path"), None);
    }
}
