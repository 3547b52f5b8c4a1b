//! Finds leases by the name that they hold, and those that a caller may end.

use lockkeeper_core::id::{LeaseId, Name};
use lockkeeper_core::lease::Caller;
use lockkeeper_core::record::Lease;
use lockkeeper_core::resource::Target;
use lockkeeper_store::StoreError;

use crate::Engine;

/// The leases that hold a name.
#[derive(Clone, Debug)]
pub enum LeaseByName {
    /// There is exactly one, or exactly one that the caller may end.
    One(Lease),
    /// There are several. Only a person can choose.
    Several(Vec<Lease>),
    /// There is a lease, but of another owner: the caller may not end it.
    NotOwn(Lease),
    /// Nobody holds it.
    Free,
}

impl Engine {
    /// Finds the lease on a name: that of the caller, or without a caller that of any owner.
    pub fn lease_by_name(&self, name: &Name, caller: Option<&Caller>) -> Result<LeaseByName, StoreError> {
        let target = Target::Name(name.clone());
        let mut leases = self.look(|overlay| Ok(overlay.all()?.0))?;
        leases.retain(|lease| lease.claim.targets().any(|held| *held == target));
        let may_end = |lease: &Lease| caller.is_none_or(|caller| caller.may_end(lease));
        let (mut own, mut others): (Vec<Lease>, Vec<Lease>) = leases.into_iter().partition(may_end);
        Ok(match own.len() {
            0 if others.is_empty() => LeaseByName::Free,
            0 => LeaseByName::NotOwn(others.swap_remove(0)),
            1 => LeaseByName::One(own.swap_remove(0)),
            _ => LeaseByName::Several(own),
        })
    }

    /// The leases that a caller may end, the oldest first, without those that it works under.
    pub fn leases_of_caller(&self, caller: &Caller, under: &[LeaseId]) -> Result<Vec<Lease>, StoreError> {
        let mut leases = self.look(|overlay| Ok(overlay.all()?.0))?;
        leases.retain(|lease| !under.contains(&lease.id) && caller.may_end(lease));
        Ok(leases)
    }
}
