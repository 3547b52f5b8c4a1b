//! View of a machine that has workers.

use serde::Serialize;

use crate::runs::Host;

/// A machine that has workers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Host))]
pub struct HostView {
    /// Its name.
    pub host: String,
    /// The boot of its kernel: two machines may have one name.
    pub boot: String,
    /// How many of its workers live.
    pub workers: usize,
    /// How many queued runs they execute at the same time.
    pub jobs: u64,
    /// How many runs they execute now.
    pub runs: usize,
    /// How many seconds ago one of them was last heard of; null on a store of one machine.
    pub silent_seconds: Option<u64>,
}

impl HostView {
    /// Shows one machine.
    pub fn new(host: &Host) -> Self {
        Self {
            host: host.name.clone(),
            boot: host.boot.clone(),
            workers: host.workers,
            jobs: host.jobs,
            runs: host.running,
            silent_seconds: host.silent_for.map(|silent| silent.as_secs()),
        }
    }
}
