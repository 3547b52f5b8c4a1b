//! SVG elements of a plan: boxes for groups, arrows for waits, numbered lines for conflicts.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write;

use lockkeeper_core::conflict::Severity;
use lockkeeper_core::printable::printable;

use super::labels::{Labels, filled};
use super::layout::{BOX_TEXT, BOX_WIDTH, Card, Layout, fitted};
use super::lines::line;
use crate::views::{CauseView, ConflictView, PlanView};

/// An SVG picture that is being written.
pub(super) struct Drawing<'a> {
    pub(super) text: &'a mut String,
    pub(super) plan: &'a PlanView,
    pub(super) labels: &'a Labels,
    /// The id of the arrow head.
    pub(super) arrow: &'a str,
}

impl Drawing<'_> {
    /// Says whether nothing runs.
    pub(super) fn is_aborted(&self) -> bool {
        self.plan.mode == "ABORT"
    }

    /// Draws the names above the columns. A column without a name gets the number of its wave.
    pub(super) fn columns(&mut self, place: &Layout<'_>, y: usize, names: &[&str]) -> std::fmt::Result {
        for (wave, x) in place.columns.iter().enumerate() {
            let name = match names.get(wave) {
                Some(name) => (*name).to_owned(),
                None if self.is_aborted() => self.labels.nothing_runs.to_owned(),
                None => filled(self.labels.wave, wave + 1),
            };
            self.line(*x, y, "dim", &name)?;
        }
        Ok(())
    }

    pub(super) fn cards(&mut self, place: &Layout<'_>) -> std::fmt::Result {
        for (card, group) in place.cards.iter().zip(&self.plan.groups) {
            let Card { x, y, height, .. } = card;
            writeln!(
                self.text,
                "<rect class=\"card\" x=\"{x}\" y=\"{y}\" width=\"{BOX_WIDTH}\" height=\"{height}\" rx=\"8\"/>"
            )?;
            self.line(x + 14, y + 25, "text strong", &fitted(&group.group_id, BOX_TEXT, 8))?;
            for (number, (class, line)) in card.lines.iter().enumerate() {
                self.line(x + 14, y + 47 + number * 20, class, line)?;
            }
        }
        Ok(())
    }

    /// Draws arrows for dependencies and turns, and dashed lines between groups of one folder that exclude each other.
    pub(super) fn waits(&mut self, place: &Layout<'_>) -> std::fmt::Result {
        for (number, group) in self.plan.groups.iter().enumerate() {
            let Some(target) = place.card(&group.group_id) else { continue };
            // Both groups list an exclusion. It is drawn once.
            let is_before = |id: &str| place.place(id).is_some_and(|other| other < number);
            let folders = group.excludes().iter().filter(|bond| is_before(&bond.group_id));
            let arrows = group.after().iter().map(|bond| (bond, true));
            for (bond, arrow) in arrows.chain(folders.map(|bond| (bond, false))) {
                let class = match bond.cause {
                    CauseView::Dependency | CauseView::DependencyBegun => "wait",
                    // `conflicts` draws these.
                    CauseView::Conflict => continue,
                    CauseView::SameDir | CauseView::Phase => "wait turn",
                };
                let Some(source) = place.card(&bond.group_id) else { continue };
                let (from, to) = if arrow { (source, target) } else { in_order(source, target) };
                let head = self.head(arrow);
                let curve = line(from, to, arrow).path;
                let why = escaped(&format!("{}: {}", group.group_id, bond.reason));
                writeln!(
                    self.text,
                    "<path class=\"{class}\"{head} d=\"{curve}\"><title>{why}</title></path>"
                )?;
            }
        }
        Ok(())
    }

    /// Draws lines between groups that conflict, with an arrow head if one waits for the other.
    pub(super) fn conflicts(&mut self, place: &Layout<'_>) -> std::fmt::Result {
        let plan = self.plan;
        let mut turns = HashSet::new();
        for group in &plan.groups {
            let conflicts = group.after().iter().filter(|bond| bond.cause == CauseView::Conflict);
            turns.extend(conflicts.map(|bond| pair(&group.group_id, &bond.group_id)));
        }
        for conflict in &plan.conflicts {
            let Some((a, b)) = ends(place, conflict) else { continue };
            let class = class(&conflict.severity);
            let why = escaped(&filled(self.labels.both_match, &conflict.witness));
            let in_turn = turns.contains(&pair(&conflict.group1, &conflict.group2));
            let (head, curve) = (self.head(in_turn), line(a, b, in_turn).path);
            let likely = if conflict.probability.is_some() { " likely" } else { "" };
            writeln!(
                self.text,
                "<path class=\"meet {class}{likely}\"{head} d=\"{curve}\"><title>{why}</title></path>"
            )?;
        }
        Ok(())
    }

    /// Draws the badge with the number of a conflict.
    pub(super) fn badge(&mut self, number: usize, at: (usize, usize), class: &str) -> std::fmt::Result {
        let (x, y) = at;
        writeln!(self.text, "<circle class=\"disc {class}\" cx=\"{x}\" cy=\"{y}\" r=\"12\"/>")?;
        writeln!(
            self.text,
            "<text class=\"text strong\" x=\"{x}\" y=\"{}\" text-anchor=\"middle\">{number}</text>",
            y + 5
        )
    }

    pub(super) fn line(&mut self, x: usize, y: usize, class: &str, text: &str) -> std::fmt::Result {
        writeln!(self.text, "<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{}</text>", escaped(text))
    }

    fn head(&self, arrow: bool) -> String {
        if arrow { format!(" marker-end=\"url(#{})\"", self.arrow) } else { String::new() }
    }
}

