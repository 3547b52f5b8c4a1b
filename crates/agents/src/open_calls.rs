//! Open calls: what an agent's tool calls may write and which names they hold, from the hook before a tool to the one after it.
//!
//! They are part of the record of a session. The harness may run several tools at once, so a name is released when the last
//! call that needs it has ended. A call whose end the harness never reports is closed when the turn begins or ends.

use std::path::PathBuf;

use lockkeeper_core::record::Lease;
use serde::{Deserialize, Serialize};

use crate::session::Session;

/// The most entries of a list.
const MAX_ENTRIES: usize = 100;

/// One call that has begun.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OpenCall {
    /// The id that the harness gives the call, or one that is made from its tool and arguments.
    pub id: String,
    /// When it began, or was last looked at, in microseconds since 1970.
    pub began: i64,
    /// Why more may be written than is known before. None: all that it writes is in `paths`.
    pub unknown: Option<String>,
    /// The root of the work tree to look at afterwards.
    pub root: PathBuf,
    /// The files that it writes, as absolute paths.
    pub paths: Vec<PathBuf>,
    /// The names that it holds.
    pub names: Vec<OpenName>,
    /// The tool has ended, and its command goes on in the background.
    pub background: bool,
    /// What the harness calls that background command.
    pub task: Option<String>,
    /// It is no call: `wait` has acquired these names for the next call.
    pub waited: bool,
}

/// A name that a call holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OpenName {
    /// The name.
    pub name: String,
    /// The state folder of the repository in which it is held.
    pub state: PathBuf,
    /// The id of the lease and its token. None while it is not granted, or if the agent held it before by itself.
    pub lease: Option<(u64, u64)>,
    /// Its command runs in the background, so the name stays held after the call.
    pub lasts: bool,
}

impl OpenName {
    fn is_same(&self, other: &Self) -> bool {
        (&self.name, &self.state) == (&other.name, &other.state)
    }
}

/// When an agent last wrote a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Wrote {
    /// In microseconds since 1970.
    pub at: i64,
    /// Whether the file was there afterwards.
    pub exists: bool,
}

impl Session {
    /// Keeps names that `wait` has acquired for the next call that needs them.
    pub fn keep_for_next_call(&mut self, state: &std::path::Path, leases: &[Lease]) {
        let name = |lease: &Lease| {
            let name = lease.claim.targets().next()?.as_str().to_owned();
            Some(OpenName {
                name,
                state: state.to_owned(),
                lease: Some((lease.id.0, lease.token.0)),
                lasts: false,
            })
        };
        let names: Vec<OpenName> = leases.iter().filter_map(name).collect();
        if !names.is_empty() {
            self.open_call(OpenCall { names, waited: true, ..OpenCall::default() });
        }
    }

    /// A call begins. It takes over the names that `wait` has acquired for it.
    pub(crate) fn open_call(&mut self, mut call: OpenCall) {
        call.paths.truncate(MAX_ENTRIES);
        for name in &mut call.names {
            for waited in self.calls.iter_mut().filter(|call| call.waited) {
                let found = waited.names.iter().position(|held| held.is_same(name));
                name.lease = name.lease.or(found.and_then(|at| waited.names.remove(at).lease));
            }
        }
        self.calls.retain(|call| !call.waited || !call.names.is_empty());
        self.calls.push(call);
        let excess = self.calls.len().saturating_sub(MAX_ENTRIES);
        self.calls.drain(..excess);
    }

    /// Closes the calls that `ends` chooses. Returns them, and the names that no other call needs.
    pub(crate) fn close_calls(
        &mut self,
        mut ends: impl FnMut(&OpenCall) -> bool,
    ) -> (Vec<OpenCall>, Vec<OpenName>) {
        let (closed, open): (Vec<OpenCall>, Vec<OpenCall>) =
            std::mem::take(&mut self.calls).into_iter().partition(|call| ends(call));
        self.calls = open;
        let mut free: Vec<OpenName> = Vec::new();
        for name in closed.iter().flat_map(|call| &call.names).filter(|name| name.lease.is_some()) {
            let needed =
                self.calls.iter_mut().flat_map(|call| &mut call.names).find(|other| other.is_same(name));
            match needed {
                Some(other) => other.lease = other.lease.or(name.lease),
                None if free.contains(name) => {}
                None => free.push(name.clone()),
            }
        }
        (closed, free)
    }

