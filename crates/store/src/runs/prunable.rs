//! Which requests can be removed. The same for all backends.

use std::collections::{BTreeMap, HashMap, HashSet};

use lockkeeper_core::id::{RequestId, RunId};

use super::columns::parse;

/// A request that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Old {
    /// Its row.
    pub(super) seq: i64,
    /// Its id.
    pub(super) request: RequestId,
    /// All its runs.
    pub(super) runs: Vec<RunId>,
    /// Whether it is done.
    done: bool,
}

/// A run of a request that has ended, as a row.
pub(super) struct OldRow {
    pub(super) seq: i64,
    pub(super) request: String,
    pub(super) run: String,
    pub(super) done: bool,
}

/// A request that depends on another one.
pub(super) struct Edge {
    /// The dependency.
    pub(super) before: i64,
    /// The request that depends on it.
    pub(super) after: i64,
    /// Whether that request is open.
    pub(super) is_open: bool,
}

/// Collects the runs of each request. The rows of a request follow each other.
pub(super) fn collect(rows: Vec<OldRow>) -> Result<Vec<Old>, String> {
    let mut old: BTreeMap<i64, Old> = BTreeMap::new();
    for OldRow { seq, request, run, done } in rows {
        let request = parse(&request)?;
        old.entry(seq).or_insert(Old { seq, request, runs: Vec::new(), done }).runs.push(parse(&run)?);
    }
    Ok(old.into_values().collect())
}

/// Keeps only requests that no remaining request depends on. A done request may go while an ended one depends on it: that one
/// would not wait for it if it were run again.
pub(super) fn not_needed(mut old: Vec<Old>, edges: &[Edge]) -> Vec<Old> {
    let mut later: HashMap<i64, Vec<&Edge>> = HashMap::new();
    for edge in edges {
        later.entry(edge.before).or_default().push(edge);
    }
    // A request that stays keeps its dependencies, and those keep theirs.
    loop {
        let gone: HashSet<i64> = old.iter().map(|old| old.seq).collect();
        let before = old.len();
        old.retain(|old| {
            let mut after = later.get(&old.seq).into_iter().flatten();
            after.all(|edge| !edge.is_open && (old.done || gone.contains(&edge.after)))
        });
        if old.len() == before {
            return old;
        }
    }
}
