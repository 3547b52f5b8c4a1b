//! What a decision sees: the records of one transaction, each read once, and the holders behind them.

use std::ops::ControlFlow;

use lockkeeper_core::draft::{View, Walk};
use lockkeeper_core::id::LeaseId;
use lockkeeper_core::liveness::{Proof, Sight};
use lockkeeper_core::record::{Lease, Ticket};
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
    lines: Vec<Line>,
}

/// A walk along a line, as far as somebody went.
struct Line {
    reach: Reach,
    walk: Walk,
    met: Vec<Ticket>,
    ended: bool,
}

impl Line {
    /// The walk from the last one that was met.
    fn further(&self) -> Walk {
        match (self.walk, self.met.last()) {
            (walk, None) => walk,
            (Walk::Up(_), Some(last)) => Walk::Up(Some(last.rank)),
            (Walk::Down(_), Some(last)) => Walk::Down(Some(last.rank)),
        }
    }
}

impl<'r> Seen<'r> {
    pub(super) fn new(records: &'r mut dyn Records, senses: &'r Senses) -> Self {
        Self { records, senses, leases: Vec::new(), lines: Vec::new() }
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
        self.records.lease(id)
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
        let known = self.lines.iter().position(|line| line.walk == walk && line.reach == *reach);
        let place = known.unwrap_or(self.lines.len());
        if known.is_none() {
            self.lines.push(Line { reach: reach.clone(), walk, met: Vec::new(), ended: false });
        }
        let line = &mut self.lines[place];
        for ticket in &line.met {
            if visit(ticket.clone()).is_break() {
                return Ok(());
            }
        }
        if line.ended {
            return Ok(());
        }
        let further = line.further();
        let (met, mut stopped) = (&mut line.met, false);
        self.records.tickets(reach, further, &mut |ticket| {
            met.push(ticket.clone());
            let flow = visit(ticket);
            stopped = flow.is_break();
            flow
        })?;
        line.ended = !stopped;
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
