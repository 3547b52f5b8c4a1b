//! Parts of a line of tickets that were read already, so that no walk along it reads them again.

use lockkeeper_core::draft::Walk;
use lockkeeper_core::id::LeaseId;
use lockkeeper_core::record::{Rank, Ticket};
use lockkeeper_core::resource::Reach;

/// A part of a line of which everything is known.
pub(super) struct Stretch {
    reach: Reach,
    /// Behind this place it begins; without one, at the beginning of the line.
    after: Option<Rank>,
    /// Before this place it ends; without one, at the end of the line.
    before: Option<Rank>,
    /// From the first to the last.
    met: Vec<Ticket>,
}

impl Stretch {
    /// The part of which nothing is known but where a walk along it begins.
    pub(super) fn at_start(reach: &Reach, walk: Walk) -> Self {
        let (after, before) = match walk {
            Walk::Up(None) => (None, Some(LOWEST)),
            Walk::Up(Some(place)) => (Some(place), Some(behind(place))),
            Walk::Down(None) => (Some(HIGHEST), None),
            Walk::Down(Some(place)) => (Some(ahead_of(place)), Some(place)),
        };
        Self { reach: reach.clone(), after, before, met: Vec::new() }
    }

    /// Whether a walk begins within it.
    pub(super) fn has_start_of(&self, reach: &Reach, walk: Walk) -> bool {
        let begins_by = |place: Rank| self.after.is_none_or(|after| after <= place);
        let ends_by = |place: Rank| self.before.is_none_or(|before| before >= place);
        let has = match walk {
            Walk::Up(None) => self.after.is_none(),
            Walk::Up(Some(place)) => begins_by(place) && ends_by(behind(place)),
            Walk::Down(None) => self.before.is_none(),
            Walk::Down(Some(place)) => ends_by(place) && begins_by(ahead_of(place)),
        };
        has && self.reach == *reach
    }

    /// Those who are met on a walk that begins within it, in their order.
    pub(super) fn along(&self, walk: Walk) -> Box<dyn Iterator<Item = &Ticket> + '_> {
        match walk {
            Walk::Up(place) => {
                Box::new(self.met.iter().filter(move |met| place.is_none_or(|place| met.rank > place)))
            }
            Walk::Down(place) => {
                Box::new(self.met.iter().rev().filter(move |met| place.is_none_or(|place| met.rank < place)))
            }
        }
    }

    /// How a walk goes on behind its end; none when that is the end of the line.
    pub(super) fn further(&self, walk: Walk) -> Option<Walk> {
        match walk {
            Walk::Up(_) if self.before == Some(LOWEST) => Some(Walk::Up(None)),
            Walk::Up(_) => self.before.map(|before| Walk::Up(Some(ahead_of(before)))),
            Walk::Down(_) if self.after == Some(HIGHEST) => Some(Walk::Down(None)),
            Walk::Down(_) => self.after.map(|after| Walk::Down(Some(behind(after)))),
        }
    }

    /// Adds what was met next on a walk, and whether that was the end of the line.
    pub(super) fn extend(&mut self, walk: Walk, met: Vec<Ticket>, ended: bool) {
        let last = met.last().map(|ticket| ticket.rank);
        match walk {
            Walk::Up(_) => {
                self.met.extend(met);
                self.before = if ended { None } else { last.map(behind).or(self.before) };
            }
            Walk::Down(_) => {
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
