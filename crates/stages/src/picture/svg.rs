//! Self-contained SVG of plans: groups in waves, arrows for waits, numbered lines for conflicts, and a legend.
//!
//! It needs no font, script or other file, and has colours for light and dark mode.

use std::fmt::Write;

use super::drawing::{Badges, Drawing, class, ends, escaped, kind_in_words, marker};
use super::labels::Labels;
use super::layout::{MARGIN, layout, short, span, wrapped};
use crate::estimate::span_in_words;
use crate::plan::PhasePlan;
use crate::views::PlanView;

const STYLE: &str = "\
svg{background:#fff;font-family:system-ui,-apple-system,'Segoe UI',sans-serif;font-size:14px}\
.page{fill:#fff}.text{fill:#1f2328}.dim{fill:#59636e}.code{font-family:ui-monospace,Menlo,Consolas,monospace;font-size:12px}\
.title{font-size:22px;font-weight:600}.strong{font-weight:600}\
.card{fill:#f6f8fa;stroke:#8b949e;stroke-width:1.2}.wait{fill:none;stroke:#59636e;stroke-width:1.6}.turn,.likely{stroke-dasharray:6 4}\
.head{fill:#59636e}.fatal{stroke:#c93c37}.major{stroke:#b35900}.minor{stroke:#8a6d00}\
.meet{fill:none;stroke-width:2}.disc{fill:#fff;stroke-width:2}.mode{fill:#0b5cad}.stop{fill:#c93c37}.onmode{fill:#fff}\
@media (prefers-color-scheme:dark){svg{background:#0d1117}.page{fill:#0d1117}.text{fill:#e6edf3}.dim{fill:#9da7b1}\
.card{fill:#161b22;stroke:#6e7681}.wait{stroke:#9da7b1}.head{fill:#9da7b1}.fatal{stroke:#ff7b72}.major{stroke:#f0883e}\
.minor{stroke:#e3b341}.disc{fill:#0d1117}.mode{fill:#1f6feb}.stop{fill:#da3633}}";

/// The smallest width of the picture.
const PAGE: usize = 960;
/// The height of a line of text.
const LINE: usize = 22;

/// Draws the plans of phases below each other.
pub fn svg(plans: &[PhasePlan]) -> String {
    let mut body = String::new();
    let (mut width, mut y) = (PAGE, MARGIN);
    for planned in plans {
        let plan = PlanView::of(planned);
        let mut drawing = Drawing { text: &mut body, plan: &plan, labels: &Labels::ENGLISH, arrow: "arrow" };
        let (wide, bottom) = drawing.phase(y).expect("writing to a String cannot fail");
        width = width.max(wide);
        y = bottom + MARGIN;
    }
    let names: Vec<String> =
        plans.iter().map(|planned| format!("{} {}", planned.phase, planned.plan.mode)).collect();
    let title = escaped(&format!("Plan: {}", names.join(", ")));
    let sentences: Vec<&str> = plans.iter().map(|planned| planned.plan.reason.as_str()).collect();
    let description = escaped(&sentences.join("; "));
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{y}\" viewBox=\"0 0 {width} {y}\" role=\"img\" \
         aria-labelledby=\"title desc\">\n<title id=\"title\">{title}</title>\n<desc id=\"desc\">{description}</desc>\n\
         <style>{STYLE}</style>\n{}\n\
         <rect class=\"page\" width=\"{width}\" height=\"{y}\"/>\n{body}</svg>\n",
        marker("arrow")
    )
}

impl Drawing<'_> {
    /// Draws one phase below `top`. Returns its width and its lower edge.
    fn phase(&mut self, top: usize) -> Result<(usize, usize), std::fmt::Error> {
        let plan = self.plan;
        let heading = self.heading(top)?;
        let place = layout(plan, heading + 40, self.labels, &[]);
        self.columns(&place, heading + 24, &[])?;
        self.waits(&place)?;
        self.conflicts(&place)?;
        self.cards(&place)?;
        let mut badges = Badges::default();
        for (number, conflict) in plan.conflicts.iter().enumerate() {
            if let Some((a, b)) = ends(&place, conflict) {
                self.badge(number + 1, badges.place(a, b), class(&conflict.severity))?;
            }
        }
        let bottom = self.legend(place.bottom + 8)?;
        Ok((place.width, bottom))
    }

    fn heading(&mut self, top: usize) -> Result<usize, std::fmt::Error> {
        let plan = self.plan;
        self.line(MARGIN, top + 20, "text title", &short(&plan.phase, 30))?;
        let (mode, class) = (&plan.mode, if self.is_aborted() { "stop" } else { "mode" });
        let x = MARGIN + plan.phase.chars().count().min(30) * 14 + 16;
        let wide = mode.len() * 10 + 20;
        writeln!(
            self.text,
            "<rect class=\"{class}\" x=\"{x}\" y=\"{}\" width=\"{wide}\" height=\"26\" rx=\"13\"/>",
            top + 1
        )?;
        let middle = x + wide / 2;
        writeln!(
            self.text,
            "<text class=\"onmode strong\" x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            top + 19,
            escaped(mode)
        )?;
        if !self.is_aborted() && !plan.groups.is_empty() {
            let length = span_in_words(span(plan.estimated_seconds));
            let work = span_in_words(span(plan.work_seconds()));
            self.line(x + wide + 16, top + 19, "dim", &format!("about {length}; one by one {work}"))?;
        }
        let mut y = top + 26;
        for line in wrapped(&plan.reason, 120) {
            y += LINE;
            self.line(MARGIN, y, "text", &line)?;
        }
        Ok(y + 8)
    }

    /// Draws the legend of the numbers and the dashed lines.
    fn legend(&mut self, top: usize) -> Result<usize, std::fmt::Error> {
        let plan = self.plan;
        let ruled = |rule: Option<&String>, severity: &str, action: &str| {
            let rule = rule.map_or_else(|| "no rule".to_owned(), |rule| format!("rule {rule}"));
            format!("{rule}, {severity}, {action}")
        };
        let conflicts = plan.conflicts.iter().enumerate().map(|(number, found)| {
            let told = ruled(found.rule.as_ref(), &found.severity, &found.action);
            let groups = format!("{} and {}", found.group1, found.group2);
            let kind = kind_in_words(found);
            format!("{}  {groups}: {kind} at {} — {told}", number + 1, found.witness)
        });
        let folders = plan.same_dir.iter().filter_map(|found| {
            let told = ruled(found.rule.as_ref(), found.severity.as_ref()?, found.action.as_ref()?);
            Some(format!("{}: SAME_DIR at {} — {told}", found.groups.join(", "), found.folder))
        });
        let mut y = top;
        for line in conflicts.chain(folders).flat_map(|what| wrapped(&what, 120)) {
            y += LINE;
            self.line(MARGIN, y, "text", &line)?;
        }
        Ok(y)
    }
}
