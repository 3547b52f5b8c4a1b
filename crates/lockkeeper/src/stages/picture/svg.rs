//! A plan as one SVG picture: groups in waves, arrows for waits, numbered lines for conflicts, and what they mean.
//!
//! It needs no font, script or other file, and has its colours for light and for dark.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write;

use lockkeeper_core::conflict::{Ruling, Severity};
use lockkeeper_core::plan::{Cause, Mode};

use super::layout::{BOX_WIDTH, Card, Layout, MARGIN, layout, short, wrapped};
use super::lines::line;
use crate::stages::estimate::span_in_words;
use crate::stages::plan::PhasePlan;

const STYLE: &str = "\
svg{background:#fff;font-family:system-ui,-apple-system,'Segoe UI',sans-serif;font-size:14px}\
.page{fill:#fff}.text{fill:#1f2328}.dim{fill:#59636e}.code{font-family:ui-monospace,Menlo,Consolas,monospace;font-size:12px}\
.title{font-size:22px;font-weight:600}.strong{font-weight:600}\
.card{fill:#f6f8fa;stroke:#8b949e;stroke-width:1.2}.wait{fill:none;stroke:#59636e;stroke-width:1.6}.turn{stroke-dasharray:6 4}\
.head{fill:#59636e}.fatal{stroke:#c93c37}.major{stroke:#b35900}.minor{stroke:#8a6d00}\
.meet{fill:none;stroke-width:2}.disc{fill:#fff;stroke-width:2}.mode{fill:#0b5cad}.stop{fill:#c93c37}.onmode{fill:#fff}\
@media (prefers-color-scheme:dark){svg{background:#0d1117}.page{fill:#0d1117}.text{fill:#e6edf3}.dim{fill:#9da7b1}\
.card{fill:#161b22;stroke:#6e7681}.wait{stroke:#9da7b1}.head{fill:#9da7b1}.fatal{stroke:#ff7b72}.major{stroke:#f0883e}\
.minor{stroke:#e3b341}.disc{fill:#0d1117}.mode{fill:#1f6feb}.stop{fill:#da3633}}";

/// The height of a line of text.
const LINE: usize = 22;

/// Draws the plans of phases below each other.
pub fn svg(plans: &[PhasePlan]) -> String {
    let mut body = String::new();
    let (mut width, mut y) = (0, MARGIN);
    for planned in plans {
        let mut drawing = Drawing { text: &mut body, planned };
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
         <style>{STYLE}</style>\n<defs><marker id=\"arrow\" viewBox=\"0 0 10 10\" refX=\"9\" refY=\"5\" markerWidth=\"8\" \
         markerHeight=\"8\" orient=\"auto\"><path class=\"head\" d=\"M0 0 10 5 0 10z\"/></marker></defs>\n\
         <rect class=\"page\" width=\"{width}\" height=\"{y}\"/>\n{body}</svg>\n"
    )
}

struct Drawing<'a> {
    text: &'a mut String,
    planned: &'a PhasePlan,
}

