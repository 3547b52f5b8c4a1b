//! Gantt chart of an execution: one bar for each group, from its start to its end.

use std::fmt::Write;
use std::time::Duration;

use super::drawing::escaped;
use crate::estimate::span_in_words;

const STYLE: &str = "\
svg{background:#fff;font-family:system-ui,-apple-system,'Segoe UI',sans-serif;font-size:14px}\
.page{fill:#fff}.text{fill:#1f2328}.dim{fill:#59636e}.grid{stroke:#d1d9e0}.good{fill:#1a7f37}.bad{fill:#c93c37}\
.going{fill:#0b5cad}.other{fill:#8b949e}.waiting{fill:none;stroke:#9a6700;stroke-dasharray:4 3}.title{font-size:20px;font-weight:600}\
@media (prefers-color-scheme:dark){svg{background:#0d1117}.page{fill:#0d1117}.text{fill:#e6edf3}.dim{fill:#9da7b1}\
.grid{stroke:#30363d}.good{fill:#3fb950}.bad{fill:#ff7b72}.going{fill:#58a6ff}.other{fill:#6e7681}}";

/// The width of the time axis.
const WIDTH: f64 = 720.0;
const ROW: usize = 30;
/// The height of the title.
const TITLE: usize = 44;
/// The height of the numbers above the grid lines.
const NUMBERS: usize = 32;
const MARGIN: usize = 24;
/// The space between the names and the axis.
const GAP: usize = 12;
/// The most grid lines.
const LINES: u128 = 6;
/// The possible distances of grid lines in milliseconds, up to a day. Longer distances are whole days.
const STEPS: [u64; 25] = [
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 30_000, 60_000, 120_000,
    300_000, 600_000, 1_200_000, 1_800_000, 3_600_000, 7_200_000, 21_600_000, 86_400_000,
];

/// The bar of one group.
#[derive(Clone, Copy, Debug)]
pub struct Bar<'b> {
    /// The name of the group.
    pub label: &'b str,
    /// Its status in the log.
    pub status: &'b str,
    /// Its status for people.
    pub word: &'b str,
    /// When it started, counted from the first start.
    pub begins: Duration,
    /// How long it waited for its leases, from its start on.
    pub waited: Duration,
    /// When it ended.
    pub ends: Duration,
}

/// Draws a chart as a self-contained SVG.
pub fn gantt(title: &str, bars: &[Bar<'_>]) -> String {
    let chart = Chart::new(bars, TITLE);
    let (width, height, title) = (chart.width, chart.height, escaped(title));
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" role=\"img\" aria-labelledby=\"title\">\n<title id=\"title\">{title}</title>\n\
         <style>{STYLE}</style>\n<rect class=\"page\" width=\"{width}\" height=\"{height}\"/>\n\
         <text class=\"text title\" x=\"{MARGIN}\" y=\"34\">{title}</text>\n{}</svg>\n",
        chart.body
    )
}

/// The content of a chart, without the surrounding SVG element.
#[derive(Debug)]
pub struct Chart {
    width: usize,
    height: usize,
    body: String,
    /// All bars in words, for screen readers.
    description: String,
}

