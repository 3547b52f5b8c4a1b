//! Parts of a line of tickets that were read already, so that no scan along it reads them again.

use lockkeeper_core::id::LeaseId;
use lockkeeper_core::overlay::Scan;
use lockkeeper_core::record::{Rank, Ticket};
use lockkeeper_core::resource::KeyRange;

/// A part of a line of which everything is known.
pub(super) struct Stretch {
    range: KeyRange,
    /// Behind this place it begins; without one, at the beginning of the line.
    after: Option<Rank>,
    /// Before this place it ends; without one, at the end of the line.
    before: Option<Rank>,
    /// From the first to the last.
    met: Vec<Ticket>,
}

impl Stretch {
    /// The part of which nothing is known but where a scan along it begins.
    pub(super) fn at_start(range: &KeyRange, scan: Scan) -> Self {
        let (after, before) = match scan {
            Scan::Forward(None) => (None, Some(LOWEST)),
            Scan::Forward(Some(place)) => (Some(place), Some(behind(place))),
            Scan::Backward(None) => (Some(HIGHEST), None),
            Scan::Backward(Some(place)) => (Some(ahead_of(place)), Some(place)),
        };
        Self { range: range.clone(), after, before, met: Vec::new() }
    }

    /// Whether a scan begins within it.
    pub(super) fn has_start_of(&self, range: &KeyRange, scan: Scan) -> bool {
        let begins_by = |place: Rank| self.after.is_none_or(|after| after <= place);
        let ends_by = |place: Rank| self.before.is_none_or(|before| before >= place);
        let has = match scan {
            Scan::Forward(None) => self.after.is_none(),
            Scan::Forward(Some(place)) => begins_by(place) && ends_by(behind(place)),
            Scan::Backward(None) => self.before.is_none(),
            Scan::Backward(Some(place)) => ends_by(place) && begins_by(ahead_of(place)),
        };
        has && self.range == *range
    }

    /// Those who are met on a scan that begins within it, in their order.
    pub(super) fn along(&self, scan: Scan) -> Box<dyn Iterator<Item = &Ticket> + '_> {
        match scan {
            Scan::Forward(place) => {
                Box::new(self.met.iter().filter(move |met| place.is_none_or(|place| met.rank > place)))
            }
            Scan::Backward(place) => {
                Box::new(self.met.iter().rev().filter(move |met| place.is_none_or(|place| met.rank < place)))
            }
        }
    }

    /// How a scan goes on behind its end; none when that is the end of the line.
    pub(super) fn further(&self, scan: Scan) -> Option<Scan> {
        match scan {
            Scan::Forward(_) if self.before == Some(LOWEST) => Some(Scan::Forward(None)),
            Scan::Forward(_) => self.before.map(|before| Scan::Forward(Some(ahead_of(before)))),
            Scan::Backward(_) if self.after == Some(HIGHEST) => Some(Scan::Backward(None)),
            Scan::Backward(_) => self.after.map(|after| Scan::Backward(Some(behind(after)))),
        }
    }

    /// Adds what was met next on a scan, and whether that was the end of the line.
    pub(super) fn extend(&mut self, scan: Scan, met: Vec<Ticket>, ended: bool) {
        let last = met.last().map(|ticket| ticket.rank);
        match scan {
            Scan::Forward(_) => {
                self.met.extend(met);
                self.before = if ended { None } else { last.map(behind).or(self.before) };
            }
            Scan::Backward(_) => {
                self.met.splice(0..0, met.into_iter().rev());
                self.after = if ended { None } else { last.map(ahead_of).or(self.after) };
            }
        }
    }
}

/// Nobody stands here, or before it.
const LOWEST: Rank = Rank { at: i64::MIN, id: LeaseId(0) };
/// Nobody stands here, or behind it.
const HIGHEST: Rank = Rank { at: i64::MAX, id: LeaseId(u64::MAX) };

/// The place right behind another: ids count up, so that nobody stands in between.
fn behind(place: Rank) -> Rank {
    Rank { at: place.at, id: LeaseId(place.id.0.saturating_add(1)) }
}

/// The place right before another. Ids begin with 1.
fn ahead_of(place: Rank) -> Rank {
    Rank { at: place.at, id: LeaseId(place.id.0.saturating_sub(1)) }
}
