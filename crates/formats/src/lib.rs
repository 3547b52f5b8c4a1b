//! Foreign lock file formats: one record in each file, and one protocol to create, take over, renew and remove it.
//!
//! [`guard`] is the protocol, the same for every format. [`safe_open`] opens a file without hanging, following a link
//! or reading too much. A format defines the name of its file, the content of the record, and when a record is stale.
//!
//! This crate is unstable: it has no semver promise. Programs use the crate `lockkeeper`.

pub mod aiflow;
pub mod group;
pub mod guard;
pub mod json;
mod json_record;
pub mod registry;
pub mod safe_open;
#[cfg(feature = "sprint")]
pub mod sprint;
pub mod status;
pub mod swarm;
#[cfg(feature = "yaml")]
pub mod yaml;

use std::fmt;

pub use json_record::RecordError;

/// Whether a record is held or stale. A record that cannot be judged is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nobody may replace it.
    Held(HeldReason),
    /// Another holder may replace it.
    Stale(StaleReason),
}

impl Verdict {
    /// Says whether another holder may replace the record.
    pub const fn is_stale(self) -> bool {
        match self {
            Self::Stale(_) => true,
            Self::Held(_) => false,
        }
    }

    /// Returns `held` or `stale`.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Held(_) => "held",
            Self::Stale(_) => "stale",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held(reason) => write!(f, "held: {reason}"),
            Self::Stale(reason) => write!(f, "stale: {reason}"),
        }
    }
}

/// Why a record is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldReason {
    /// It has not expired.
    InTime,
    /// Its process is alive.
    ProcessAlive,
    /// It is empty or incomplete, and so new that its creator may still write it.
    BeingWritten,
    /// It cannot be parsed, so nobody knows.
    NotUnderstood,
    /// Another program changed it at the same time.
    Changed,
    /// It has neither a time nor a process: it counts until its program removes it.
    UntilRemoved,
}

impl fmt::Display for HeldReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InTime => "its time is not up",
            Self::ProcessAlive => "its process lives",
            Self::BeingWritten => "somebody may be writing it just now",
            Self::NotUnderstood => "its record cannot be understood",
            Self::Changed => "another program was faster",
            Self::UntilRemoved => "its program has not removed it",
        })
    }
}

/// Why another holder may replace a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StaleReason {
    /// It has expired.
    Expired,
    /// Its process has ended.
    ProcessGone,
    /// It is older than its format allows, although its process is alive.
    TooOld,
    /// Its creator never finished writing it.
    Torn,
    /// The user confirmed the takeover.
    Forced,
}

impl fmt::Display for StaleReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "its time is up",
            Self::ProcessGone => "its process has ended",
            Self::TooOld => "it is older than allowed",
            Self::Torn => "it was never written to its end",
            Self::Forced => "by force",
        })
    }
}
