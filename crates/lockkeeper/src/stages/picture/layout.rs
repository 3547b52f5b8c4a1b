//! Where things stand in the picture of a phase: waves from left to right, their groups from top to bottom.

use super::lines::rise;
use crate::stages::estimate::span_in_words;
use crate::stages::plan::PhasePlan;

/// The width of the picture's smallest page.
pub(super) const PAGE: usize = 960;
/// The room around everything.
pub(super) const MARGIN: usize = 32;
pub(super) const BOX_WIDTH: usize = 232;
const LINE: usize = 20;
const GAP_ACROSS: usize = 120;
const GAP_DOWN: usize = 24;
/// The most lines of paths in a box.
const PATHS: usize = 4;

/// The box of a group.
pub(super) struct Card {
    pub(super) x: usize,
    pub(super) y: usize,
    pub(super) height: usize,
    pub(super) wave: usize,
    /// What is written in it below its name.
    pub(super) lines: Vec<String>,
}

impl Card {
    pub(super) fn middle(&self) -> usize {
        self.y + self.height / 2
    }
}

/// All boxes, by the places of their groups, and how large they are together.
pub(super) struct Layout {
    pub(super) cards: Vec<Card>,
    /// The left edges of the waves.
    pub(super) columns: Vec<usize>,
    pub(super) width: usize,
    pub(super) bottom: usize,
}

/// Lays the groups of a phase out below `top`.
pub(super) fn layout(planned: &PhasePlan, top: usize) -> Layout {
    // Where nothing runs, there are no waves, and the groups stand in one column.
    let all = vec![(0..planned.groups.len()).collect()];
    let waves = if planned.plan.waves.is_empty() { &all } else { &planned.plan.waves };
    let mut cards: Vec<Card> = (0..planned.groups.len()).map(|place| card(planned, place)).collect();
    let top = top + room(planned);
    let (mut columns, mut bottom) = (Vec::new(), top);
    for (wave, members) in waves.iter().enumerate() {
        let x = MARGIN + wave * (BOX_WIDTH + GAP_ACROSS);
        columns.push(x);
        let mut y = top;
        for place in members {
            let card = &mut cards[*place];
            (card.x, card.y, card.wave) = (x, y, wave);
            y += card.height + GAP_DOWN;
        }
        bottom = bottom.max(y);
    }
    let right = columns.last().map_or(0, |x| x + BOX_WIDTH + GAP_ACROSS / 2 + MARGIN);
    Layout { cards, columns, width: right.max(PAGE), bottom }
}

/// The room above the boxes for lines that go over some of them.
fn room(planned: &PhasePlan) -> usize {
    let mut wave_of = vec![0; planned.groups.len()];
    for (wave, members) in planned.plan.waves.iter().enumerate() {
        members.iter().for_each(|place| wave_of[*place] = wave);
    }
    let conflicts = planned.findings.conflicts.iter().map(|conflict| (conflict.group1, conflict.group2));
    let steps = planned.plan.steps.iter().enumerate();
    let waits = steps.flat_map(|(place, step)| step.after.iter().map(move |bond| (place, bond.group)));
    let gap = conflicts.chain(waits).map(|(a, b)| wave_of[a].abs_diff(wave_of[b])).max().unwrap_or(0);
    if gap > 1 { rise(gap) + 8 } else { 0 }
}

fn card(planned: &PhasePlan, place: usize) -> Card {
    let group = &planned.groups[place];
    let span = span_in_words(planned.estimates[place]);
    let agents = match group.agents.len() {
        0 => String::new(),
        1 => "1 agent, ".to_owned(),
        count => format!("{count} agents, "),
    };
    let mut lines = vec![format!("{agents}about {span}")];
    let paths = &group.conflict_paths;
    let shown = if paths.len() > PATHS { PATHS - 1 } else { paths.len() };
    lines.extend(paths[..shown].iter().map(|path| short(path.value.as_str(), 28)));
    if shown < paths.len() {
        lines.push(format!("and {} more", paths.len() - shown));
    }
    Card { x: 0, y: 0, height: 40 + lines.len() * LINE, wave: 0, lines }
}

/// As much of a text as has room.
pub(super) fn short(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most - 1).chain(['…']).collect()
}

/// A text in lines of at most so many characters, broken between words.
pub(super) fn wrapped(text: &str, most: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.len() - 1;
        let line = &mut lines[last];
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > most {
            lines.push(short(word, most));
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(&short(word, most));
        }
    }
    lines
}
