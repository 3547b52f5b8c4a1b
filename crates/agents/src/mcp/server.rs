//! State of the server, and what a call needs before its tool runs: the repository, the files, the caller.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use lockkeeper_core::id::{Name, Owner};
use lockkeeper_core::lease::AgentCall;
use lockkeeper_core::liveness::Contract;
use lockkeeper_core::record::{Agent, Claim};
use lockkeeper_core::resource::{Mode, Resource, Target};
use lockkeeper_engine::Engine;
use lockkeeper_engine::location::Location;
use lockkeeper_engine::open::{OpenError, has_store, open_engine, open_engine_to_read};
use lockkeeper_platform::wall_clock;
use serde_json::Value;

use super::McpOptions;
use super::arguments::{Asked, CallError, ToolCall};
use super::caller::{CallMarks, Caller, Identity, OWN_HARNESS};
use super::claiming::Interrupt;
use super::wording::path_text;
use crate::claims::{Settings, claim_of};
use crate::hook::with_causes;
use crate::repository::{Wanted, locate, takes_part, wanted_file};
use crate::session::{Activity, Session, Sessions};

/// The server of one harness process.
pub(super) struct Server {
    pub(super) options: McpOptions,
    pub(super) identity: Identity,
    /// The owners that only this server has registered, with the state folders.
    registered: Mutex<BTreeSet<(PathBuf, String)>>,
}

impl From<OpenError> for CallError {
    fn from(error: OpenError) -> Self {
        Self::Refused(format!(
            "the lease store cannot be used: {}. Nothing was changed.",
            with_causes(&error)
        ))
    }
}

impl From<io::Error> for CallError {
    fn from(error: io::Error) -> Self {
        Self::Refused(format!("the records of agents cannot be used: {error}"))
    }
}

impl Server {
    pub(super) fn new(options: McpOptions) -> io::Result<Self> {
        let identity = Identity::of_process(options.variable)?;
        Ok(Self { options, identity, registered: Mutex::default() })
    }

    /// Runs one tool.
    pub(super) fn run(
        &self,
        call: &ToolCall,
        marks: &CallMarks<'_>,
        interrupt: &Interrupt,
    ) -> Result<Value, CallError> {
        match call {
            ToolCall::Board(call) => self.board(call.path.as_deref()),
            ToolCall::Why(call) => self.why(&call.target),
            ToolCall::Check(call) => self.visit(marks, &call.paths)?.check(),
            ToolCall::Claim(call) => self.visit(marks, call.asked().paths)?.claim(call),
            ToolCall::Commit(call) => self.visit(marks, call.paths())?.commit(call, interrupt),
            ToolCall::Wait(call) => self.visit(marks, call.asked().paths)?.wait(call, interrupt),
            ToolCall::HandOver(call) => self.visit(marks, &call.paths)?.hand_over(&call.to),
            ToolCall::Note(call) => self.visit(marks, &[])?.note(&call.text),
            ToolCall::Release(call) => self.visit(marks, call.asked().paths)?.release(call),
        }
    }

    /// Ends what only this server held. Agents with a hook keep their claims: their sessions go on.
    pub(super) fn end(&self) {
        let registered = std::mem::take(&mut *self.registered.lock().unwrap_or_else(PoisonError::into_inner));
        for (state, owner) in registered {
            let Ok(owner) = owner.parse::<Owner>() else { continue };
            let sessions = Sessions::new(&state);
            if sessions.get(&owner).is_some_and(|session| session.harness != OWN_HARNESS) {
                continue;
            }
            // If the store cannot be used, the end of this process ends the claims.
            if has_store(&state) {
                let _ = open_engine(&state).map(|engine| engine.end_agent_session(&owner));
            }
            let _ = sessions.remove_family(&owner);
        }
    }

    /// The repository in which the server was started, if that takes part.
    pub(super) fn home(&self) -> Option<Location> {
        locate(&self.options.cwd, self.options.state.as_deref()).filter(takes_part)
    }

    /// One file or folder that a call names.
    pub(super) fn wanted(&self, path: &str) -> Result<Wanted, CallError> {
        let full = self.options.cwd.join(path);
        let shown = path_text(path);
        if path.contains(['*', '?']) && !full.exists() {
            return Err(CallError::Refused(format!(
                "`{shown}` has wildcards, which are not read here, and there is no such file: name files or whole folders"
            )));
        }
        wanted_file(&full, self.options.state.as_deref()).ok_or_else(|| {
            CallError::Refused(format!(
                "`{shown}` is not a file of a repository whose agents are coordinated (`lockkeeper init` makes it one)"
            ))
        })
    }

