//! Caller of a tool: found out from what the harness and its hook say, never from an argument.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use lockkeeper_core::id::Owner;
use lockkeeper_core::liveness::{Origin, ProcessRef, Proof, Voucher};
use lockkeeper_engine::open::unique_owner;
use lockkeeper_platform::{holder_process, origin, process};
use serde_json::{Map, Value};

use super::arguments::CallError;
use crate::announced::{AnnouncedCall, AnnouncedCalls};
use crate::session::{Session, Sessions};

/// The harness of an agent that only this server has registered.
pub(super) const OWN_HARNESS: &str = "mcp";
/// The fields in which harnesses send the id of the tool call, which their hook has seen, too.
const CALL_IDS: [&str; 2] = ["claudecode/toolUseId", "callId"];

/// The parts of a call that show who makes it.
pub(super) struct CallMarks<'a> {
    /// The tool.
    pub(super) tool: &'a str,
    /// Its arguments.
    pub(super) arguments: &'a Map<String, Value>,
    /// The field `_meta` of the call, which the harness fills in and the model cannot.
    pub(super) meta: &'a Map<String, Value>,
}

/// The agent that makes a call.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    pub(super) owner: Owner,
    /// The proof of life of its claims.
    pub(super) proof: Proof,
    /// The harness that its hook has registered, else [`OWN_HARNESS`].
    pub(super) harness: String,
}

/// What is known of this process.
pub(super) struct Identity {
    here: Origin,
    /// The process of the harness.
    parent: Option<ProcessRef>,
    /// The owner of calls where no hook runs.
    own: Owner,
    own_proof: Proof,
}

impl Identity {
    pub(super) fn of_process(variable: fn(&str) -> Option<String>) -> io::Result<Self> {
        let here = origin::origin()?;
        // As the hook chooses it: both have to find the same process.
        let named = |name: &str| variable(name).filter(|_| name == "LOCKKEEPER_PID");
        let chosen =
            holder_process::choose(None, &named).or_else(|_| holder_process::choose(None, &|_| None));
        let parent = chosen.ok().flatten().map(|chosen| chosen.process);
        let own_proof = Proof { origin: here.clone(), voucher: Voucher::Process(process::current()?) };
        Ok(Self { here, parent, own: unique_owner(OWN_HARNESS)?, own_proof })
    }

    /// Where this process runs.
    pub(super) fn here(&self) -> &Origin {
        &self.here
    }

    /// Finds out who calls, from the records below these state folders.
    pub(super) fn caller(&self, states: &[&Path], marks: &CallMarks<'_>) -> Result<Caller, CallError> {
        let announced: Vec<AnnouncedCall> =
            states.iter().flat_map(|state| AnnouncedCalls::new(state).all()).collect();
        let text = |key: &str| marks.meta.get(key).and_then(Value::as_str).filter(|id| !id.is_empty());
        let ids: Vec<&str> = CALL_IDS.iter().filter_map(|key| text(key)).collect();
        let by_id = |call: &&AnnouncedCall| call.call.as_deref().is_some_and(|id| ids.contains(&id));
        let owners = |calls: Vec<&AnnouncedCall>| -> BTreeSet<String> {
            calls.into_iter().map(|call| call.owner.clone()).collect()
        };
        let mut found = owners(announced.iter().filter(by_id).collect());
        if found.is_empty()
            && let (Some(session), Some(thread)) = (text("sessionId"), text("threadId"))
        {
            return self.of_codex(states, session, thread);
        }
        if found.is_empty()
            && let Some(parent) = self.parent
        {
            let fits = |call: &&AnnouncedCall| {
                call.is_of(&self.here, parent) && call.is_for(marks.tool, marks.arguments)
            };
            found = owners(announced.iter().filter(fits).collect());
        }
        let mut found = found.into_iter();
        match (found.next(), found.next()) {
            (Some(owner), None) => self.named(states, &owner),
            (Some(one), Some(other)) => Err(CallError::Refused(format!(
                "{one} and {other} make this very call at the same time, and this server cannot tell which of them it answers. \
                 Nothing was changed. Called again after the other call has ended, it is answered."
            ))),
            (None, _) if self.parent_has_hooks(states) => Err(CallError::Refused(
                "the hook of lockkeeper has not announced this call, so it is not known which agent makes it. Nothing was changed. \
                 `lockkeeper doctor` shows whether the hook runs before MCP tools; `lockkeeper wait --owner OWNER PATH` in a \
                 shell works without it."
                    .to_owned(),
            )),
            (None, _) => {
                let harness = OWN_HARNESS.to_owned();
                Ok(Caller { owner: self.own.clone(), proof: self.own_proof.clone(), harness })
            }
        }
    }

    /// Codex says which session and which thread of it calls. The thread of a sub-agent has registered itself with a hook call,
    /// at the latest before this very call.
    fn of_codex(&self, states: &[&Path], session: &str, thread: &str) -> Result<Caller, CallError> {
        let above = format!("codex:{session}");
        let below = format!("{above}:{thread}");
        let is_registered =
            |owner: &str| owner.parse().is_ok_and(|owner| registered(states, &owner).is_some());
        let is_main = thread == session || (!is_registered(&below) && is_registered(&above));
        self.named(states, if is_main { &above } else { &below })
    }

    fn named(&self, states: &[&Path], owner: &str) -> Result<Caller, CallError> {
        let owner: Owner = owner.parse().map_err(|_| {
            CallError::Refused(
                "the ids that the harness sends cannot be part of an owner. Nothing was changed.".to_owned(),
            )
        })?;
        let session = registered(states, &owner);
        let proof = session.as_ref().map_or_else(|| self.own_proof.clone(), Session::proof);
        let harness = session.map_or_else(|| OWN_HARNESS.to_owned(), |session| session.harness);
        Ok(Caller { owner, proof, harness })
    }

    /// Whether a hook of the process that started this server has registered an agent. Then it announces calls.
    fn parent_has_hooks(&self, states: &[&Path]) -> bool {
        let Some(parent) = self.parent else { return false };
        let is_of_parent = |session: &Session| {
            session.harness != OWN_HARNESS
                && session.proof().process() == Some(parent)
                && session.boot == self.here.boot
        };
        states.iter().any(|state| {
            Sessions::new(state).all(&self.here).is_ok_and(|sessions| sessions.iter().any(is_of_parent))
        })
    }
}

fn registered(states: &[&Path], owner: &Owner) -> Option<Session> {
    states.iter().find_map(|state| Sessions::new(state).get(owner))
}
