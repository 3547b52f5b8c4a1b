//! Resources: what a lease protects, in which mode, and the keys by which a store finds it.

use std::fmt;
use std::num::NonZeroU32;

use crate::id::Name;
use crate::overlap::{covers, overlap};
use crate::pattern::Pattern;

/// How many owners may hold a resource together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// One holder.
    Exclusive,
    /// Any number of holders who are all shared.
    Shared,
    /// At most this many holders of a name. If the numbers of the holders differ, the smallest counts.
    Slots(NonZeroU32),
}

impl Mode {
    /// How many holders this mode accepts, itself included.
    pub fn capacity(self) -> u32 {
        match self {
            Self::Exclusive => 1,
            Self::Shared => u32::MAX,
            Self::Slots(slots) => slots.get(),
        }
    }

    /// Whether holding in this mode gives at least what `wanted` gives.
    pub fn satisfies(self, wanted: Self) -> bool {
        self.capacity() <= wanted.capacity()
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exclusive => f.write_str("exclusive"),
            Self::Shared => f.write_str("shared"),
            Self::Slots(slots) => write!(f, "slots:{slots}"),
        }
    }
}

/// A name, or a pattern over repository paths. Two targets meet if they overlap; a name never meets a pattern.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// Two names meet if they are equal.
    Name(Name),
    /// Two patterns meet if both match some path.
    Path(Pattern),
}

