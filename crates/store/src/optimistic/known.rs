//! What a process knows after its own commit, so that its next decision about the same names needs no read.
//!
//! A decision that begins with it is committed only if nothing has changed since, as after a read. Otherwise it runs again, and
//! reads. A decision that changes nothing always reads.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use lockkeeper_core::id::LeaseId;
use lockkeeper_core::in_memory::InMemoryRecords;
use lockkeeper_core::resource::{Key, KeyRange};
use lockkeeper_core::time::Moment;

use super::parts::{Footprint, PATHS, id_of};
use super::{Decided, Wanted};

/// How many decisions are remembered.
const MOST: usize = 64;

/// The latest decisions that were committed, each once: a decision that uses one takes it.
#[derive(Default)]
pub(crate) struct Known(Mutex<VecDeque<Bundle>>);

/// What one decision knew when it was committed.
#[derive(Debug)]
pub(crate) struct Bundle {
    /// The keys whose records are all here.
    pub(crate) keys: BTreeSet<Key>,
    pub(crate) footprint: Footprint,
    pub(crate) records: InMemoryRecords,
    /// Numbers that were drawn after the commit.
    pub(crate) numbers: Range<u64>,
    pub(crate) remembers_since: Option<Moment>,
}

impl Known {
    /// Takes what is known of a range or a record.
    pub(crate) fn take(&self, wanted: Wanted<'_>) -> Option<Bundle> {
        let has = |bundle: &Bundle| match wanted {
            Wanted::In(range, _) => {
                range.below.is_none() && range.exact.iter().all(|key| bundle.keys.contains(key))
            }
            Wanted::One(id) => bundle.footprint.ids.contains_key(&id),
            Wanted::All => false,
        };
        let mut bundles = self.bundles();
        let place = bundles.iter().rposition(has)?;
        bundles.remove(place)
    }

    /// Remembers a decision that was committed with this version, if nobody waits there and it is about names alone: what others
    /// also change is not known for long.
    pub(crate) fn keep(
        &self,
        decided: Decided<'_>,
        written: &[String],
        version: i64,
        numbers: Range<u64>,
    ) -> Option<()> {
        let Decided { remembers_since, mut footprint, keys, mut records, changes, .. } = decided;
        let ids: Vec<LeaseId> = changes.iter().map(id_of).collect();
        for change in changes {
            records.apply(change).ok()?;
        }
        let mut bundles = self.bundles();
        let overlaps = |bundle: &Bundle| {
            written.iter().any(|part| bundle.footprint.parts.contains_key(part))
                || ids.iter().any(|id| bundle.footprint.ids.contains_key(id))
        };
        bundles.retain(|bundle| !overlaps(bundle));
        let is_of_names = !footprint.parts.contains_key(PATHS) && footprint.all.is_none();
        if !is_of_names || records.tickets().next().is_some() {
            return None;
        }
        for key in &keys {
            if let Some(known) = footprint.parts.get_mut(key.as_str())
                && written.iter().any(|part| part == key.as_str())
            {
                // The rows of names stay; all others end with their last record.
                let stays = key.is_of_name() || !records.leases_in(&KeyRange::of(key.clone())).is_empty();
                *known = if stays { version } else { 0 };
            }
        }
        footprint.ids.extend(ids.into_iter().map(|id| (id, version)));
        footprint.ids.retain(|id, _| records.lease(*id).is_some());
        bundles.push_back(Bundle { keys, footprint, records, numbers, remembers_since });
        if bundles.len() > MOST {
            bundles.pop_front();
        }
        Some(())
    }

    /// Forgets what was known of parts and records that have changed.
    pub(crate) fn forget(&self, footprint: &Footprint) {
        let concerns = |bundle: &Bundle| {
            footprint.parts.keys().any(|part| bundle.footprint.parts.contains_key(part))
                || footprint.ids.keys().any(|id| bundle.footprint.ids.contains_key(id))
        };
        self.bundles().retain(|bundle| !concerns(bundle));
    }

    fn bundles(&self) -> MutexGuard<'_, VecDeque<Bundle>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
