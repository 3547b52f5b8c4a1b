//! What goes wrong with leases, their store, and lock files of other formats.

use lockkeeper_core::lease::NotCurrent;

use super::{Exit, Report};
use crate::keeper::KeeperError;
use crate::lockfile::aiflow::AiflowError;
use crate::lockfile::group::GroupError;
use crate::lockfile::guard::GuardError;
use crate::lockfile::registry::RegistryError;
use crate::lockfile::swarm::SwarmError;
use crate::store::StoreError;

impl From<StoreError> for Report {
    fn from(error: StoreError) -> Self {
        let exit = if error.is_unreachable() { Exit::Unreachable } else { Exit::Failed };
        let code = match error {
            StoreError::Io { .. } | StoreError::Database { .. } => "STORE_FAILED",
            StoreError::Busy { .. } => "STORE_BUSY",
            StoreError::Damaged { .. } => "STORE_DAMAGED",
            StoreError::Foreign { .. } => "STORE_FOREIGN",
            StoreError::TooNew { .. } => "STORE_TOO_NEW",
            StoreError::TooOld { .. } => "STORE_TOO_OLD",
            StoreError::NetworkFileSystem { .. } => "STORE_ON_NETWORK",
            StoreError::Removed { .. } => "STORE_REMOVED",
            StoreError::Unreachable { .. } => "STORE_UNREACHABLE",
            StoreError::InDoubt { .. } => "STORE_IN_DOUBT",
            StoreError::Mismatch(_) => "INTERNAL",
        };
        Self::of(exit, code, &error).with_hint(error.hint())
    }
}

impl From<KeeperError> for Report {
    fn from(error: KeeperError) -> Self {
        match error {
            KeeperError::Id(error) => error.into(),
            KeeperError::Pattern(error) => error.into(),
            KeeperError::Span(error) => error.into(),
            KeeperError::Store(error) => error.into(),
            KeeperError::Lost(error) => error.into(),
            KeeperError::Invalid(message) => Self::usage(message),
            KeeperError::Held { .. } => Self::of(Exit::Refused, "LOCK_HELD", &error),
            KeeperError::Deadlock { .. } => Self::of(Exit::Refused, "DEADLOCK", &error),
            KeeperError::TicketRemoved => Self::of(Exit::Refused, "TICKET_REMOVED", &error),
            KeeperError::Machine(_) => Self::of(Exit::Failed, "MACHINE", &error)
                .with_hint("nothing was changed; check the limits of this process with `ulimit -a`, and that /proc is mounted"),
        }
    }
}

impl From<NotCurrent> for Report {
    fn from(error: NotCurrent) -> Self {
        Self::of(Exit::Refused, "NOT_CURRENT", &error)
            .with_hint("it was released, lost or broken: `lockkeeper locks` shows what is held now")
    }
}

impl From<GuardError> for Report {
    fn from(error: GuardError) -> Self {
        let code = match error {
            GuardError::Folder { .. } | GuardError::Unlockable { .. } => "LOCK_FOLDER_FAILED",
            GuardError::Network { .. } => "LOCK_FOLDER_ON_NETWORK",
            GuardError::Stuck { .. } => "LOCK_FOLDER_STUCK",
            GuardError::Hostile { .. } => "LOCK_FILE_HOSTILE",
            GuardError::Write { .. } | GuardError::ReadBack { .. } | GuardError::Rename { .. } => {
                "LOCK_FILE_FAILED"
            }
        };
        Self::of(Exit::Failed, code, &error).with_hint(error.hint())
    }
}

impl From<SwarmError> for Report {
    fn from(error: SwarmError) -> Self {
        let hint = error.hint();
        match error {
            SwarmError::Guard(error) => error.into(),
            SwarmError::Worker(error) => error.into(),
            SwarmError::Task(_) => Self::of(Exit::Usage, "BAD_INPUT", &error).with_hint(hint),
            SwarmError::ForeignFolder { .. } | SwarmError::List { .. } => {
                Self::of(Exit::Failed, "LOCK_FOLDER_FAILED", &error).with_hint(hint)
            }
            SwarmError::NotUnderstood { .. } | SwarmError::AnotherTask { .. } => {
                Self::of(Exit::Failed, "LOCK_FILE_HOSTILE", &error).with_hint(hint)
            }
        }
    }
}

impl From<AiflowError> for Report {
    fn from(error: AiflowError) -> Self {
        let hint = error.hint();
        match error {
            AiflowError::Guard(error) => error.into(),
            AiflowError::Request(_) => Self::of(Exit::Usage, "BAD_INPUT", &error).with_hint(hint),
            AiflowError::List { .. } => Self::of(Exit::Failed, "LOCK_FOLDER_FAILED", &error).with_hint(hint),
            AiflowError::NotUnderstood { .. } => {
                Self::of(Exit::Failed, "LOCK_FILE_HOSTILE", &error).with_hint(hint)
            }
        }
    }
}

impl From<GroupError> for Report {
    fn from(error: GroupError) -> Self {
        let (exit, code) = if error.is_usage() {
            (Exit::Usage, "BAD_DESCRIPTOR")
        } else {
            (Exit::Failed, "LOCK_FILE_FAILED")
        };
        Self::of(exit, code, &error).with_hint(error.hint())
    }
}

impl From<RegistryError> for Report {
    fn from(error: RegistryError) -> Self {
        Self::of(Exit::Failed, "REGISTRY_FAILED", &error).with_hint(error.hint())
    }
}
