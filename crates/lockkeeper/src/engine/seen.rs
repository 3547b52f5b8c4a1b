//! What a decision sees: the records of one transaction, each read once, and the holders behind them.

use std::ops::ControlFlow;

use lockkeeper_core::id::LeaseId;
use lockkeeper_core::liveness::{Observation, Proof};
use lockkeeper_core::overlay::{Scan, View};
use lockkeeper_core::record::{Lease, Ticket};
use lockkeeper_core::resource::KeyRange;
use lockkeeper_core::time::Moment;

use super::MachineProbe;
use super::stretch::Stretch;
use crate::store::{Records, StoreError};

/// The records of a transaction, which do not change while a decision looks at them.
///
/// Rules ask for the same few lines again and again, from several sides; what was read once is remembered.
pub(super) struct Seen<'r> {
    records: &'r mut dyn Records,
    probe: &'r MachineProbe,
    leases: Vec<(KeyRange, Vec<Lease>)>,
    stretches: Vec<Stretch>,
}

impl<'r> Seen<'r> {
    pub(super) fn new(records: &'r mut dyn Records, probe: &'r MachineProbe) -> Self {
        Self { records, probe, leases: Vec::new(), stretches: Vec::new() }
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

    fn leases(&mut self, range: &KeyRange, visit: &mut dyn FnMut(Lease)) -> Result<(), StoreError> {
        let known = self.leases.iter().position(|(looked_up, _)| looked_up == range);
        let place = match known {
            Some(place) => place,
            None => {
                let mut found = Vec::new();
                self.records.leases(range, &mut |lease| found.push(lease))?;
                self.leases.push((range.clone(), found));
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
        range: &KeyRange,
        scan: Scan,
        visit: &mut dyn FnMut(Ticket) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let known = self.stretches.iter().position(|stretch| stretch.has_start_of(range, scan));
        let place = known.unwrap_or(self.stretches.len());
        if known.is_none() {
            self.stretches.push(Stretch::at_start(range, scan));
        }
        let stretch = &mut self.stretches[place];
        for ticket in stretch.along(scan) {
            if visit(ticket.clone()).is_break() {
                return Ok(());
            }
        }
        let Some(further) = stretch.further(scan) else { return Ok(()) };
        let (mut met, mut wants_more, mut ended) = (Vec::new(), true, true);
        self.records.tickets(range, further, &mut |ticket| {
            met.push(ticket.clone());
            // Whoever looks for the first in line asks for the next one soon.
            if wants_more && visit(ticket).is_break() {
                wants_more = false;
                if matches!(scan, Scan::Forward(_)) {
                    return ControlFlow::Continue(());
                }
            }
            ended = wants_more;
            if wants_more { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        stretch.extend(scan, met, ended);
        Ok(())
    }

    fn all(&mut self) -> Result<(Vec<LeaseId>, Vec<LeaseId>), StoreError> {
        let (leases, tickets) = self.records.everything()?;
        let leases = leases.iter().map(|lease| lease.id).collect();
        Ok((leases, tickets.iter().map(|ticket| ticket.id).collect()))
    }

    fn observation(&mut self, proof: &Proof) -> Observation {
        self.probe.observe(proof)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use lockkeeper_core::in_memory::InMemoryRecords;
    use lockkeeper_core::liveness::{Contract, Proof, Voucher};
    use lockkeeper_core::overlay::Change;
    use lockkeeper_core::record::{Claim, Priority, Rank};
    use lockkeeper_core::resource::{Mode, Resource, Target};
    use lockkeeper_core::time::Ttl;
    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::*;

    use super::*;
    use crate::platform::origin;

    fn ticket(id: u64, at: i64, name: &str, probe: &MachineProbe) -> Ticket {
        let resource = Resource { target: Target::Name(name.parse().unwrap()), mode: Mode::Exclusive };
        let claim = Claim {
            owner: format!("worker:{id}").parse().unwrap(),
            resources: vec![resource],
            proof: Proof { origin: probe.origin().clone(), voucher: Voucher::Time },
            contract: Contract::Strict,
            ttl: None,
            reason: None,
            ticket: None,
        };
        let now = Moment::from_micros(0);
        Ticket {
            id: LeaseId(id),
            claim: Arc::new(claim),
            priority: Priority::default(),
            rank: Rank { at, id: LeaseId(id) },
            enqueued_at: now,
            seen_at: now,
            stays: Ttl::new(Duration::from_secs(1)).unwrap(),
            waker: None,
            under: Vec::new(),
            upgrades: None,
        }
    }

    /// A line of tickets, and nothing else.
    struct Line(InMemoryRecords);

    impl Records for Line {
        fn now(&self) -> Moment {
            Moment::from_micros(0)
        }

        fn draw(&mut self) -> Result<u64, StoreError> {
            Err(StoreError::Mismatch("nothing is drawn here".to_owned()))
        }

        fn lease(&mut self, _id: LeaseId) -> Result<Option<Lease>, StoreError> {
            Ok(None)
        }

        fn leases(&mut self, _reach: &KeyRange, _visit: &mut dyn FnMut(Lease)) -> Result<(), StoreError> {
            Ok(())
        }

        fn ticket(&mut self, id: LeaseId) -> Result<Option<Ticket>, StoreError> {
            Ok(self.0.ticket(id).cloned())
        }

        fn tickets(
            &mut self,
            range: &KeyRange,
            scan: Scan,
            visit: &mut dyn FnMut(Ticket) -> ControlFlow<()>,
        ) -> Result<(), StoreError> {
            self.0.visit_tickets(range, scan, &mut |ticket| visit(ticket.clone()));
            Ok(())
        }

        fn everything(&mut self) -> Result<(Vec<Lease>, Vec<Ticket>), StoreError> {
            Ok((Vec::new(), self.0.tickets().cloned().collect()))
        }

        fn apply(&mut self, change: Change) -> Result<(), StoreError> {
            self.0.apply(change).map_err(|misfit| StoreError::Mismatch(misfit.to_string()))
        }
    }

    /// The ranks that a scan shows until it has shown `most`.
    fn shown(view: &mut Seen<'_>, range: &KeyRange, scan: Scan, most: usize) -> Vec<Rank> {
        let mut met = Vec::new();
        let mut visit = |ticket: Ticket| {
            met.push(ticket.rank);
            if met.len() >= most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        view.tickets(range, scan, &mut visit).unwrap();
        met
    }

    fn expected(line: &[Rank], scan: Scan, most: usize) -> Vec<Rank> {
        let mut met: Vec<Rank> = match scan {
            Scan::Forward(place) => {
                line.iter().copied().filter(|rank| place.is_none_or(|at| *rank > at)).collect()
            }
            Scan::Backward(place) => {
                line.iter().rev().copied().filter(|rank| place.is_none_or(|at| *rank < at)).collect()
            }
        };
        met.truncate(most);
        met
    }

    proptest! {
        /// Invariant 7.
        #[test]
        fn what_was_read_before_changes_no_walk(
            ranks in vec((prop_oneof![Just(i64::MIN), 0..4_i64], any::<bool>()), 0..9),
            walks in vec((any::<bool>(), any::<bool>(), option::of((0..5_i64, 0..11_u64)), 1..5_usize), 1..12),
        ) {
            let folder = tempfile::tempdir().unwrap();
            let probe = MachineProbe::new(folder.path(), origin::origin().unwrap()).unwrap();
            let tickets: Vec<Ticket> = (1..)
                .zip(&ranks)
                .map(|(id, (at, here))| ticket(id, *at, if *here { "here" } else { "there" }, &probe))
                .collect();
            let mut records = Line(InMemoryRecords::default());
            tickets.iter().for_each(|ticket| records.0.apply(Change::AddTicket(ticket.clone())).unwrap());
            let mut view = Seen::new(&mut records, &probe);
            for (up, here, place, most) in &walks {
                let target = Target::Name(if *here { "here" } else { "there" }.parse().unwrap());
                let own = tickets.iter().filter(|ticket| ticket.claim.targets().any(|own| *own == target));
                let mut line: Vec<Rank> = own.map(|ticket| ticket.rank).collect();
                line.sort();
                let place = place.map(|(at, id)| Rank { at, id: LeaseId(id) });
                let scan = if *up { Scan::Forward(place) } else { Scan::Backward(place) };
                assert_eq!(
                    shown(&mut view, &target.key_range(), scan, *most),
                    expected(&line, scan, *most),
                    "{scan:?}, at most {most}"
                );
            }
        }
    }
}
