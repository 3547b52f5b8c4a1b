//! Bench of a store: how long a lease takes from this machine.

use std::time::{Duration, Instant};

use lockkeeper_core::lease::{AcquireRequest, Outcome};
use lockkeeper_core::liveness::Contract;
use lockkeeper_core::record::{Claim, Priority};
use lockkeeper_core::resource::{Mode, Resource, Target};
use lockkeeper_core::waiting::Blocker;

use crate::Engine;
use crate::open::{OpenError, unique_owner};

/// What was measured. One thread of one process acquires and releases one name, again and again.
#[derive(Clone, Copy, Debug)]
pub struct StoreBench {
    /// How many leases were acquired and released.
    pub pairs: u32,
    /// The median time of one acquire and release.
    pub median: Duration,
    /// The 99th percentile of that time.
    pub slow: Duration,
    /// How many were acquired and released in a second.
    pub per_second: f64,
}

impl Engine {
    /// Acquires and releases the name `lockkeeper-bench/HOST` this often. Returns the blockers if another process holds it.
    pub fn bench(&self, pairs: u32) -> Result<Result<StoreBench, Vec<Blocker>>, OpenError> {
        let resident = self.resident().map_err(OpenError::Machine)?;
        let host = &self.probe().origin().host;
        let name = format!("lockkeeper-bench/{host}").parse().map_err(std::io::Error::other);
        let target = Target::Name(name.map_err(OpenError::Machine)?);
        let claim = Claim {
            owner: unique_owner("bench").map_err(OpenError::Machine)?,
            resources: vec![Resource { target, mode: Mode::Exclusive }],
            proof: resident.proof(),
            contract: Contract::Strict,
            ttl: None,
            reason: None,
            ticket: None,
            agent: None,
        };
        let request = AcquireRequest {
            claim,
            priority: Priority::default(),
            under: Vec::new(),
            wait: None,
            join: false,
        };
        let (begun, mut spans) = (Instant::now(), Vec::new());
        for _ in 0..pairs.max(1) {
            let begun = Instant::now();
            let lease = match self.acquire(&request)? {
                Outcome::Granted(grant) => grant.lease,
                Outcome::Held(blockers) => return Ok(Err(blockers)),
                Outcome::Waiting(_) | Outcome::Deadlock(_) | Outcome::Gone => return Ok(Err(Vec::new())),
            };
            // A lease that is lost meanwhile still counts: it was acquired.
            let _ = self.release(lease.id, Some(lease.token))?;
            spans.push(begun.elapsed());
        }
        let per_second = spans.len() as f64 / begun.elapsed().as_secs_f64();
        spans.sort_unstable();
        let (median, slow) = (spans[spans.len() / 2], spans[(spans.len() - 1) * 99 / 100]);
        Ok(Ok(StoreBench { pairs: pairs.max(1), median, slow, per_second }))
    }
}
