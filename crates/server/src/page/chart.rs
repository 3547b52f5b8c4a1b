//! Small charts of the board: runs that ended and the median wait, in bars of five minutes.

use std::fmt::Write;
use std::time::Duration;

use lockkeeper_core::time::format_span;
use lockkeeper_engine::runs::activity::{BARS, Bar};

use super::texts::{Texts, fill};

const WIDTH: usize = 240;
const HEIGHT: u64 = 38;
/// The height of the longest bar.
const FULL: u64 = 34;
const STEP: usize = WIDTH / BARS;

/// A drawing with its meaning in words.
pub(super) struct Chart {
    pub(super) title: &'static str,
    /// The figure beside it.
    pub(super) figure: String,
    /// What it shows, in a sentence.
    pub(super) words: String,
    pub(super) svg: String,
}

/// The charts of the last two hours; none if nothing has ended in them.
pub(super) fn charts(bars: &[Bar], texts: &'static Texts) -> Vec<Chart> {
    let ended: u64 = bars.iter().map(|bar| bar.succeeded + bar.failed).sum();
    if ended == 0 {
        return Vec::new();
    }
    vec![throughput(bars, ended, texts), waits(bars, texts)]
}

fn throughput(bars: &[Bar], ended: u64, texts: &'static Texts) -> Chart {
    let most = bars.iter().map(|bar| bar.succeeded + bar.failed).max().unwrap_or(1).max(1);
    let failed: u64 = bars.iter().map(|bar| bar.failed).sum();
    let mut shapes = String::new();
    for (place, bar) in bars.iter().enumerate() {
        let good = bar.succeeded * FULL / most;
        let bad = if bar.failed > 0 { (bar.failed * FULL / most).max(3) } else { 0 };
        rectangle(&mut shapes, "ok", place, HEIGHT - 2, good);
        rectangle(&mut shapes, "no", place, HEIGHT - 2 - good.min(HEIGHT - 2), bad);
    }
    let values = [("n", &*ended.to_string()), ("m", &*failed.to_string())];
    Chart {
        title: texts.ended_lately,
        figure: ended.to_string(),
        words: fill(texts.ended_words, &values),
        svg: svg(&shapes),
    }
}

fn waits(bars: &[Bar], texts: &'static Texts) -> Chart {
    let longest = bars.iter().filter_map(|bar| bar.wait).max().unwrap_or_default();
    let most = longest.as_millis().max(1);
    let mut shapes = String::new();
    for (place, bar) in bars.iter().enumerate() {
        let height = bar.wait.map_or(0, |wait| wait.as_millis() * u128::from(FULL) / most);
        let height = u64::try_from(height).unwrap_or(FULL);
        rectangle(&mut shapes, "wait", place, HEIGHT - 2, bar.wait.map_or(0, |_| height.max(1)));
    }
    let latest = bars.iter().rev().find_map(|bar| bar.wait).unwrap_or(Duration::ZERO);
    let values = [("now", &*format_span(latest)), ("most", &*format_span(longest))];
    Chart {
        title: texts.median_wait,
        figure: format_span(latest),
        words: fill(texts.wait_words, &values),
        svg: svg(&shapes),
    }
}

/// A bar that stands on `bottom`.
fn rectangle(shapes: &mut String, class: &str, place: usize, bottom: u64, height: u64) {
    if height > 0 {
        let (x, y, width) = (place * STEP + 1, bottom.saturating_sub(height), STEP - 3);
        let _ =
            write!(shapes, r#"<rect class="{class}" x="{x}" y="{y}" width="{width}" height="{height}"/>"#);
    }
}

fn svg(shapes: &str) -> String {
    format!(
        r#"<svg viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" aria-hidden="true">{shapes}<path class="base" d="M0 36.5H{WIDTH}"/></svg>"#
    )
}

#[cfg(test)]
mod tests {
    use lockkeeper_engine::messages::Language;

    use super::*;

    #[test]
    fn the_charts_say_in_words_what_they_show() {
        let mut bars = vec![Bar::default(); BARS];
        assert!(charts(&bars, Texts::of(Language::En)).is_empty());
        bars[3] = Bar { succeeded: 10, failed: 0, wait: Some(Duration::from_secs(90)) };
        bars[23] = Bar { succeeded: 1, failed: 1, wait: Some(Duration::from_secs(20)) };
        let [ended, waits] = &charts(&bars, Texts::of(Language::En))[..] else { panic!("two charts") };
        assert!(ended.words.contains("12") && ended.svg.matches("<rect").count() == 3, "{}", ended.svg);
        assert!(waits.words.contains("20s") && waits.words.contains("1m 30s"), "{}", waits.words);
    }
}