/// Returns the definition of the arrow head.
pub(super) fn marker(id: &str) -> String {
    format!(
        "<defs><marker id=\"{id}\" viewBox=\"0 0 10 10\" refX=\"9\" refY=\"5\" markerWidth=\"8\" markerHeight=\"8\" \
         orient=\"auto\"><path class=\"head\" d=\"M0 0 10 5 0 10z\"/></marker></defs>"
    )
}

/// The positions of the badges. Badges that would overlap are moved apart.
#[derive(Default)]
pub(super) struct Badges(BTreeMap<(usize, usize), usize>);

impl Badges {
    pub(super) fn place(&mut self, a: &Card, b: &Card) -> (usize, usize) {
        let (x, y) = line(a, b, false).middle;
        let slot = self.0.entry((x, y / 24)).or_default();
        let x = x + *slot * 26;
        *slot += 1;
        (x, y)
    }
}

/// Returns the type of a conflict, and how likely it is if it is predicted.
pub(super) fn kind_in_words(conflict: &ConflictView) -> String {
    match conflict.probability {
        Some(share) => format!("{} {:.0} %", conflict.kind, share * 100.0),
        None => conflict.kind.clone(),
    }
}

/// Returns the boxes of two groups that conflict, the earlier wave first, then the upper one.
pub(super) fn ends<'l>(place: &'l Layout<'_>, conflict: &ConflictView) -> Option<(&'l Card, &'l Card)> {
    Some(in_order(place.card(&conflict.group1)?, place.card(&conflict.group2)?))
}

fn in_order<'l>(a: &'l Card, b: &'l Card) -> (&'l Card, &'l Card) {
    if (a.wave, a.y) <= (b.wave, b.y) { (a, b) } else { (b, a) }
}

/// Returns two groups in a fixed order.
fn pair<'p>(a: &'p str, b: &'p str) -> (&'p str, &'p str) {
    if a <= b { (a, b) } else { (b, a) }
}

/// Returns the CSS class of a severity.
pub(super) fn class(severity: &str) -> &'static str {
    match severity.parse::<Severity>() {
        Ok(Severity::Fatal) => "fatal",
        Ok(Severity::Major) | Err(_) => "major",
        Ok(Severity::Minor) => "minor",
    }
}

/// Escapes a text for XML.
pub(super) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in printable(text).chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            // XML cannot contain these characters.
            '\u{fffe}' | '\u{ffff}' => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    safe
}
