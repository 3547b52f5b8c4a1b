//! A lease that somebody wants over HTTP, read into the words of the rules.

use std::num::NonZeroU32;

use lockkeeper_core::id::TicketName;
use lockkeeper_core::lease::{Request, WaitTerms};
use lockkeeper_core::liveness::{Contract, Proof, Voucher};
use lockkeeper_core::record::{Claim, Priority};
use lockkeeper_core::resource::{Mode, Resource, Target};
use lockkeeper_core::time::Ttl;
use serde::Deserialize;
use utoipa::ToSchema;

use super::super::connections::Peer;
use super::super::extract::Span;
use super::super::site::Site;
use lockkeeper_engine::open::{OpenError, unique_owner};
use lockkeeper_engine::report::Report;
use lockkeeper_engine::shape::ResourceShape;
use lockkeeper_platform::holder_process;

/// A reason has no more bytes than this.
const REASON_BYTES: usize = 1_000;
/// One lease has no more resources than this.
const MOST_RESOURCES: usize = 1_000;

/// A lease that is wanted.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Wish {
    /// Names to hold, such as `db`.
    #[serde(alias = "locks")]
    names: Vec<String>,
    /// Patterns over paths to hold, such as `src/api/**`, relative to the repository's root.
    paths: Vec<String>,
    /// Names and paths with a mode for each.
    resources: Vec<ResourceShape>,
    /// Share `names` and `paths` with others who share.
    shared: bool,
    /// Let at most so many hold the names at a time.
    slots: Option<u32>,
    /// Who holds it, as `kind:id`; somebody whom nobody else is, if not said.
    owner: Option<String>,
    /// How long it lives without being renewed; that of the settings if neither this nor `pid` is said.
    ttl: Option<Span>,
    /// A process of this machine that it is tied to.
    pid: Option<u32>,
    /// Why, for people.
    reason: Option<String>,
    /// How urgent it is, from −100 to 100.
    priority: i32,
    /// Take a place in line instead of being refused.
    wait: bool,
    /// A name for the place in line.
    ticket: Option<String>,
}

impl Wish {
    /// Reads it, as a lease of this machine or of time alone.
    pub(super) fn request(self, site: &Site, peer: Peer) -> Result<Request, Report> {
        let resources = self.resources(site)?;
        let named = self.owner.is_some();
        let owner = match &self.owner {
            Some(text) => text.parse()?,
            None => unique_owner("http").map_err(OpenError::Machine)?,
        };
        if self.reason.as_ref().is_some_and(|reason| reason.len() > REASON_BYTES || reason.contains('\0')) {
            return Err(Report::usage("the reason is too long").with_hint("say it in at most 1000 bytes"));
        }
        let (voucher, contract, ttl) = self.stand(site, peer)?;
        let proof = Proof { origin: site.leases().senses().origin().clone(), voucher };
        let ticket: Option<TicketName> = self.ticket.as_deref().map(str::parse).transpose()?;
        let priority = Priority::new(self.priority)?;
        let wait = self.wait.then(|| WaitTerms { bell: None, stays: site.settings().stays });
        let claim = Claim { owner, resources, proof, contract, ttl, reason: self.reason, ticket };
        Ok(Request { claim, priority, under: Vec::new(), wait, join: named })
    }

    /// What stands for the lease: a process of this machine, or time alone.
    fn stand(&self, site: &Site, peer: Peer) -> Result<(Voucher, Contract, Option<Ttl>), Report> {
        let given = self.ttl.as_ref().map(ttl).transpose()?;
        let Some(pid) = self.pid else {
            return Ok((Voucher::Time, Contract::Lease, given.or(Some(site.settings().ttl))));
        };
        if !peer.0.ip().is_loopback() {
            let message = "the number of a process means nothing on another machine";
            return Err(Report::usage(message).with_hint("leave `pid` out and give a `ttl`"));
        }
        match holder_process::choose(Some(pid), &|_| None)? {
            Some(chosen) => Ok((Voucher::Process(chosen.process), Contract::Strict, given)),
            None => Err(Report::usage(format!("{pid} is not a process"))),
        }
    }

    fn resources(&self, site: &Site) -> Result<Vec<Resource>, Report> {
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
            wanted.push(Resource { target: Target::Path(site.below_root(path)?.parse()?), mode });
        }
        for shown in &self.resources {
            wanted.push(resource(site, shown)?);
        }
        let mut resources: Vec<Resource> = Vec::with_capacity(wanted.len().min(MOST_RESOURCES));
        for one in wanted {
            if matches!((&one.target, one.mode), (Target::Path(_), Mode::Slots(_))) {
                return Err(Report::usage("slots are for names, not for paths"));
            }
            if resources.len() >= MOST_RESOURCES {
                return Err(Report::usage(format!("one lease has at most {MOST_RESOURCES} resources")));
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

fn resource(site: &Site, shown: &ResourceShape) -> Result<Resource, Report> {
    let target = match (&shown.name, &shown.path) {
        (Some(name), None) => Target::Name(name.parse()?),
        (None, Some(path)) => Target::Path(site.below_root(path)?.parse()?),
        (Some(_), Some(_)) | (None, None) => {
            return Err(Report::usage("a resource has either a `name` or a `path`"));
        }
    };
    let mode = lockkeeper_engine::shape::mode_from(&shown.mode).ok_or_else(|| {
        Report::usage(format!("`{}` is no mode", shown.mode.escape_debug()))
            .with_hint("modes are exclusive, shared and slots:N")
    })?;
    Ok(Resource { target, mode })
}

/// A TTL, if the span can be one.
pub(super) fn ttl(span: &Span) -> Result<Ttl, Report> {
    Ok(Ttl::new(span.get()?)?)
}
