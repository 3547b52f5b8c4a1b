//! Patterns of one folder by the names of the components that all their paths have.

use std::collections::HashMap;

use crate::pattern::Pattern;

/// A tree of components: those of one name, and those with wildcards.
#[derive(Default)]
pub(super) struct Spines<'a> {
    named: HashMap<&'a [u8], Self>,
    wild: Option<Box<Self>>,
    /// The patterns whose paths end here.
    closed: Vec<usize>,
    /// The patterns whose paths may go on in any way.
    open: Vec<usize>,
}

/// Takes a spine apart; the name of a component with wildcards is empty.
pub(super) fn names(spine: &str) -> impl Iterator<Item = &[u8]> {
    spine.split('/').skip(1).map(str::as_bytes)
}

impl<'a> Spines<'a> {
    pub(super) fn enter(&mut self, pattern: &'a Pattern, place: usize) {
        let mut node = self;
        for name in names(pattern.spine()) {
            node = if name.is_empty() {
                node.wild.get_or_insert_default()
            } else {
                node.named.entry(name).or_default()
            };
        }
        let here = if pattern.is_open() { &mut node.open } else { &mut node.closed };
        here.push(place);
    }

    /// Calls `found` with each pattern whose components agree with these, after which more may come where `open`.
    pub(super) fn agreeing(&self, names: &[&[u8]], open: bool, found: &mut impl FnMut(usize)) {
        let Some((name, rest)) = names.split_first() else {
            self.closed.iter().chain(&self.open).copied().for_each(&mut *found);
            if open {
                self.children().for_each(|child| child.agreeing(&[], true, found));
            }
            return;
        };
        self.open.iter().copied().for_each(&mut *found);
        if name.is_empty() {
            self.children().for_each(|child| child.agreeing(rest, open, found));
        } else {
            let children = self.named.get(name).into_iter().chain(self.wild.as_deref());
            children.for_each(|child| child.agreeing(rest, open, found));
        }
    }

    fn children(&self) -> impl Iterator<Item = &Self> {
        self.named.values().chain(self.wild.as_deref())
    }
}