    /// Finds the repository of a call, its files and its caller.
    fn visit(&self, marks: &CallMarks<'_>, paths: &[String]) -> Result<Visit<'_>, CallError> {
        let wanted: Vec<Wanted> = paths.iter().map(|path| self.wanted(path)).collect::<Result<_, _>>()?;
        let home = self.home();
        let location = wanted.first().map(|wanted| wanted.location.clone()).or_else(|| home.clone());
        let Some(location) = location else {
            return Err(CallError::Refused(format!(
                "agents are not coordinated in {}: `lockkeeper init` there changes that, and absolute paths name files elsewhere",
                self.options.cwd.display()
            )));
        };
        if wanted.iter().any(|wanted| wanted.location.state != location.state) {
            return Err(CallError::Refused(
                "the paths are in several repositories: a call for each repository is answered".to_owned(),
            ));
        }
        let mut states: Vec<&Path> = home.iter().map(|home| home.state.as_path()).collect();
        states.push(&location.state);
        states.dedup();
        let caller = self.identity.caller(&states, marks)?;
        let settings = (self.options.settings)(&location.root);
        let sessions = Sessions::new(&location.state);
        Ok(Visit { server: self, sessions, settings, caller, wanted, location })
    }
}

/// One call of one caller in one repository.
pub(super) struct Visit<'s> {
    pub(super) server: &'s Server,
    pub(super) location: Location,
    pub(super) sessions: Sessions,
    pub(super) settings: Settings,
    pub(super) caller: Caller,
    pub(super) wanted: Vec<Wanted>,
}

impl Visit<'_> {
    /// The lease store, for a call that changes something.
    pub(super) fn engine(&self) -> Result<Engine, CallError> {
        Ok(open_engine(&self.location.state)?)
    }

    /// Keeps the record of the caller: makes it where no hook did, and notes that the agent was seen.
    pub(super) fn keep_record(&self, change: impl FnOnce(&mut Session)) -> Result<(), CallError> {
        if self.caller.harness == OWN_HARNESS {
            let entry = (self.location.state.clone(), self.caller.owner.to_string());
            self.server.registered.lock().unwrap_or_else(PoisonError::into_inner).insert(entry);
        }
        let all = |session: &mut Session| {
            if session.harness.is_empty() {
                session.harness.clone_from(&self.caller.harness);
                session.set_proof(&self.caller.proof);
                session.cwd = self.server.options.cwd.to_string_lossy().into_owned();
            }
            session.state = Activity::Works;
            session.seen_at = wall_clock::epoch_seconds();
            change(session);
        };
        self.sessions.update(&self.caller.owner, all)?;
        Ok(())
    }

    /// The claims to what a call asks for.
    pub(super) fn agent_call(&self, asked: Asked<'_>) -> Result<AgentCall, CallError> {
        let note = self.sessions.get(&self.caller.owner).and_then(|session| session.note);
        let mode = if asked.shared { Mode::Shared } else { Mode::Exclusive };
        let Caller { owner, proof, .. } = &self.caller;
        let mut claims: Vec<Claim> = Vec::new();
        for wanted in &self.wanted {
            let mut claim = claim_of(wanted, owner, proof, note.as_deref(), &self.settings);
            claim.resources.iter_mut().for_each(|resource| resource.mode = mode);
            claims.push(claim);
        }
        for name in asked.names {
            claims.push(Claim {
                owner: owner.clone(),
                resources: vec![Resource { target: Target::Name(lock_name(name)?), mode }],
                proof: proof.clone(),
                contract: Contract::Lease,
                ttl: Some(self.settings.working),
                reason: note.clone(),
                ticket: None,
                agent: Some(Agent { work_tree: None }),
            });
        }
        let (ttl, stays) = (self.settings.working, self.settings.ticket);
        Ok(AgentCall {
            owner: owner.clone(),
            claims,
            checks: Vec::new(),
            ttl,
            stays,
            unrenewed: Vec::new(),
            files: Vec::new(),
            proof: None,
        })
    }
}

/// Reads the name of something to lock.
pub(super) fn lock_name(text: &str) -> Result<Name, CallError> {
    text.parse().map_err(|error| CallError::Refused(format!("`{}` is not a name: {error}", path_text(text))))
}

/// Opens the lease store to read, if there is one.
pub(super) fn engine_to_read(state: &Path) -> Result<Option<Engine>, CallError> {
    if !has_store(state) {
        return Ok(None);
    }
    Ok(Some(open_engine_to_read(state)?))
}
