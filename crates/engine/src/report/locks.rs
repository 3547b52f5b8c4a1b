//! Reports about leases, their store, and lock files of other formats.

use lockkeeper_core::deadlock::Link;
use lockkeeper_core::lease::NotCurrent;
use lockkeeper_core::printable::printable;
use lockkeeper_core::waiting::Blocker;
use lockkeeper_formats::aiflow::AiflowError;
use lockkeeper_formats::group::GroupError;
use lockkeeper_formats::guard::GuardError;
use lockkeeper_formats::registry::RegistryError;
use lockkeeper_formats::swarm::SwarmError;
use lockkeeper_store::StoreError;
use serde_json::{Value, json};

use super::{Exit, Report};
use crate::migrate::MigrateError;
use crate::open::OpenError;

impl From<&StoreError> for Report {
    fn from(error: &StoreError) -> Self {
        let exit = if error.changed_nothing() { Exit::Unreachable } else { Exit::Failed };
        let code = match error {
            StoreError::Io { .. } | StoreError::Database { .. } => "STORE_FAILED",
            StoreError::Busy { .. } | StoreError::Kept { .. } => "STORE_BUSY",
            StoreError::Damaged { .. } => "STORE_DAMAGED",
            StoreError::Foreign { .. } => "STORE_FOREIGN",
            StoreError::TooNew { .. } => "STORE_TOO_NEW",
            StoreError::TooOld { .. } => "STORE_TOO_OLD",
            StoreError::NetworkFileSystem { .. } => "STORE_ON_NETWORK",
            StoreError::InUseElsewhere { .. } => "STORE_IN_USE_ELSEWHERE",
            StoreError::Removed { .. } => "STORE_REMOVED",
            StoreError::Moved { .. } => "STORE_MOVED",
            StoreError::NotEmpty { .. } => "STORE_NOT_EMPTY",
            StoreError::Unreachable { .. } => "STORE_UNREACHABLE",
            StoreError::InDoubt { .. } => "STORE_IN_DOUBT",
            StoreError::Mismatch(_) => "INTERNAL",
        };
        Self::of(exit, code, error).with_hint(error.hint())
    }
}

impl From<StoreError> for Report {
    fn from(error: StoreError) -> Self {
        Self::from(&error)
    }
}

impl From<&OpenError> for Report {
    fn from(error: &OpenError) -> Self {
        match error {
            OpenError::Store(error) => error.into(),
            OpenError::Machine(_) => Self::machine(error),
        }
    }
}

impl From<OpenError> for Report {
    fn from(error: OpenError) -> Self {
        Self::from(&error)
    }
}

impl From<MigrateError> for Report {
    fn from(error: MigrateError) -> Self {
        let (exit, code) = match &error {
            MigrateError::Same(_) | MigrateError::NoRuns(_) => (Exit::Usage, "BAD_INPUT"),
            MigrateError::NoStore(_) => (Exit::Unreachable, "NO_STORE"),
            MigrateError::InUse { .. } => (Exit::Refused, "STORE_IN_USE"),
            MigrateError::NotEmpty(_) | MigrateError::Store(StoreError::NotEmpty { .. }) => {
                (Exit::Refused, "STORE_NOT_EMPTY")
            }
            MigrateError::MovedElsewhere { .. } | MigrateError::NotThere { .. } => {
                (Exit::Refused, "STORE_MOVED")
            }
            MigrateError::Store(error) => return error.into(),
            MigrateError::Open(error) => return error.into(),
            MigrateError::Runs(_) => (Exit::Failed, "STORE_FAILED"),
        };
        let by = match &error {
            MigrateError::InUse { by, .. } => Some(by.clone()),
            _ => None,
        };
        let report = Self::of(exit, code, &error).with_hint(error.hint());
        match by {
            Some(by) => report.with_context("in_use_by", by),
            None => report,
        }
    }
}

impl From<NotCurrent> for Report {
    fn from(error: NotCurrent) -> Self {
        if let NotCurrent::NotTheOwner { id, .. } = &error {
            let hint = format!(
                "if it is yours, name its owner (--owner) or its token (--token); to take it from its holder: \
                 lockkeeper locks break {id} --yes"
            );
            return Self::of(Exit::Refused, "NOT_THE_OWNER", &error).with_hint(hint);
        }
        if let NotCurrent::NotTheWaiter { id, .. } = &error {
            let hint = format!(
                "if it is yours, name its owner (--owner); to take it out of the line: lockkeeper locks break {} --yes",
                id.as_ticket()
            );
            return Self::of(Exit::Refused, "NOT_THE_OWNER", &error).with_hint(hint);
        }
        if let NotCurrent::NotInLine(id) = &error {
            let hint =
                format!("it was granted, given up or is gone: `lockkeeper locks` shows whether {id} is held");
            return Self::of(Exit::Refused, "NOT_CURRENT", &error).with_hint(hint);
        }
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

/// Says in one line what a request waits for: "`db`, held by worker:1 (deploy), behind exec:2".
pub fn reason(blockers: &[Blocker]) -> String {
    let parts = blockers.iter().map(|blocker| {
        let mut text = plain(&blocker.resource.target.to_string());
        if let Some(found) = blocker.leases.first() {
            text.push_str(&format!(", held by {}", plain(found.record.claim.owner.as_str())));
            if let Some(reason) = &found.record.claim.reason {
                text.push_str(&format!(" ({})", plain(reason)));
            }
            if found.witness != blocker.resource.target.as_str() {
                text.push_str(&format!(", both match {}", plain(&found.witness)));
            }
        }
        if let Some(found) = blocker.tickets.first() {
            text.push_str(&format!(", behind {}", plain(found.record.claim.owner.as_str())));
        }
        if blocker.silent_until.is_some() {
            text.push_str(", which nobody gets yet: the server was started, restored or replaced, and holders write their leases again");
        }
        text
    });
    parts.collect::<Vec<_>>().join("; ")
}

/// Escapes control characters and characters that reverse text, so that text of others cannot steer a terminal or look like
/// something else.
pub fn plain(text: &str) -> String {
    printable(text).into_owned()
}

/// Reports a deadlock: the wait would close a cycle.
pub fn deadlock(links: &[Link]) -> Report {
    let own_command = matches!(links, [link] if link.waiter == link.holder);
    let cycle: Vec<String> = links.iter().map(ToString::to_string).collect();
    let (message, hint) = if own_command {
        let wanted = &links[0].wanted;
        let message =
            format!("deadlock refused: this command runs under a lease that holds {wanted} already");
        (message, "leave the inner lock out, or give both the same --owner")
    } else {
        let message = format!("deadlock refused: {}", cycle.join(", and "));
        (message, "release what you hold and take everything in one call, or in one same order everywhere")
    };
    let links: Vec<Value> = links
        .iter()
        .map(|link| json!({ "waiter": link.waiter.as_str(), "wanted": link.wanted, "holder": link.holder.as_str() }))
        .collect();
    Report::new(Exit::Refused, "DEADLOCK", message).with_hint(hint).with_context("cycle", links)
}
