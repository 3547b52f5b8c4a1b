//! Inline SVG of a plan for a page. The page's style sheet has the colours, and conflicts show a tooltip.
//!
//! It contains no style and no script, so the strictest content security policy allows it.

use std::fmt::Write;

use super::drawing::{Badges, Drawing, class, ends, escaped, kind_in_words, marker};
use super::labels::{Labels, filled};
use super::layout::{Layout, layout, room_for};
use super::lines::line;
use crate::views::{ConflictView, PlanView};

/// The margin around the text of a tooltip.
const TIP_MARGIN: usize = 10;

/// The state of a group, written in its box.
#[derive(Clone, Copy, Debug)]
pub struct Mark<'m> {
    /// The CSS class of the text.
    pub tone: &'static str,
    /// The text.
    pub text: &'m str,
}

/// The settings of an inline SVG.
#[derive(Clone, Copy, Debug)]
pub struct Figure<'f> {
    /// The prefix of all ids, unique in the page.
    pub name: &'f str,
    /// The title for screen readers.
    pub title: &'f str,
    /// The words.
    pub labels: &'f Labels,
    /// The names of the columns; the numbers of the waves if there are none.
    pub columns: &'f [&'f str],
    /// The states of the groups, in the order of the plan; empty if nothing has run.
    pub marks: &'f [Mark<'f>],
}

impl Figure<'_> {
    /// Draws a plan.
    pub fn draw(&self, plan: &PlanView) -> String {
        let mut body = String::new();
        let arrow = format!("{}-arrow", self.name);
        let mut drawing = Drawing { text: &mut body, plan, labels: self.labels, arrow: &arrow };
        let place = layout(plan, 32, self.labels, self.marks);
        self.fill(&mut drawing, &place).expect("writing to a String cannot fail");
        let (width, height) = (place.width, place.bottom);
        format!(
            "<svg class=\"plan\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" role=\"group\" \
             aria-label=\"{}\">\n{}\n{body}</svg>",
            escaped(self.title),
            marker(&arrow)
        )
    }

    fn fill(&self, drawing: &mut Drawing<'_>, place: &Layout<'_>) -> std::fmt::Result {
        drawing.columns(place, 16, self.columns)?;
        drawing.waits(place)?;
        drawing.conflicts(place)?;
        drawing.cards(place)?;
        let plan = drawing.plan;
        let mut badges = Badges::default();
        for (number, conflict) in plan.conflicts.iter().enumerate() {
            let Some((a, b)) = ends(place, conflict) else { continue };
            let (at, class) = (badges.place(a, b), class(&conflict.severity));
            // The line is thin. The area that shows the tooltip is wider.
            let curve = line(a, b, false).path;
            writeln!(
                drawing.text,
                "<g class=\"edge\" id=\"{}-edge-{}\" tabindex=\"0\" role=\"img\" aria-label=\"{}\">\
                 <path class=\"reach\" d=\"{curve}\"/>",
                self.name,
                number + 1,
                escaped(&description(conflict, self.labels)),
            )?;
            drawing.badge(number + 1, at, class)?;
            self.tip(drawing, at, place.width, conflict)?;
            writeln!(drawing.text, "</g>")?;
        }
        Ok(())
    }

    /// Draws the tooltip of a conflict, on the side that has more space.
    fn tip(
        &self,
        drawing: &mut Drawing<'_>,
        (x, y): (usize, usize),
        width: usize,
        conflict: &ConflictView,
    ) -> std::fmt::Result {
        let lines = [
            filled(self.labels.both_match, &conflict.witness),
            joined(&[&kind_in_words(conflict), &conflict.severity], " · "),
        ];
        let wide = lines.iter().map(|line| room_for(line, 8)).max().unwrap_or(0) + 2 * TIP_MARGIN;
        let left = if x > width / 2 { x.saturating_sub(18 + wide) } else { x + 18 };
        writeln!(
            drawing.text,
            "<g class=\"tip\"><rect x=\"{left}\" y=\"{}\" width=\"{wide}\" height=\"48\" rx=\"6\"/>\
             <text x=\"{text_x}\" y=\"{}\">{}</text><text x=\"{text_x}\" y=\"{}\">{}</text></g>",
            y.saturating_sub(24),
            y.saturating_sub(24) + 20,
            escaped(&lines[0]),
            y.saturating_sub(24) + 38,
            escaped(&lines[1]),
            text_x = left + TIP_MARGIN,
        )
    }
}

/// Describes a conflict for screen readers.
fn description(conflict: &ConflictView, labels: &Labels) -> String {
    let ConflictView { group1, group2, severity, witness, .. } = conflict;
    let what = joined(&[&kind_in_words(conflict), severity, &filled(labels.both_match, witness)], ", ");
    format!("{group1} – {group2}: {what}")
}

/// Joins the texts that are not empty.
fn joined(texts: &[&str], between: &str) -> String {
    let texts: Vec<&str> = texts.iter().copied().filter(|text| !text.is_empty()).collect();
    texts.join(between)
}