impl Chart {
    /// Draws bars for a page. Its style sheet has the colours.
    pub fn of(bars: &[Bar<'_>]) -> Self {
        Self::new(bars, 0)
    }

    /// Returns the inline SVG with this title.
    pub fn draw(&self, title: &str) -> String {
        let Self { width, height, body, description } = self;
        format!(
            "<svg class=\"gantt\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
             aria-label=\"{}: {}\">\n{body}</svg>",
            escaped(title),
            escaped(description)
        )
    }

    fn new(bars: &[Bar<'_>], above: usize) -> Self {
        let longest = bars.iter().map(|bar| bar.label.chars().count()).max().unwrap_or(0).clamp(4, 40);
        let (left, top) = (MARGIN + longest * 9 + GAP, above + NUMBERS);
        let all = bars.iter().map(|bar| bar.ends).max().unwrap_or_default().max(Duration::from_millis(1));
        let (width, height) = (left + WIDTH as usize + 140, top + bars.len() * ROW + MARGIN);
        let place = |at: Duration| left as f64 + WIDTH * at.as_secs_f64() / all.as_secs_f64();
        let (mut body, mut descriptions) = (String::new(), Vec::new());
        for at in lines(all) {
            let (x, bottom) = (place(at), height - MARGIN);
            let _ = writeln!(
                body,
                "<line class=\"grid\" x1=\"{x:.1}\" y1=\"{}\" x2=\"{x:.1}\" y2=\"{bottom}\"/>\
                 <text class=\"dim\" x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                top - 8,
                top - 14,
                span_in_words(at)
            );
        }
        for (row, bar) in bars.iter().enumerate() {
            let y = top + row * ROW;
            let (begun, to) = (place(bar.begins), place(bar.ends));
            // It waits first, and then it runs.
            let from = place(bar.begins + bar.waited).min(to);
            if from - begun >= 1.0 {
                let waits = format!("{}: ⏳ {}", bar.label, span_in_words(bar.waited));
                let _ = writeln!(
                    body,
                    "<rect class=\"waiting\" x=\"{begun:.1}\" y=\"{}\" width=\"{:.1}\" height=\"16\" rx=\"3\">\
                     <title>{}</title></rect>",
                    y + 2,
                    from - begun,
                    escaped(&waits),
                );
                descriptions.push(waits);
            }
            let class = match bar.status {
                "SUCCESS" => "good",
                "FAILED" => "bad",
                "STARTED" => "going",
                _ => "other",
            };
            let label: String = bar.label.chars().take(longest).collect();
            let took = match bar.status {
                "SKIPPED" => bar.word.to_owned(),
                _ => format!("{} {}", span_in_words(bar.ends.saturating_sub(bar.begins)), bar.word),
            };
            let in_words = format!("{}: {took}", bar.label);
            let _ = write!(
                body,
                "<text class=\"text\" x=\"{MARGIN}\" y=\"{}\">{}</text>",
                y + 14,
                escaped(&label)
            );
            // A group that still waits has not run.
            if bar.status != "WAITING" {
                let _ = write!(
                    body,
                    "<rect class=\"{class}\" x=\"{from:.1}\" y=\"{}\" width=\"{:.1}\" height=\"16\" rx=\"3\">\
                     <title>{}</title></rect>",
                    y + 2,
                    (to - from).max(2.0),
                    escaped(&in_words),
                );
            }
            let _ = writeln!(
                body,
                "<text class=\"dim\" x=\"{:.1}\" y=\"{}\">{}</text>",
                to.max(from + 2.0) + 6.0,
                y + 14,
                escaped(&took),
            );
            descriptions.push(in_words);
        }
        Self { width, height, body, description: descriptions.join("; ") }
    }
}

/// Returns round times between the first start and the last end.
fn lines(all: Duration) -> impl Iterator<Item = Duration> {
    let few = |step: &Duration| all.as_millis() / step.as_millis() <= LINES;
    let step = STEPS.iter().map(|step| Duration::from_millis(*step)).find(few);
    let day = Duration::from_secs(86_400);
    let step =
        step.unwrap_or_else(|| day * u32::try_from(all.as_secs() / 86_400 / 6 + 1).unwrap_or(u32::MAX));
    std::iter::successors(Some(Duration::ZERO), move |at| at.checked_add(step))
        .take_while(move |at| *at <= all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(millis: u64) -> Vec<String> {
        lines(Duration::from_millis(millis)).map(span_in_words).collect()
    }

    #[test]
    fn grid_lines_are_at_round_times_and_few() {
        assert_eq!(words(971), ["0ms", "200ms", "400ms", "600ms", "800ms"]);
        assert_eq!(words(95_000), ["0ms", "20s", "40s", "1m 0s", "1m 20s"]);
        for millis in [1, 7, 59_999, 3_600_000, 86_400_000, 864_000_000, u64::MAX / 1_000_000] {
            assert!((1..=7).contains(&words(millis).len()), "{millis}: {:?}", words(millis));
        }
    }
}