impl Drawing<'_> {
    /// Draws one phase below `top`, and says how wide it is and where it ends.
    fn phase(&mut self, top: usize) -> Result<(usize, usize), std::fmt::Error> {
        let planned = self.planned;
        let heading = self.heading(top)?;
        let place = layout(planned, heading + 40);
        for (wave, x) in place.columns.iter().enumerate() {
            let name = if planned.plan.mode == Mode::Abort {
                "nothing runs".to_owned()
            } else {
                format!("wave {}", wave + 1)
            };
            self.line(*x, heading + 24, "dim", &name)?;
        }
        self.waits(&place)?;
        self.conflicts(&place)?;
        for (number, card) in place.cards.iter().enumerate() {
            self.card(card, planned.id(number))?;
        }
        self.discs(&place)?;
        let bottom = self.legend(place.bottom + 8)?;
        Ok((place.width, bottom))
    }

    fn heading(&mut self, top: usize) -> Result<usize, std::fmt::Error> {
        let plan = &self.planned.plan;
        self.line(MARGIN, top + 20, "text title", &short(&self.planned.phase, 30))?;
        let mode = plan.mode.as_str();
        let class = if plan.mode == Mode::Abort { "stop" } else { "mode" };
        let x = MARGIN + self.planned.phase.chars().count().min(30) * 14 + 16;
        let wide = mode.len() * 10 + 20;
        writeln!(
            self.text,
            "<rect class=\"{class}\" x=\"{x}\" y=\"{}\" width=\"{wide}\" height=\"26\" rx=\"13\"/>",
            top + 1
        )?;
        let middle = x + wide / 2;
        writeln!(
            self.text,
            "<text class=\"onmode strong\" x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{mode}</text>",
            top + 19
        )?;
        if plan.mode != Mode::Abort && !self.planned.groups.is_empty() {
            let (length, work) = (span_in_words(plan.length), span_in_words(self.planned.work()));
            self.line(x + wide + 16, top + 19, "dim", &format!("about {length}; one by one {work}"))?;
        }
        let mut y = top + 26;
        for line in wrapped(&plan.reason, 120) {
            y += LINE;
            self.line(MARGIN, y, "text", &line)?;
        }
        Ok(y + 8)
    }

    fn card(&mut self, card: &Card, id: &str) -> std::fmt::Result {
        let Card { x, y, height, .. } = card;
        writeln!(
            self.text,
            "<rect class=\"card\" x=\"{x}\" y=\"{y}\" width=\"{BOX_WIDTH}\" height=\"{height}\" rx=\"8\"/>"
        )?;
        self.line(x + 14, y + 25, "text strong", &short(id, 26))?;
        for (number, line) in card.lines.iter().enumerate() {
            let class = if number == 0 { "dim" } else { "dim code" };
            self.line(x + 14, y + 47 + number * 20, class, line)?;
        }
        Ok(())
    }

    /// Arrows for dependencies and turns, and dashed lines between groups of one folder that exclude each other.
    fn waits(&mut self, place: &Layout) -> std::fmt::Result {
        for (target, step) in self.planned.plan.steps.iter().enumerate() {
            let folders = step.excludes.iter().filter(|bond| bond.group < target);
            for (bond, arrow) in
                step.after.iter().map(|bond| (bond, true)).chain(folders.map(|bond| (bond, false)))
            {
                let class = match bond.cause {
                    Cause::Completion | Cause::Beginning => "wait",
                    // These are drawn as conflicts.
                    Cause::Conflict(_) => continue,
                    Cause::Folder(_) | Cause::Phase => "wait turn",
                };
                let (from, to) = if arrow {
                    (&place.cards[bond.group], &place.cards[target])
                } else {
                    ordered(place, bond.group, target)
                };
                let head = if arrow { " marker-end=\"url(#arrow)\"" } else { "" };
                let curve = line(from, to, arrow).path;
                let why = escaped(&format!("{}: {}", self.planned.id(target), self.planned.explain(bond)));
                writeln!(
                    self.text,
                    "<path class=\"{class}\"{head} d=\"{curve}\"><title>{why}</title></path>"
                )?;
            }
        }
        Ok(())
    }

    /// Lines between groups that conflict, with a head where the one waits for the other.
    fn conflicts(&mut self, place: &Layout) -> std::fmt::Result {
        let planned = self.planned;
        let bonds = planned.plan.steps.iter().flat_map(|step| &step.after);
        let turns: HashSet<Cause> = bonds.map(|bond| bond.cause).collect();
        for (number, conflict) in planned.findings.conflicts.iter().enumerate() {
            let (a, b) = ordered(place, conflict.group1, conflict.group2);
            let class = class(conflict.ruling.severity);
            let why = escaped(&format!("both match {}", conflict.witness));
            let in_turn = turns.contains(&Cause::Conflict(number));
            let head = if in_turn { " marker-end=\"url(#arrow)\"" } else { "" };
            let curve = line(a, b, in_turn).path;
            writeln!(
                self.text,
                "<path class=\"meet {class}\"{head} d=\"{curve}\"><title>{why}</title></path>"
            )?;
        }
        Ok(())
    }

    /// The numbers of the conflicts, over all boxes.
    fn discs(&mut self, place: &Layout) -> std::fmt::Result {
        let mut used: BTreeMap<(usize, usize), usize> = BTreeMap::new();
        for (number, conflict) in self.planned.findings.conflicts.iter().enumerate() {
            let (a, b) = ordered(place, conflict.group1, conflict.group2);
            let (x, y) = line(a, b, false).middle;
            // Discs that would lie on each other are moved apart.
            let slot = used.entry((x, y / 24)).or_default();
            let x = x + *slot * 26;
            *slot += 1;
            let class = class(conflict.ruling.severity);
            writeln!(self.text, "<circle class=\"disc {class}\" cx=\"{x}\" cy=\"{y}\" r=\"12\"/>")?;
            writeln!(
                self.text,
                "<text class=\"text strong\" x=\"{x}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                y + 5,
                number + 1
            )?;
        }
        Ok(())
    }

    /// What the numbers and the dashed lines mean.
    fn legend(&mut self, top: usize) -> Result<usize, std::fmt::Error> {
        let planned = self.planned;
        let ruled = |ruling: Ruling| {
            let rule =
                planned.rule_name(ruling).map_or_else(|| "no rule".to_owned(), |rule| format!("rule {rule}"));
            format!("{rule}, {}, {}", ruling.severity, ruling.action)
        };
        let conflicts = planned.findings.conflicts.iter().enumerate().map(|(number, conflict)| {
            let groups = format!("{} and {}", planned.id(conflict.group1), planned.id(conflict.group2));
            let (kind, witness) = (conflict.kind, &conflict.witness);
            format!("{}  {groups}: {kind} at {witness} — {}", number + 1, ruled(conflict.ruling))
        });
        let folders = planned.findings.same_dir.iter().filter_map(|found| {
            let ids: Vec<&str> = found.groups.iter().map(|group| planned.id(*group)).collect();
            Some(format!("{}: SAME_DIR at {} — {}", ids.join(", "), found.folder, ruled(found.ruling?)))
        });
        let mut y = top;
        for line in conflicts.chain(folders).flat_map(|what| wrapped(&what, 120)) {
            y += LINE;
            self.line(MARGIN, y, "text", &line)?;
        }
        Ok(y)
    }

    fn line(&mut self, x: usize, y: usize, class: &str, text: &str) -> std::fmt::Result {
        writeln!(self.text, "<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{}</text>", escaped(text))
    }
}

/// The two with the earlier, then the upper one first.
fn ordered(place: &Layout, a: usize, b: usize) -> (&Card, &Card) {
    let (a, b) = (&place.cards[a], &place.cards[b]);
    if (a.wave, a.y) <= (b.wave, b.y) { (a, b) } else { (b, a) }
}

fn class(severity: Severity) -> &'static str {
    match severity {
        Severity::Fatal => "fatal",
        Severity::Major => "major",
        Severity::Minor => "minor",
    }
}

pub(super) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            // XML has no way to write these.
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    safe
}
