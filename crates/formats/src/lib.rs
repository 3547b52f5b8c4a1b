//! Lock files of foreign formats: one record each, and one protocol to create, take over, renew and remove it.
//!
//! [`guard`] is the protocol, the same for every format. [`hostile`] opens whatever lies at a path without hanging,
//! following or swallowing it. A format says what its file is called, what stands in it, and when it is stale.

pub mod aiflow;
pub mod group;
pub mod guard;
pub mod hostile;
mod json;
pub mod registry;
#[cfg(feature = "sprint")]
pub mod sprint;
pub mod status;
pub mod swarm;
#[cfg(feature = "yaml")]
pub mod yaml;

use std::fmt;

pub use json::Unread;

/// What is to be made of a record. Any "don't know" means held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It stays.
    Held(HeldReason),
    /// It may be succeeded.
    Stale(StaleReason),
}

impl Verdict {
    /// Whether the record may be succeeded.
    pub const fn is_stale(self) -> bool {
        match self {
            Self::Stale(_) => true,
            Self::Held(_) => false,
        }
    }

    /// `held` or `stale`.
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

/// Why a record stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldReason {
    /// Its time is not up.
    InTime,
    /// Its process lives.
    ProcessAlive,
    /// It is empty or torn, and so young that somebody may be writing it.
    BeingWritten,
    /// It cannot be understood, so nobody knows.
    NotUnderstood,
    /// Another program changed it while we looked.
    Changed,
}

impl fmt::Display for HeldReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InTime => "its time is not up",
            Self::ProcessAlive => "its process lives",
            Self::BeingWritten => "somebody may be writing it just now",
            Self::NotUnderstood => "its record cannot be understood",
            Self::Changed => "another program was faster",
        })
    }
}

/// Why a record may be succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StaleReason {
    /// Its time is up.
    Expired,
    /// Its process has ended.
    ProcessGone,
    /// It is older than its format allows, although its process lives.
    TooOld,
    /// It was never written to its end, and nobody is at it any more.
    Torn,
    /// Somebody confirmed that it is to be succeeded, whatever it says.
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
