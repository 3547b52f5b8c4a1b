//! Keys of etcd: under which names the records of a project are kept. Everything is below `/lockkeeper/PROJECT/`.
//!
//! | key | value |
//! |---|---|
//! | `about` | the version of this layout |
//! | `clock/base`, `clock/last` | the store's clock: see the module `clock` |
//! | `memory`, `since` | which cluster it is, and since when it has lost nothing: see the module `memory` |
//! | `all` | written by every commit |
//! | `number` | written to draw numbers |
//! | `r/ID` | a record |
//! | `k/KEY\0ID` | the same record, under each of its keys |
//! | `v/PART` | written by every commit that changes a record of this part |
//! | `d/MOMENT/CALL` | a decision of the last minutes: committed, or given up |
//! | `w/WAKER` | written by every wake-up |

use lockkeeper_core::id::{LeaseId, WakerId};
use lockkeeper_core::resource::{Key, KeyRange};
use lockkeeper_core::time::Moment;

use super::messages::{
    Compare, CompareResult, CompareTarget, CompareWith, DeleteRangeRequest, Op, PutRequest, RangeRequest,
};

/// How many version keys the keys share that are neither names nor paths. Version keys are never removed, and every command has
/// an owner of its own.
const BUCKETS: u64 = 4096;

/// The keys of one project.
pub(super) struct Keys {
    prefix: String,
}

/// A half-open range of keys of etcd.
type Span = (Vec<u8>, Vec<u8>);

impl Keys {
    pub(super) fn new(project: &str) -> Self {
        // A slash ends the project's name.
        Self { prefix: format!("/lockkeeper/{}/", project.replace('%', "%25").replace('/', "%2F")) }
    }

    fn key(&self, rest: &str) -> Vec<u8> {
        [self.prefix.as_bytes(), rest.as_bytes()].concat()
    }

    pub(super) fn about(&self) -> Vec<u8> {
        self.key("about")
    }

    pub(super) fn clock_base(&self) -> Vec<u8> {
        self.key("clock/base")
    }

    pub(super) fn clock_last(&self) -> Vec<u8> {
        self.key("clock/last")
    }

    pub(super) fn memory(&self) -> Vec<u8> {
        self.key("memory")
    }

    pub(super) fn since(&self) -> Vec<u8> {
        self.key("since")
    }

    pub(super) fn all(&self) -> Vec<u8> {
        self.key("all")
    }

    pub(super) fn number(&self) -> Vec<u8> {
        self.key("number")
    }

    pub(super) fn record(&self, id: LeaseId) -> Vec<u8> {
        self.key(&format!("r/{:016x}", id.0))
    }

    pub(super) fn records(&self) -> Span {
        (self.key("r/"), self.key("r0"))
    }

    pub(super) fn entry(&self, key: &Key, id: LeaseId) -> Vec<u8> {
        self.key(&format!("k/{}\0{:016x}", key.as_str(), id.0))
    }

    /// All entries of all keys.
    pub(super) fn entries(&self) -> Span {
        (self.key("k/"), self.key("k0"))
    }

    /// The spans in which the records of a key range are.
    pub(super) fn spans(&self, range: &KeyRange) -> Vec<Span> {
        let exact = range.exact.iter().map(|key| {
            let entries = |end: char| self.key(&format!("k/{}{end}", key.as_str()));
            (entries('\0'), entries('\u{1}'))
        });
        let below = range.range_below();
        let below = below.map(|(from, to)| (self.key(&format!("k/{from}")), self.key(&format!("k/{to}"))));
        exact.chain(below).collect()
    }

    pub(super) fn version(&self, part: &str) -> Vec<u8> {
        self.key(&format!("v/{part}"))
    }

    pub(super) fn decision(&self, moment: Moment, call: u64) -> Vec<u8> {
        self.key(&format!("d/{:016x}/{call:016x}", moment.as_micros().max(0)))
    }

    pub(super) fn decisions_before(&self, moment: Moment) -> Span {
        (self.key("d/"), self.key(&format!("d/{:016x}/", moment.as_micros().max(0))))
    }

    pub(super) fn waker(&self, id: WakerId) -> Vec<u8> {
        self.key(&format!("w/{:016x}", id.0))
    }

