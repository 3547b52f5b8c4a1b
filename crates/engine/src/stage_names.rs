//! Names of an execution of stages: the owner of a group's lease, and the name that the executing process holds.

/// The owner of the lease of a group.
#[cfg(feature = "stages")]
pub(crate) fn group_owner(execution: &str, index: usize) -> String {
    format!("stage:{execution}.{}", index + 1)
}

/// The execution to which the owner of a group's lease belongs.
pub fn execution_of(owner: &str) -> Option<String> {
    let (execution, _) = owner.strip_prefix("stage:")?.rsplit_once('.')?;
    Some(execution.to_owned())
}

/// The name of the lease that the process holds which executes this group. `owner` is the owner of the group's lease.
pub(crate) fn lock_of(owner: &str) -> Option<String> {
    execution_of(owner).map(|execution| lock_name(&execution))
}

/// The name that the process which executes an execution holds a lease on.
pub(crate) fn lock_name(execution: &str) -> String {
    format!("stages/{execution}")
}
