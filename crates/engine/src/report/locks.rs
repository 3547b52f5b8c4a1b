//! What goes wrong with leases, their store, and lock files of other formats.

use lockkeeper_core::lease::NotCurrent;

use super::{Exit, Report};
use crate::open::OpenError;
use lockkeeper_formats::aiflow::AiflowError;
use lockkeeper_formats::group::GroupError;
use lockkeeper_formats::guard::GuardError;
use lockkeeper_formats::registry::RegistryError;
use lockkeeper_formats::swarm::SwarmError;
use lockkeeper_store::StoreError;

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
            StoreError::Mismatch(_) => "INTERNAL",
        };
        Self::of(exit, code, &error).with_hint(error.hint())
    }
}

impl From<OpenError> for Report {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Store(error) => error.into(),
            OpenError::Machine(_) => Self::machine(&error),
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
            GuardError::UnsafeFile { .. } => "LOCK_FILE_HOSTILE",
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
