//! The command of an attempt: program, arguments, environment and folder.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::runs::{ANSWER, RunFolder};
use crate::under;
use crate::work::claimer::Claimed;
use crate::work::processes::RUN_ID;
use lockkeeper_platform::exec::{Mode, Spec, StartError};

/// What to start for a claimed run, in the folder `dir`. `variables` are set besides those of the request; `state` is the state
/// folder, and `leases` identifies the lease store.
pub(super) fn spec(
    claimed: &mut Claimed,
    variables: &[(String, String)],
    (state, leases): (&Path, &Path),
    (dir, log): (PathBuf, PathBuf),
) -> Spec {
    let inherit = claimed.inherit.take();
    let mut words = claimed.request.command.iter().map(OsString::from);
    Spec {
        program: words.next().unwrap_or_default(),
        args: words.collect(),
        env: environment(claimed, variables, state, leases),
        only_env: true,
        dir: Some(dir),
        log: Some(log),
        inherit,
        mode: Mode::Worker,
    }
}

fn environment(
    claimed: &Claimed,
    variables: &[(String, String)],
    state: &Path,
    leases: &Path,
) -> Vec<(OsString, OsString)> {
    let own = claimed.request.env.iter().chain(variables);
    let mut all: Vec<(OsString, OsString)> = own.map(|(name, value)| (name.into(), value.into())).collect();
    let mut set = |name: &str, value: OsString| all.push((name.into(), value));
    set(RUN_ID, claimed.run.id.as_str().into());
    set("LOCKKEEPER_REQUEST_ID", claimed.run.request.as_str().into());
    set("LOCKKEEPER_ATTEMPT", claimed.run.attempt().to_string().into());
    set("LOCKKEEPER_DIR", state.into());
    // If the answer cannot be read, the command starts without it and asks again.
    if let Ok(Some(answer)) = RunFolder::new(state, &claimed.run.id).read_answer() {
        set(ANSWER, answer.into());
    }
    if let Some(lease) = &claimed.lease {
        set("LOCKKEEPER_LEASE", lease.id.to_string().into());
        set("LOCKKEEPER_TOKEN", lease.token.to_string().into());
        set(under::VARIABLE, under::value(leases, &[lease.id]));
    }
    all
}

/// Says why a command did not start, so that the person who wrote it knows what to change.
pub(super) fn why_not_started(error: &StartError, dir: &Path) -> String {
    if !dir.is_dir() {
        return format!("the folder {} is not there", dir.display());
    }
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}