impl Target {
    /// The name or the pattern as text.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Name(name) => name.as_str(),
            Self::Path(pattern) => pattern.as_str(),
        }
    }

    /// Something that both protect: the name itself, or a path that both patterns match. None if the two do not overlap.
    pub fn meets(&self, other: &Self) -> Option<String> {
        match (self, other) {
            (Self::Name(a), Self::Name(b)) => (a == b).then(|| a.as_str().to_owned()),
            (Self::Path(a), Self::Path(b)) => overlap(a, b),
            (Self::Name(_), Self::Path(_)) | (Self::Path(_), Self::Name(_)) => None,
        }
    }

    /// Whether all that `other` protects is protected by this one.
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Name(a), Self::Name(b)) => a == b,
            (Self::Path(a), Self::Path(b)) => covers(a, b),
            (Self::Name(_), Self::Path(_)) | (Self::Path(_), Self::Name(_)) => false,
        }
    }

    /// The key under which a store finds this target.
    pub fn key(&self) -> Key {
        match self {
            Self::Name(name) => Key(["n", name.as_str()].concat()),
            Self::Path(pattern) => {
                let prefix = pattern.literal_prefix();
                if prefix.is_empty() { Key("p".to_owned()) } else { Key(format!("p/{prefix}")) }
            }
        }
    }

    /// The keys under which a store finds every target that can overlap this one.
    ///
    /// Two patterns overlap only if the literal folders of one are a prefix of those of the other. So the keys are those of all
    /// folders above, the key itself, and the range of all folders below.
    pub fn key_range(&self) -> KeyRange {
        let key = self.key();
        match self {
            Self::Name(_) => KeyRange { exact: vec![key], below: None },
            Self::Path(_) => {
                let above = key.0.match_indices('/').map(|(at, _)| Key(key.0[..at].to_owned()));
                let mut exact: Vec<Key> = above.collect();
                let below = key.clone();
                exact.push(key);
                KeyRange { exact, below: Some(below) }
            }
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A target together with how it is held.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resource {
    /// What is held.
    pub target: Target,
    /// How it is held.
    pub mode: Mode,
}

impl Resource {
    /// Whether the two exclude each other if nobody else holds. A name with free slots counts as shared.
    ///
    /// Returns something that both protect.
    pub fn excludes(&self, other: &Self) -> Option<String> {
        let two_fit = self.mode.capacity().min(other.mode.capacity()) >= 2;
        if two_fit { None } else { self.target.meets(&other.target) }
    }

    /// Whether this one is enough for a request for `wanted`.
    pub fn satisfies(&self, wanted: &Self) -> bool {
        self.mode.satisfies(wanted.mode) && self.target.covers(&wanted.target)
    }
}

/// An index key of a record. A store only compares keys.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(String);

impl Key {
    /// Whether it is the key of a name.
    pub fn is_of_name(&self) -> bool {
        self.0.starts_with('n')
    }

    /// The key of everything that belongs to an owner.
    pub fn of_owner(owner: &crate::id::Owner) -> Self {
        Self(["o", owner.as_str()].concat())
    }

    /// The key of everything that belongs to the sub-agents of an owner.
    pub fn of_family(owner: &crate::id::Owner) -> Self {
        Self(["f", owner.as_str()].concat())
    }

    /// The key of a ticket name.
    pub fn of_ticket(name: &crate::id::TicketName) -> Self {
        Self(format!("t{}", name.as_str()))
    }

    /// The key of tickets whose processes run under a lease.
    pub fn of_wait_under(lease: crate::id::LeaseId) -> Self {
        Self(format!("u{}", lease.0))
    }

    /// A key by its text, as a store was told it.
    pub fn from_text(text: String) -> Self {
        Self(text)
    }

    /// The key's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A set of keys: some single keys, and all keys below one folder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyRange {
    /// These keys exactly.
    pub exact: Vec<Key>,
    /// Every key that begins with this one and a slash.
    pub below: Option<Key>,
}

impl KeyRange {
    /// The range with one key.
    pub fn of(key: Key) -> Self {
        Self { exact: vec![key], below: None }
    }

    /// The half-open range of texts that lie below, for stores that compare bytes.
    pub fn range_below(&self) -> Option<(String, String)> {
        // '0' is the byte after '/'.
        self.below.as_ref().map(|key| (format!("{}/", key.0), format!("{}0", key.0)))
    }

    /// Whether the range has this key.
    pub fn includes(&self, key: &Key) -> bool {
        let is_below = |folder: &Key| key.0.strip_prefix(&folder.0).is_some_and(|rest| rest.starts_with('/'));
        self.exact.contains(key) || self.below.as_ref().is_some_and(is_below)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> Target {
        Target::Path(text.parse().unwrap())
    }

    fn name(text: &str) -> Target {
        Target::Name(text.parse().unwrap())
    }

    #[test]
    fn a_pattern_reaches_the_folders_above_and_below_it() {
        let range = path("src/api/*.rs").key_range();
        assert!(range.includes(&path("**/*.rs").key()));
        assert!(range.includes(&path("src/*/mod.rs").key()));
        assert!(range.includes(&path("src/api/v1/**").key()));
        assert!(!range.includes(&path("src/apis/**").key()));
        assert!(!range.includes(&path("docs/**").key()));
        assert!(!range.includes(&name("src/api").key()));
    }

    #[test]
    fn the_byte_range_below_is_the_same_as_includes() {
        let range = path("src/api/**").key_range();
        let (from, to) = range.range_below().unwrap();
        for (text, inside) in [("src/api/v1/x", true), ("src/api-old/x", false), ("src/apix", false)] {
            let key = path(text).key();
            let in_range = from.as_str() <= key.as_str() && key.as_str() < to.as_str();
            assert_eq!((in_range, range.includes(&key)), (inside, inside), "{text}");
        }
    }

    #[test]
    fn a_name_never_overlaps_a_pattern() {
        assert_eq!(name("src").meets(&path("src")), None);
        assert_eq!(name("src").meets(&name("src")), Some("src".to_owned()));
    }

    #[test]
    fn two_resources_exclude_each_other_unless_both_are_shared_or_slots_are_free() {
        let two = Mode::Slots(NonZeroU32::new(2).unwrap());
        let held = |mode| Resource { target: name("db"), mode };
        let excludes = |a, b| held(a).excludes(&held(b)).is_some();
        assert!(excludes(Mode::Exclusive, Mode::Shared));
        assert!(excludes(Mode::Exclusive, two));
        assert!(!excludes(Mode::Shared, Mode::Shared));
        assert!(!excludes(two, Mode::Shared));
    }
}
