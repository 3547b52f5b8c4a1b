//! Body of `POST /api/locks`, and its conversion to a request of the lease rules.

use std::num::NonZeroU32;

use lockkeeper_core::id::TicketName;
use lockkeeper_core::lease::{AcquireRequest, WaitTerms};
use lockkeeper_core::liveness::{Contract, Proof, Voucher};
use lockkeeper_core::record::{Claim, Priority};
use lockkeeper_core::resource::{Mode, Resource, Target};
use lockkeeper_core::time::Ttl;
use lockkeeper_engine::open::{OpenError, unique_owner};
use lockkeeper_engine::report::Report;
use lockkeeper_engine::views::ResourceView;
use lockkeeper_platform::holder_process;
use serde::Deserialize;
use utoipa::ToSchema;

use crate::connections::Peer;
use crate::extract::Span;
use crate::state::AppState;

/// The longest reason.
const MAX_REASON_BYTES: usize = 1_000;
/// The largest number of resources of one lease.
const MAX_RESOURCES: usize = 1_000;

/// A request for a lease.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
#[schema(example = json!({ "names": ["db"], "owner": "script:deploy", "ttl": "5m", "reason": "migrate" }))]
pub(crate) struct LockRequest {
    /// Names to hold, such as `db`.
    #[serde(alias = "locks")]
    names: Vec<String>,
    /// Patterns over paths to hold, such as `src/api/**`, relative to the root of the repository.
    paths: Vec<String>,
    /// Names and paths, each with its own mode.
    resources: Vec<ResourceView>,
    /// Hold `names` and `paths` in shared mode.
    shared: bool,
    /// How many owners may hold the names at the same time.
    slots: Option<u32>,
    /// The owner, as `kind:id`; a new unique owner by default.
    owner: Option<String>,
    /// How long the lease lasts without being renewed. Without this and `pid`, the TTL of the settings.
    ttl: Option<Span>,
    /// A process of this machine. The lease ends when the process exits.
    pid: Option<u32>,
    /// Why it is taken, for people.
    reason: Option<String>,
    /// The priority in the waiting line, from −100 to 100.
    priority: i32,
    /// Wait in line instead of being refused.
    wait: bool,
    /// A name for the ticket.
    ticket: Option<String>,
}

impl LockRequest {
    /// Converts it to a request of the lease rules.
    pub(super) fn into_request(self, state: &AppState, peer: Peer) -> Result<AcquireRequest, Report> {
        let resources = self.resources(state)?;
        let has_owner = self.owner.is_some();
        let owner = match &self.owner {
            Some(text) => text.parse()?,
            None => unique_owner("http").map_err(OpenError::Machine)?,
        };
        if self.reason.as_ref().is_some_and(|reason| reason.len() > MAX_REASON_BYTES || reason.contains('\0'))
        {
            return Err(Report::usage("the reason is too long").with_hint("say it in at most 1000 bytes"));
        }
        let (voucher, contract, ttl) = self.proof_of_life(state, peer)?;
        let proof = Proof { origin: state.leases().probe().origin().clone(), voucher };
        let ticket: Option<TicketName> = self.ticket.as_deref().map(str::parse).transpose()?;
        let priority = Priority::new(self.priority)?;
        let wait = self.wait.then(|| WaitTerms { waker: None, stays: state.settings().stays });
        let claim =
            Claim { owner, resources, proof, contract, ttl, reason: self.reason, ticket, agent: None };
        Ok(AcquireRequest { claim, priority, under: Vec::new(), wait, join: has_owner })
    }

    /// The proof of life: a process of this machine, or only the TTL.
    fn proof_of_life(
        &self,
        state: &AppState,
        peer: Peer,
    ) -> Result<(Voucher, Contract, Option<Ttl>), Report> {
        let given = self.ttl.as_ref().map(ttl).transpose()?;
        let Some(pid) = self.pid else {
            return Ok((Voucher::Time, Contract::Lease, given.or(Some(state.settings().ttl))));
        };
        if !peer.is_on_this_machine() {
            let message = "the number of a process means nothing on another machine";
            return Err(Report::usage(message).with_hint("leave `pid` out and give a `ttl`"));
        }
        match holder_process::choose(Some(pid), &|_| None)? {
            Some(chosen) => Ok((Voucher::Process(chosen.process), Contract::Strict, given)),
            None => Err(Report::usage(format!("{pid} is not a process"))),
        }
    }

    fn resources(&self, state: &AppState) -> Result<Vec<Resource>, Report> {
        let slots = self.slots.map(|slots| {
            NonZeroU32::new(slots).ok_or_else(|| Report::usage("a name needs at least one slot"))
        });
        let mode = match (self.shared, slots.transpose()?) {
            (true, Some(_)) => return Err(Report::usage("`shared` and `slots` exclude each other")),
            (true, None) => Mode::Shared,
            (false, Some(slots)) if slots.get() > 1 => Mode::Slots(slots),
            (false, _) => Mode::Exclusive,
        };
        let mut wanted: Vec<Resource> = Vec::new();
        for name in &self.names {
            wanted.push(Resource { target: Target::Name(name.parse()?), mode });
        }
        for path in &self.paths {
            wanted.push(Resource { target: Target::Path(state.below_root(path)?.parse()?), mode });
        }
        for view in &self.resources {
            wanted.push(resource(state, view)?);
        }
        let mut resources: Vec<Resource> = Vec::with_capacity(wanted.len().min(MAX_RESOURCES));
        for one in wanted {
            if matches!((&one.target, one.mode), (Target::Path(_), Mode::Slots(_))) {
                return Err(Report::usage("slots are for names, not for paths"));
            }
            if resources.len() >= MAX_RESOURCES {
                return Err(Report::usage(format!("one lease has at most {MAX_RESOURCES} resources")));
            }
            if !resources.contains(&one) {
                resources.push(one);
            }
        }
        if resources.is_empty() {
            return Err(Report::usage("there is nothing to hold").with_hint("give `names` or `paths`"));
        }
        Ok(resources)
    }
}

fn resource(state: &AppState, view: &ResourceView) -> Result<Resource, Report> {
    let target = match (&view.name, &view.path) {
        (Some(name), None) => Target::Name(name.parse()?),
        (None, Some(path)) => Target::Path(state.below_root(path)?.parse()?),
        (Some(_), Some(_)) | (None, None) => {
            return Err(Report::usage("a resource has either a `name` or a `path`"));
        }
    };
    let mode = view.parse_mode().ok_or_else(|| {
        Report::usage(format!("`{}` is no mode", view.mode.escape_debug()))
            .with_hint("modes are exclusive, shared and slots:N")
    })?;
    Ok(Resource { target, mode })
}

/// Converts a duration to a TTL.
pub(super) fn ttl(span: &Span) -> Result<Ttl, Report> {
    Ok(Ttl::new(span.get()?)?)
}
