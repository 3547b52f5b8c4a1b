//! A plan as a drawing within a page: the page's style sheet has its colours, and conflicts can be pointed at.
//!
//! There is no style and no script in it, so that the strictest policy of a page allows it.

use std::fmt::Write;

use super::drawing::{Discs, Drawing, class, ends, escaped, marker};
use super::labels::{Labels, filled};
use super::layout::{Layout, layout, room_for};
use super::lines::line;
use crate::shape::{ConflictShape, PlanShape};

/// The room around the text of a tip.
const TIP_MARGIN: usize = 10;

/// How a group stands, written in its box.
#[derive(Clone, Copy, Debug)]
pub struct Mark<'m> {
    /// The class of the text.
    pub tone: &'static str,
    /// The text.
    pub text: &'m str,
}

/// What a drawing needs of its page.
#[derive(Clone, Copy, Debug)]
pub struct Figure<'f> {
    /// What ids in it begin with; no other drawing of the page has it.
    pub name: &'f str,
    /// What it shows, for those who do not see it.
    pub title: &'f str,
    /// Its words.
    pub labels: &'f Labels,
    /// What stands over the columns; the numbers of the waves where there are none.
    pub columns: &'f [&'f str],
    /// How the groups stand, in the order of the plan; none where nothing has run.
    pub marks: &'f [Mark<'f>],
}

impl Figure<'_> {
    /// Draws a plan.
    pub fn draw(&self, plan: &PlanShape) -> String {
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
        drawing.meetings(place)?;
        drawing.cards(place)?;
        let plan = drawing.plan;
        let mut discs = Discs::default();
        for (number, conflict) in plan.conflicts.iter().enumerate() {
            let Some((a, b)) = ends(place, conflict) else { continue };
            let (at, class) = (discs.place(a, b), class(&conflict.severity));
            // A line is thin; what can be pointed at is wider.
            let curve = line(a, b, false).path;
            writeln!(
                drawing.text,
                "<g class=\"edge\" id=\"{}-edge-{}\" tabindex=\"0\" role=\"img\" aria-label=\"{}\">\
                 <path class=\"reach\" d=\"{curve}\"/>",
                self.name,
                number + 1,
                escaped(&told(conflict, self.labels)),
            )?;
            drawing.disc(number + 1, at, class)?;
            self.tip(drawing, at, place.width, conflict)?;
            writeln!(drawing.text, "</g>")?;
        }
        Ok(())
    }

    /// What is seen while somebody points at a conflict, on the side where there is room.
    fn tip(
        &self,
        drawing: &mut Drawing<'_>,
        (x, y): (usize, usize),
        width: usize,
        conflict: &ConflictShape,
    ) -> std::fmt::Result {
        let lines = [
            filled(self.labels.both_match, &conflict.witness),
            joined(&[&conflict.kind, &conflict.severity], " · "),
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

/// A conflict for those who do not see the drawing.
fn told(conflict: &ConflictShape, labels: &Labels) -> String {
    let ConflictShape { group1, group2, kind, severity, witness, .. } = conflict;
    let what = joined(&[kind, severity, &filled(labels.both_match, witness)], ", ");
    format!("{group1} – {group2}: {what}")
}

/// Those that say something.
fn joined(texts: &[&str], between: &str) -> String {
    let texts: Vec<&str> = texts.iter().copied().filter(|text| !text.is_empty()).collect();
    texts.join(between)
}
