//! Layout of a phase: waves from left to right, their groups from top to bottom.

use std::collections::HashMap;
use std::time::Duration;

use super::figure::Mark;
use super::labels::{Labels, filled};
use super::lines::rise;
use crate::estimate::span_in_words;
use crate::views::{GroupView, PlanView};

/// The margin around everything.
pub(super) const MARGIN: usize = 32;
pub(super) const BOX_WIDTH: usize = 232;
/// The width of the text in a box.
pub(super) const BOX_TEXT: usize = BOX_WIDTH - 28;
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
    /// The lines of text below its name, each with its CSS classes.
    pub(super) lines: Vec<(&'static str, String)>,
}

impl Card {
    pub(super) fn middle(&self) -> usize {
        self.y + self.height / 2
    }
}

/// All boxes, by the indexes of their groups, and the size of the picture.
pub(super) struct Layout<'p> {
    pub(super) cards: Vec<Card>,
    /// The left edges of the waves.
    pub(super) columns: Vec<usize>,
    pub(super) width: usize,
    pub(super) bottom: usize,
    places: HashMap<&'p str, usize>,
}

impl Layout<'_> {
    /// Returns the box of a group.
    pub(super) fn card(&self, id: &str) -> Option<&Card> {
        self.cards.get(self.place(id)?)
    }

    /// Returns the index of a group in the plan.
    pub(super) fn place(&self, id: &str) -> Option<usize> {
        self.places.get(id).copied()
    }
}

/// Places the groups of a phase below `top`.
pub(super) fn layout<'p>(plan: &'p PlanView, top: usize, labels: &Labels, marks: &[Mark<'_>]) -> Layout<'p> {
    let places: HashMap<&str, usize> =
        plan.groups.iter().enumerate().map(|(place, group)| (group.group_id.as_str(), place)).collect();
    // If nothing runs, there are no waves, and the groups are in one column.
    let all = vec![plan.groups.iter().map(|group| group.group_id.clone()).collect()];
    let waves = if plan.waves.is_empty() { &all } else { &plan.waves };
    let marks = marks.iter().map(Some).chain(std::iter::repeat(None));
    let mut cards: Vec<Card> =
        plan.groups.iter().zip(marks).map(|(group, mark)| card(group, labels, mark)).collect();
    for (wave, members) in waves.iter().enumerate() {
        for place in members.iter().filter_map(|id| places.get(id.as_str())) {
            cards[*place].wave = wave;
        }
    }
    let top = top + room(plan, &places, &cards);
    let (mut columns, mut bottom) = (Vec::new(), top);
    for (wave, members) in waves.iter().enumerate() {
        let x = MARGIN + wave * (BOX_WIDTH + GAP_ACROSS);
        columns.push(x);
        let mut y = top;
        for place in members.iter().filter_map(|id| places.get(id.as_str())) {
            let card = &mut cards[*place];
            (card.x, card.y) = (x, y);
            y += card.height + GAP_DOWN;
        }
        bottom = bottom.max(y);
    }
    let width = columns.last().map_or(0, |x| x + BOX_WIDTH + GAP_ACROSS / 2 + MARGIN);
    Layout { cards, columns, width, bottom, places }
}

/// Returns the height above the boxes for lines that go over them.
fn room(plan: &PlanView, places: &HashMap<&str, usize>, cards: &[Card]) -> usize {
    let wave = |id: &str| places.get(id).map_or(0, |place| cards[*place].wave);
    let conflicts = plan.conflicts.iter().map(|found| (found.group1.as_str(), found.group2.as_str()));
    let waits = plan
        .groups
        .iter()
        .flat_map(|group| group.after().iter().map(|bond| (group.group_id.as_str(), bond.group_id.as_str())));
    let gap = conflicts.chain(waits).map(|(a, b)| wave(a).abs_diff(wave(b))).max().unwrap_or(0);
    if gap > 1 { rise(gap) + 8 } else { 0 }
}

fn card(group: &GroupView, labels: &Labels, mark: Option<&Mark<'_>>) -> Card {
    let about = filled(labels.about, span_in_words(span(group.estimated_seconds)));
    let told = match group.agents.len() {
        // A group that was not planned has no estimate.
        0 if group.wave.is_none() && group.estimated_seconds == 0.0 => None,
        0 => Some(about),
        1 => Some(format!("{}, {about}", labels.one_agent)),
        count => Some(format!("{}, {about}", filled(labels.agents, count))),
    };
    let mut lines: Vec<(&'static str, String)> =
        mark.into_iter().map(|mark| (mark.tone, mark.text.to_owned())).collect();
    lines.extend(told.map(|told| ("dim", told)));
    let paths = &group.conflict_paths;
    let shown = if paths.len() > PATHS { PATHS - 1 } else { paths.len() };
    lines.extend(paths[..shown].iter().map(|path| ("dim code", fitted(path, BOX_TEXT, 7))));
    if shown < paths.len() {
        lines.push(("dim code", filled(labels.more, paths.len() - shown)));
    }
    Card { x: 0, y: 0, height: 40 + lines.len() * LINE, wave: 0, lines }
}

/// Converts seconds to a duration.
pub(super) fn span(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

/// Cuts a text to this number of characters.
pub(super) fn short(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most - 1).chain(['…']).collect()
}

/// Returns the largest possible width of a text, if a small letter has this width. Chinese and Japanese characters are
/// twice as wide.
pub(super) fn room_for(text: &str, letter: usize) -> usize {
    text.chars().map(|one| width(one, letter)).sum()
}

/// Cuts a text to this width.
pub(super) fn fitted(text: &str, room: usize, letter: usize) -> String {
    if room_for(text, letter) <= room {
        return text.to_owned();
    }
    let mut left = room.saturating_sub(2 * letter);
    let begin = text.chars().take_while(|one| {
        let wide = width(*one, letter);
        let fits = wide <= left;
        left = left.saturating_sub(wide);
        fits
    });
    begin.chain(['…']).collect()
}

const fn width(one: char, letter: usize) -> usize {
    match one {
        'A'..='Z' | '0'..='9' | 'm' | 'w' => letter + letter / 4,
        '\u{1100}'.. => 2 * letter,
        _ => letter,
    }
}

/// Wraps a text into lines of at most `most` characters, between words.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_where_the_room_ends() {
        assert_eq!(fitted("impl-backend", BOX_TEXT, 8), "impl-backend");
        let long = fitted("EX-20261116-031356-keye4nkhbp.1.1", BOX_TEXT, 8);
        assert!(long.ends_with('…') && room_for(&long, 8) <= BOX_TEXT, "{long}");
        let wide = fitted(&"路".repeat(40), BOX_TEXT, 7);
        assert!(wide.ends_with('…') && room_for(&wide, 7) <= BOX_TEXT, "{wide}");
    }
}
