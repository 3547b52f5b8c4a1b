//! Component trie: the patterns of one folder, by the names of their fixed components.

use std::collections::HashMap;

use crate::pattern::Pattern;

/// A trie node. Its children are components with a name, and components with wildcards.
#[derive(Default)]
pub(super) struct ComponentTrie<'a> {
    named: HashMap<&'a [u8], Self>,
    wild: Option<Box<Self>>,
    /// The patterns whose paths end here.
    closed: Vec<usize>,
    /// The patterns whose paths may go on in any way.
    open: Vec<usize>,
}

/// Splits fixed components into names. A component with wildcards has an empty name.
pub(super) fn names(components: &str) -> impl Iterator<Item = &[u8]> {
    components.split('/').skip(1).map(str::as_bytes)
}

impl<'a> ComponentTrie<'a> {
    pub(super) fn insert(&mut self, pattern: &'a Pattern, place: usize) {
        let mut node = self;
        for name in names(pattern.fixed_components()) {
            node = if name.is_empty() {
                node.wild.get_or_insert_default()
            } else {
                node.named.entry(name).or_default()
            };
        }
        let here = if pattern.is_open() { &mut node.open } else { &mut node.closed };
        here.push(place);
    }

    /// Calls `found` with each pattern whose components agree with `names`. If `open`, more components may follow.
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
