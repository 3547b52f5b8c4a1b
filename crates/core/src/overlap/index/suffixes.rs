//! Suffix index: finds the literal suffixes that agree. Two suffixes agree if one is a suffix of the other.

use std::ops::Range;

use crate::pattern::Pattern;

/// The literal suffixes of patterns, numbered in the order in which they read backwards.
pub(super) struct Suffixes {
    /// For each pattern, the number of its suffix.
    number: Vec<usize>,
    /// For each suffix, the longest other suffix that it ends with. Its number is lower.
    shorter: Vec<Option<usize>>,
    /// For each suffix, the first number after all suffixes that end with it.
    beyond: Vec<usize>,
}

impl Suffixes {
    pub(super) fn new(patterns: &[&Pattern]) -> Self {
        let mut texts = Vec::with_capacity(patterns.len() * 8);
        patterns.iter().for_each(|pattern| texts.extend(pattern.literal_suffix().bytes().rev()));
        let mut rest = texts.as_slice();
        let mut suffixes: Vec<(&[u8], usize)> = Vec::with_capacity(patterns.len());
        for (place, pattern) in patterns.iter().enumerate() {
            let (end, after) = rest.split_at(pattern.literal_suffix().len());
            suffixes.push((end, place));
            rest = after;
        }
        suffixes.sort_unstable();
        let mut made = Self { number: vec![0; suffixes.len()], shorter: Vec::new(), beyond: Vec::new() };
        let mut open: Vec<(&[u8], usize)> = Vec::new();
        for same in suffixes.chunk_by(|a, b| a.0 == b.0) {
            let number = made.shorter.len();
            while let Some((_, closed)) = open.pop_if(|(shorter, _)| !same[0].0.starts_with(shorter)) {
                made.beyond[closed] = number;
            }
            made.shorter.push(open.last().map(|(_, shorter)| *shorter));
            made.beyond.push(0);
            open.push((same[0].0, number));
            same.iter().for_each(|(_, place)| made.number[*place] = number);
        }
        for (_, closed) in open {
            made.beyond[closed] = made.shorter.len();
        }
        made
    }

    /// Returns the number of a pattern's suffix.
    pub(super) fn number(&self, place: usize) -> usize {
        self.number[place]
    }

    /// Returns the numbers of the suffixes that agree with a pattern's suffix, including its own.
    pub(super) fn agreeing(&self, place: usize) -> impl Iterator<Item = Range<usize>> {
        let number = self.number[place];
        let shorter = std::iter::successors(self.shorter[number], |shorter| self.shorter[*shorter]);
        shorter.map(|shorter| shorter..shorter + 1).chain(std::iter::once(number..self.beyond[number]))
    }

    /// Says whether the suffixes of two patterns agree.
    pub(super) fn agree(&self, a: usize, b: usize) -> bool {
        let (a, b) = (self.number[a], self.number[b]);
        (a..self.beyond[a]).contains(&b) || (b..self.beyond[b]).contains(&a)
    }
}
