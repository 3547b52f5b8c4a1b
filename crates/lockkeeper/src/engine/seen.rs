//! What a decision sees: the records of one transaction, each read once, and the holders behind them.

use std::ops::ControlFlow;

use lockkeeper_core::draft::{View, Walk};
use lockkeeper_core::id::LeaseId;
use lockkeeper_core::liveness::{Proof, Sight};
use lockkeeper_core::record::{Lease, Rank, Ticket};
use lockkeeper_core::resource::Reach;
use lockkeeper_core::time::Moment;

use super::Senses;
use crate::store::{Records, StoreError};

/// The records of a transaction, which do not change while a decision looks at them.
///
/// Rules ask for the same few lines again and again, from several sides; what was read once is remembered.
pub(super) struct Seen<'r> {
    records: &'r mut dyn Records,
    senses: &'r Senses,
    leases: Vec<(Reach, Vec<Lease>)>,
    stretches: Vec<Stretch>,
}

/// A part of a line of which everything is known.
struct Stretch {
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
    fn at_start(reach: &Reach, walk: Walk) -> Self {
        let (after, before) = match walk {
            Walk::Up(None) => (None, Some(LOWEST)),
            Walk::Up(Some(place)) => (Some(place), Some(behind(place))),
            Walk::Down(None) => (Some(HIGHEST), None),
            Walk::Down(Some(place)) => (Some(ahead_of(place)), Some(place)),
        };
        Self { reach: reach.clone(), after, before, met: Vec::new() }
    }

    /// Whether a walk begins within it.
    fn has_start_of(&self, reach: &Reach, walk: Walk) -> bool {
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
    fn along(&self, walk: Walk) -> Box<dyn Iterator<Item = &Ticket> + '_> {
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
    fn further(&self, walk: Walk) -> Option<Walk> {
        match walk {
            Walk::Up(_) if self.before == Some(LOWEST) => Some(Walk::Up(None)),
            Walk::Up(_) => self.before.map(|before| Walk::Up(Some(ahead_of(before)))),
            Walk::Down(_) if self.after == Some(HIGHEST) => Some(Walk::Down(None)),
            Walk::Down(_) => self.after.map(|after| Walk::Down(Some(behind(after)))),
        }
    }

    /// Adds what was met next on a walk, and whether that was the end of the line.
    fn extend(&mut self, walk: Walk, met: Vec<Ticket>, ended: bool) {
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

impl<'r> Seen<'r> {
    pub(super) fn new(records: &'r mut dyn Records, senses: &'r Senses) -> Self {
        Self { records, senses, leases: Vec::new(), stretches: Vec::new() }
    }
}

impl View for Seen<'_> {
    type Error = StoreError;

    fn now(&self) -> Moment {
        self.records.now()
    }

    fn draw(&mut self) -> Result<u64, StoreError> {
        self.records.draw()
    }

    fn lease(&mut self, id: LeaseId) -> Result<Option<Lease>, StoreError> {
        match self.leases.iter().flat_map(|(_, found)| found).find(|lease| lease.id == id) {
            Some(known) => Ok(Some(known.clone())),
            None => self.records.lease(id),
        }
    }

    fn leases(&mut self, reach: &Reach, visit: &mut dyn FnMut(Lease)) -> Result<(), StoreError> {
        let known = self.leases.iter().position(|(looked_up, _)| looked_up == reach);
        let place = match known {
            Some(place) => place,
            None => {
                let mut found = Vec::new();
                self.records.leases(reach, &mut |lease| found.push(lease))?;
                self.leases.push((reach.clone(), found));
                self.leases.len() - 1
            }
        };
        self.leases[place].1.iter().cloned().for_each(visit);
        Ok(())
    }

    fn ticket(&mut self, id: LeaseId) -> Result<Option<Ticket>, StoreError> {
        self.records.ticket(id)
    }

    fn tickets(
        &mut self,
        reach: &Reach,
        walk: Walk,
        visit: &mut dyn FnMut(Ticket) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let known = self.stretches.iter().position(|stretch| stretch.has_start_of(reach, walk));
        let place = known.unwrap_or(self.stretches.len());
        if known.is_none() {
            self.stretches.push(Stretch::at_start(reach, walk));
        }
        let stretch = &mut self.stretches[place];
        for ticket in stretch.along(walk) {
            if visit(ticket.clone()).is_break() {
                return Ok(());
            }
        }
        let Some(further) = stretch.further(walk) else { return Ok(()) };
        let (mut met, mut wants_more, mut ended) = (Vec::new(), true, true);
        self.records.tickets(reach, further, &mut |ticket| {
            met.push(ticket.clone());
            // Whoever looks for the first in line asks for the next one soon.
            if wants_more && visit(ticket).is_break() {
                wants_more = false;
                if matches!(walk, Walk::Up(_)) {
                    return ControlFlow::Continue(());
                }
            }
            ended = wants_more;
            if wants_more { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        stretch.extend(walk, met, ended);
        Ok(())
    }

    fn all(&mut self) -> Result<(Vec<LeaseId>, Vec<LeaseId>), StoreError> {
        let (leases, tickets) = self.records.everything()?;
        let leases = leases.iter().map(|lease| lease.id).collect();
        Ok((leases, tickets.iter().map(|ticket| ticket.id).collect()))
    }

    fn sight(&mut self, proof: &Proof) -> Sight {
        self.senses.look(proof)
    }
}