    pub(super) fn wakers(&self) -> Span {
        (self.key("w/"), self.key("w0"))
    }
}

/// The version key of a part: names and paths have their own, all others share [`BUCKETS`] of them.
pub(super) fn bucket(part: &str) -> String {
    let Some(kind @ ('o' | 'f' | 't' | 'u')) = part.chars().next() else { return part.to_owned() };
    // FNV-1a: the same in every version of this program.
    let hash = part.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{kind}{:03x}", hash % BUCKETS)
}

pub(super) fn get(key: Vec<u8>) -> RangeRequest {
    RangeRequest { key, ..RangeRequest::default() }
}

pub(super) fn within((key, range_end): Span) -> RangeRequest {
    RangeRequest { key, range_end, ..RangeRequest::default() }
}

pub(super) fn put(key: Vec<u8>, value: Vec<u8>) -> Op {
    Op::Put(PutRequest { key, value })
}

pub(super) fn delete(key: Vec<u8>) -> Op {
    Op::Delete(DeleteRangeRequest { key, ..DeleteRangeRequest::default() })
}

pub(super) fn delete_within((key, range_end): Span) -> Op {
    Op::Delete(DeleteRangeRequest { key, range_end })
}

/// The key was last changed by this revision; 0 if it is not there.
pub(super) fn is_at(key: Vec<u8>, revision: i64) -> Compare {
    let (result, target) = (CompareResult::Equal.into(), CompareTarget::Mod.into());
    Compare { result, target, key, with: Some(CompareWith::ModRevision(revision)) }
}

/// The key was not changed after this revision.
pub(super) fn is_not_after(key: Vec<u8>, revision: i64) -> Compare {
    let (result, target) = (CompareResult::Less.into(), CompareTarget::Mod.into());
    Compare { result, target, key, with: Some(CompareWith::ModRevision(revision + 1)) }
}

/// There is no such key.
pub(super) fn is_absent(key: Vec<u8>) -> Compare {
    let (result, target) = (CompareResult::Equal.into(), CompareTarget::Create.into());
    Compare { result, target, key, with: Some(CompareWith::CreateRevision(0)) }
}

/// The value is there and the same.
pub(super) fn is_equal(key: Vec<u8>, value: Vec<u8>) -> Compare {
    let (result, target) = (CompareResult::Equal.into(), CompareTarget::Value.into());
    Compare { result, target, key, with: Some(CompareWith::Value(value)) }
}

/// The value is there and less than this one.
pub(super) fn is_less(key: Vec<u8>, value: Vec<u8>) -> Compare {
    let (result, target) = (CompareResult::Less.into(), CompareTarget::Value.into());
    Compare { result, target, key, with: Some(CompareWith::Value(value)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockkeeper_core::resource::Target;

    #[test]
    fn no_project_has_keys_of_another() {
        let names = ["a", "a/r", "a%2Fr", "b"];
        let mut prefixes: Vec<String> = names.iter().map(|name| Keys::new(name).prefix).collect();
        prefixes.sort();
        for pair in prefixes.windows(2) {
            assert!(!pair[1].starts_with(&pair[0]), "{pair:?}");
        }
    }

    #[test]
    fn the_entries_of_a_range_are_those_of_its_keys() {
        let keys = Keys::new("p");
        let path = |text: &str| Target::Path(text.parse().unwrap());
        let range = path("src/api/**").key_range();
        let all =
            ["**", "src/*", "src/api/x", "src/api/v1/x", "src/apis/x", "src/api-old/x", "docs/x", "srcs/x"];
        for text in all {
            let key = path(text).key();
            let entry = keys.entry(&key, LeaseId(7));
            let is_found = keys.spans(&range).iter().any(|(from, to)| *from <= entry && entry < *to);
            assert_eq!(is_found, range.includes(&key), "{text}");
        }
    }

    #[test]
    fn names_and_paths_have_parts_of_their_own() {
        for part in ["p", "nowner", "n文"] {
            assert_eq!(bucket(part), part);
        }
        // Two versions of this program have to find the same one.
        assert_eq!(bucket("oworker:1"), "o74d");
    }
}