    /// A name was granted to a call.
    pub(crate) fn set_lease(&mut self, id: &str, name: &str, state: &std::path::Path, lease: (u64, u64)) {
        let of_call = self.calls.iter_mut().filter(|call| call.id == id).flat_map(|call| &mut call.names);
        for held in of_call.filter(|held| held.name == name && held.state == state) {
            held.lease = Some(lease);
        }
    }

    /// Notes that the agent has written a file. The oldest notes are dropped if there are too many.
    pub(crate) fn note_written(&mut self, path: &std::path::Path, at: i64) {
        let Some(key) = path.to_str() else { return };
        self.wrote.insert(key.to_owned(), Wrote { at, exists: path.symlink_metadata().is_ok() });
        if self.wrote.len() > MAX_ENTRIES {
            let oldest = self.wrote.iter().min_by_key(|(_, wrote)| wrote.at).map(|(path, _)| path.clone());
            oldest.map(|path| self.wrote.remove(&path));
        }
    }

    /// Whether a call of this agent may have written the file since then.
    pub(crate) fn may_have_written(&self, path: &std::path::Path, since: i64) -> bool {
        let open = |call: &OpenCall| call.unknown.is_some() || call.paths.iter().any(|open| open == path);
        let wrote = path.to_str().and_then(|path| self.wrote.get(path));
        wrote.is_some_and(|wrote| wrote.at >= since) || self.calls.iter().any(open)
    }

    /// Whether this agent is known to have written the file, or is about to.
    pub(crate) fn has_written(&self, path: &std::path::Path) -> bool {
        path.to_str().is_some_and(|path| self.wrote.contains_key(path))
            || self.calls.iter().flat_map(|call| &call.paths).any(|open| open == path)
    }

    /// Leases of names that later calls do not renew: those of git, and those that no call uses yet.
    pub(crate) fn unrenewed(&self) -> Vec<u64> {
        let brief = |call: &OpenCall| {
            let names = call.names.iter().filter(|name| call.waited || name.name.starts_with("git/"));
            names.filter_map(|name| Some(name.lease?.0)).collect::<Vec<u64>>()
        };
        self.calls.iter().flat_map(brief).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(id: &str, lease: Option<(u64, u64)>) -> OpenCall {
        let name = OpenName { name: "build".into(), lease, ..OpenName::default() };
        OpenCall { id: id.into(), names: vec![name], ..OpenCall::default() }
    }

    #[test]
    fn a_name_is_free_when_the_last_call_that_needs_it_has_ended() {
        let mut session = Session::default();
        session.open_call(call("1", Some((7, 7))));
        session.open_call(call("2", None));
        let (closed, free) = session.close_calls(|call| call.id == "1");
        assert_eq!((closed.len(), free.len()), (1, 0));
        let (_, free) = session.close_calls(|call| call.id == "2");
        assert_eq!(free[0].lease, Some((7, 7)));
        assert!(session.close_calls(|_| true).0.is_empty());
    }

    #[test]
    fn a_name_that_the_agent_held_before_is_not_released() {
        let mut session = Session::default();
        session.open_call(call("1", None));
        assert!(session.close_calls(|_| true).1.is_empty());
    }

    #[test]
    fn a_call_takes_over_what_wait_has_got() {
        let mut session = Session::default();
        session.open_call(OpenCall { waited: true, ..call("wait", Some((7, 7))) });
        assert_eq!(session.unrenewed(), [7]);
        session.open_call(call("1", None));
        assert_eq!(session.calls.len(), 1);
        assert!(session.unrenewed().is_empty());
        assert_eq!(session.close_calls(|_| true).1[0].lease, Some((7, 7)));
    }

    #[test]
    fn records_stay_small() {
        let mut session = Session::default();
        for number in 0..300 {
            session.open_call(call(&number.to_string(), None));
            session.note_written(std::path::Path::new(&format!("/{number}")), number);
        }
        assert_eq!((session.calls.len(), session.wrote.len()), (MAX_ENTRIES, MAX_ENTRIES));
        assert!(session.wrote.contains_key("/299") && !session.wrote.contains_key("/0"));
    }
}
