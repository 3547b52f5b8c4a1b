//! Character sets, as sorted ranges.

/// Every character of a component: all Unicode scalar values but NUL and `/`.
const COMPONENT: [(char, char); 3] = [('\u{1}', '.'), ('0', '\u{d7ff}'), ('\u{e000}', '\u{10ffff}')];

/// The characters a witness is written with, best first.
const READABLE: &str = "xabcdefghijklmnopqrstuvwyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";

/// Holds the characters one position of a path may have, as sorted, disjoint ranges.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CharSet {
    ranges: Vec<(char, char)>,
}

impl CharSet {
    /// Makes a set of ranges in any order; what no component may contain is left out.
    pub(crate) fn new(mut ranges: Vec<(char, char)>) -> Self {
        ranges.sort_unstable();
        let mut merged: Vec<(char, char)> = Vec::with_capacity(ranges.len());
        for (low, high) in ranges {
            match merged.last_mut() {
                Some(last) if low <= last.1 => last.1 = last.1.max(high),
                _ => merged.push((low, high)),
            }
        }
        Self { ranges: intersect(&merged, &COMPONENT) }
    }

    /// Returns every character of a component.
    pub(crate) fn any() -> Self {
        Self { ranges: COMPONENT.to_vec() }
    }

    /// Returns the component characters that are not in this set.
    pub(crate) fn complement(&self) -> Self {
        let mut rest = Vec::with_capacity(self.ranges.len() + COMPONENT.len());
        for (low, high) in COMPONENT {
            let mut from = Some(low);
            for &(start, end) in self.ranges.iter().filter(|range| range.0 >= low && range.1 <= high) {
                if let (Some(first), Some(last)) = (from, before(start))
                    && first <= last
                {
                    rest.push((first, last));
                }
                from = after(end);
            }
            if let Some(first) = from.filter(|first| *first <= high) {
                rest.push((first, high));
            }
        }
        Self { ranges: rest }
    }

    /// Returns the characters in both sets.
    pub(crate) fn intersection(&self, other: &Self) -> Self {
        Self { ranges: intersect(&self.ranges, &other.ranges) }
    }

    /// Returns the set without one character.
    pub(crate) fn without(&self, character: char) -> Self {
        self.intersection(&Self { ranges: vec![(character, character)] }.complement())
    }

    pub(crate) fn contains(&self, character: char) -> bool {
        self.ranges.iter().any(|&(low, high)| low <= character && character <= high)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    pub(crate) fn ranges(&self) -> &[(char, char)] {
        &self.ranges
    }

    /// Picks the character that reads best in a witness, or none from an empty set.
    pub(crate) fn pick(&self) -> Option<char> {
        let near_the_start = || self.ranges.iter().flat_map(|&(low, high)| (low..=high).take(256));
        READABLE
            .chars()
            .find(|character| self.contains(*character))
            .or_else(|| ('!'..='~').find(|character| *character != '.' && self.contains(*character)))
            .or_else(|| near_the_start().find(|character| character.is_alphanumeric()))
            .or_else(|| near_the_start().find(|c| !c.is_control() && !c.is_whitespace() && *c != '.'))
            .or_else(|| near_the_start().next())
    }
}

/// Returns the next scalar value, stepping over the surrogates.
pub(crate) fn after(character: char) -> Option<char> {
    (character..=char::MAX).nth(1)
}

fn before(character: char) -> Option<char> {
    ('\0'..=character).nth_back(1)
}

fn intersect(left: &[(char, char)], right: &[(char, char)]) -> Vec<(char, char)> {
    let (mut i, mut j, mut common) = (0, 0, Vec::new());
    while let (Some(a), Some(b)) = (left.get(i), right.get(j)) {
        let (low, high) = (a.0.max(b.0), a.1.min(b.1));
        if low <= high {
            common.push((low, high));
        }
        if a.1 < b.1 {
            i += 1;
        } else {
            j += 1;
        }
    }
    common
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(ranges: &[(char, char)]) -> CharSet {
        CharSet::new(ranges.to_vec())
    }

    #[test]
    fn ranges_are_sorted_merged_and_never_hold_a_slash_or_nul() {
        assert_eq!(
            set(&[('m', 'p'), ('a', 'c'), ('b', 'n'), ('\0', '0')]).ranges(),
            [('\u{1}', '.'), ('0', '0'), ('a', 'p')]
        );
        assert!(set(&[('/', '/')]).is_empty());
    }

    #[test]
    fn complement_splits_the_characters_in_two() {
        for ranges in [vec![], vec![('a', 'z')], vec![('\u{1}', '.')], vec![('a', '\u{fffff}'), ('+', '5')]] {
            let (inside, outside) = (set(&ranges), set(&ranges).complement());
            assert!(inside.intersection(&outside).is_empty(), "{ranges:?}");
            let both = inside.ranges().iter().chain(outside.ranges()).copied().collect();
            assert_eq!(CharSet::new(both).complement(), set(&[]), "{ranges:?}");
        }
        assert_eq!(set(&[]).complement(), CharSet::any());
    }

    #[test]
    fn pick_prefers_a_letter_and_never_fails_on_a_full_set() {
        assert_eq!(CharSet::any().pick(), Some('x'));
        assert_eq!(set(&[('\u{1}', '\u{20}'), ('#', '#')]).pick(), Some('#'));
        assert_eq!(set(&[('あ', 'ん')]).pick(), Some('あ'));
        assert_eq!(set(&[('\u{7}', '\u{7}')]).pick(), Some('\u{7}'));
        assert_eq!(set(&[]).pick(), None);
    }
}
