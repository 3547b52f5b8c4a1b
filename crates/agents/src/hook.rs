//! One hook call, from the bytes on standard input to the answer: finds the files, claims them, keeps the session's record.
//!
//! Everything that fails here lets the call pass, with a line in the log: a broken lock must not stop anybody's work.

mod announce;
mod ends;
mod stores;

use std::collections::BTreeSet;
use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};

use lockkeeper_core::id::{LeaseId, Owner, Token};
use lockkeeper_core::lease::{AgentAnswer, AgentCall};
use lockkeeper_core::liveness::{Proof, Voucher};
use lockkeeper_core::record::Lease;
use lockkeeper_core::time::Moment;
use lockkeeper_core::waiting::Obstacle;
use lockkeeper_engine::open::OpenError;
use lockkeeper_platform::{holder_process, origin, wall_clock};
use thiserror::Error;

use crate::claims::{Settings, WorkTrees, claim_of};
use crate::deny_text::deny_text;
use crate::hook_log::HookLog;
use crate::place::{Entry, Place};
use crate::quote::{one_line, quoted};
use crate::repository::{Wanted, locate, takes_part, wanted, wanted_tree};
use crate::session::{Activity, Session, Sessions};
use crate::{Answer, Event, HookInput, Marks, Printed, writes};
use stores::{Store, Stores};

/// In how many other repositories the claims of an agent are renewed.
const MAX_ELSEWHERE: usize = 20;

/// What a hook call depends on, besides its input.
pub struct HookCall<'a> {
    /// What was on standard input.
    pub input: &'a [u8],
    /// The environment variables that tell harnesses apart.
    pub marks: Marks,
    /// The folder of this process.
    pub cwd: PathBuf,
    /// The user's home folder.
    pub home: Option<PathBuf>,
    /// The state folder that the environment names.
    pub state: Option<PathBuf>,
    /// Reads an environment variable that names the agent's process.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
    /// How the agent's shell finds this program.
    pub program: &'a dyn Fn() -> String,
    /// The settings of the project with this root.
    pub settings: &'a dyn Fn(&Path) -> Settings,
}

/// Why a call was let pass without an answer.
#[derive(Debug, Error)]
enum HookError {
    #[error("cannot use the lease store")]
    Store(#[from] OpenError),
    #[error("cannot keep the records of agents")]
    Sessions(#[source] std::io::Error),
    #[error("cannot find out about this process or machine")]
    Machine(#[source] std::io::Error),
}

/// Answers one hook call. It never fails: what goes wrong is logged, and the call passes.
pub fn answer(call: &HookCall<'_>) -> Printed {
    let input = match HookInput::read(call.input, &call.marks) {
        Ok(input) => input,
        Err(unread) => {
            if let Some(location) = locate(&call.cwd, call.state.as_deref()).filter(takes_part) {
                HookLog::new(&location.state).add("-", &unread.to_string());
            }
            return Printed::default();
        }
    };
    let cwd = input.cwd.clone().unwrap_or_else(|| call.cwd.clone());
    let home = locate(&cwd, call.state.as_deref()).filter(takes_part);
    let wanted = if input.event == Event::BeforeTool { wanted_by(call, &input, &cwd) } else { Vec::new() };
    if home.is_none() && wanted.is_empty() {
        return Printed::default();
    }
    let log_at = home.as_ref().or(wanted.first().map(|wanted| &wanted.location)).map(|at| at.state.clone());
    let mut owner = input.owner();
    if let Some(home) = &home {
        owner = registered_owner(&input, &Sessions::new(&home.state)).unwrap_or(owner);
    }
    let hook = Hook { call, input: &input, owner, cwd };
    let answered = hook.run(&mut Stores::new(home.as_ref(), &wanted), &wanted);
    match answered {
        Ok(answer) => answer.render(input.harness, &input.event),
        Err(error) => {
            let message = with_causes(&error);
            log_at.iter().for_each(|state| HookLog::new(state).add(hook.owner.as_str(), &message));
            Printed::default()
        }
    }
}

/// What a call would write, in repositories that take part.
fn wanted_by(call: &HookCall<'_>, input: &HookInput, cwd: &Path) -> Vec<Wanted> {
    let Some(tool) = &input.tool else { return Vec::new() };
    let entry = |path: &Path| {
        let meta = std::fs::metadata(path).ok()?;
        Some(if meta.is_dir() { Entry::Folder } else { Entry::File })
    };
    let found = writes(tool, &Place { cwd, home: call.home.as_deref(), entry: &entry });
    let named = call.state.as_deref();
    let mut all: Vec<Wanted> = found.paths.iter().filter_map(|target| wanted(target, named)).collect();
    let trees = found.git.iter().filter(|git| git.whole_tree);
    all.extend(trees.filter_map(|git| wanted_tree(&git.folder, named)));
    all
}

/// The owner of a session whose parent is registered with more parts than the input says.
fn registered_owner(input: &HookInput, sessions: &Sessions) -> Option<Owner> {
    let parent = input.parent.as_ref()?;
    let here = origin::origin().ok()?;
    let is_parent = |session: &Session| session.owner.rsplit(':').next() == Some(parent);
    let above = sessions.all(&here).ok()?.into_iter().find(is_parent)?;
    input.owner_below(&above.owner.parse().ok()?)
}

/// One call of one owner.
struct Hook<'a> {
    call: &'a HookCall<'a>,
    input: &'a HookInput,
    owner: Owner,
    cwd: PathBuf,
}

impl Hook<'_> {
    fn run(&self, stores: &mut Stores, wanted: &[Wanted]) -> Result<Answer, HookError> {
        let known = stores.iter().next().and_then(|home| home.sessions.get(&self.owner));
        stores.add_known(&known.map(|session| session.elsewhere).unwrap_or_default());
        let goes_on = |task: &crate::BackgroundTask| self.owner.as_str().rsplit(':').next() != Some(&task.id);
        match self.input.event {
            Event::SessionEnds => self.end_session(stores).map(|()| Answer::Pass),
            Event::SubagentEnds if self.owner.all_above().next().is_some() => {
                self.end_subagent(stores).map(|()| Answer::Pass)
            }
            Event::TurnEnds if !self.input.background.iter().any(goes_on) => {
                self.end_turn(stores).map(|()| Answer::Pass)
            }
            // Such as a notification while the agent rests: it does not work because of that.
            Event::Other(_) => Ok(Answer::Pass),
            Event::SessionBegins => {
                self.forget_the_dead(stores);
                self.claim(stores, wanted)
            }
            _ => self.claim(stores, wanted),
        }
    }

    /// Removes the records of agents whose processes are gone, so that records do not pile up.
    fn forget_the_dead(&self, stores: &Stores) {
        if let (Ok(here), Some(home)) = (origin::origin(), stores.iter().next()) {
            // A record that is left does no harm.
            let _ = home.sessions.all(&here);
        }
    }

    /// Renews what the agent has, claims what it wants, and tells it what it has to know.
    fn claim(&self, stores: &mut Stores, wanted: &[Wanted]) -> Result<Answer, HookError> {
        let proof = self.proof()?;
        self.note_session(stores, &proof, wanted)?;
        self.announce(stores, &proof)?;
        let mut taken: Vec<(usize, Vec<(LeaseId, Token)>)> = Vec::new();
        for at in 0..stores.len() {
            let store = stores.at(at);
            let of_store: Vec<&Wanted> =
                wanted.iter().filter(|wanted| wanted.location.state == store.state).collect();
            if of_store.is_empty() && !store.exists() {
                continue;
            }
            let (answer, now) = store.call(&self.agent_call(&proof, store, &of_store))?;
            self.remember_arrived(store, &answer)?;
            if !answer.denied.is_empty() {
                for (earlier, leases) in taken {
                    stores.at(earlier).release(&leases)?;
                }
                return self.deny(stores.at(at), &of_store, &answer, now);
            }
            self.remember_granted(store, &of_store, &answer)?;
            taken.push((at, answer.granted.iter().map(|lease| (lease.id, lease.token)).collect()));
        }
        self.tell(stores)
    }

    fn agent_call(&self, proof: &Proof, store: &Store, wanted: &[&Wanted]) -> AgentCall {
        let settings = (self.call.settings)(&store.root);
        let note = store.sessions.get(&self.owner).and_then(|session| session.note);
        let claim = |wanted: &&Wanted| claim_of(wanted, &self.owner, proof, note.as_deref(), &settings);
        let (checks, claims): (Vec<&Wanted>, Vec<&Wanted>) =
            wanted.iter().partition(|wanted| wanted.only_checked);
        AgentCall {
            owner: self.owner.clone(),
            claims: claims.iter().map(claim).collect(),
            checks: checks.iter().map(claim).collect(),
            ttl: settings.working,
            stays: settings.ticket,
        }
    }

    /// What vouches for the claims: the process of the harness, which started this hook through a shell.
    fn proof(&self) -> Result<Proof, HookError> {
        let origin = origin::origin().map_err(HookError::Machine)?;
        // CLAUDE_PID may be that of another agent around this one.
        let variable = |name: &str| (self.call.variable)(name).filter(|_| name == "LOCKKEEPER_PID");
        let chosen =
            holder_process::choose(None, &variable).or_else(|_| holder_process::choose(None, &|_| None));
        let process = chosen.ok().flatten().map(|chosen| Voucher::Process(chosen.process));
        Ok(Proof { origin, voucher: process.unwrap_or(Voucher::Time) })
    }

    fn note_session(&self, stores: &Stores, proof: &Proof, wanted: &[Wanted]) -> Result<(), HookError> {
        let states: BTreeSet<&PathBuf> = wanted.iter().map(|wanted| &wanted.location.state).collect();
        for (at, store) in stores.iter().enumerate() {
            let is_home = at == 0;
            if !is_home && !states.contains(&store.state) {
                continue;
            }
            let change = |session: &mut Session| {
                session.harness = self.input.harness.kind().to_owned();
                session.set_proof(proof);
                session.cwd = self.cwd.to_string_lossy().into_owned();
                session.state = Activity::Works;
                session.seen_at = wall_clock::epoch_seconds();
                if is_home {
                    for state in states.iter().filter(|state| ***state != store.state) {
                        if !session.elsewhere.contains(state) && session.elsewhere.len() < MAX_ELSEWHERE {
                            session.elsewhere.push((*state).clone());
                        }
                    }
                }
            };
            store.sessions.update(&self.owner, change).map_err(HookError::Sessions)?;
        }
        Ok(())
    }

    /// Leases whose turn came are news, also if this event cannot tell the model.
    fn remember_arrived(&self, store: &Store, answer: &AgentAnswer) -> Result<(), HookError> {
        if answer.arrived.is_empty() {
            return Ok(());
        }
        let change = |session: &mut Session| {
            for lease in &answer.arrived {
                let file = targets(lease);
                session.denied.remove(&file);
                session.add_news(format!("{file} is yours now: it is free, and held for you."));
            }
        };
        store.sessions.update(&self.owner, change).map(|_| ()).map_err(HookError::Sessions)
    }

    fn remember_granted(
        &self,
        store: &Store,
        wanted: &[&Wanted],
        answer: &AgentAnswer,
    ) -> Result<(), HookError> {
        let session = store.sessions.get(&self.owner).unwrap_or_default();
        let was_denied = wanted.iter().any(|wanted| session.denied.contains_key(&wanted.shown));
        let mut elsewhere = answer.elsewhere.clone();
        if !elsewhere.is_empty() && (self.call.settings)(&store.root).work_trees != WorkTrees::Tell {
            elsewhere.clear();
        }
        if !was_denied && elsewhere.is_empty() {
            return Ok(());
        }
        let here =
            wanted.first().map(|wanted| wanted.location.root.display().to_string()).unwrap_or_default();
        let told = tell_of_work_trees(&store.sessions, &self.owner, &elsewhere, &here);
        let told = told.map_err(HookError::Sessions)?;
        let change = |session: &mut Session| {
            session.denied.retain(|path, _| !wanted.iter().any(|wanted| wanted.shown == *path));
            told.into_iter().for_each(|news| session.add_news(news));
        };
        store.sessions.update(&self.owner, change).map(|_| ()).map_err(HookError::Sessions)
    }

    fn deny(
        &self,
        store: &Store,
        wanted: &[&Wanted],
        answer: &AgentAnswer,
        now: Moment,
    ) -> Result<Answer, HookError> {
        let named = |denial: &lockkeeper_core::lease::Denial| {
            wanted.iter().find(|wanted| wanted.resources == denial.claim.resources).copied()
        };
        let denied: Vec<_> =
            answer.denied.iter().filter_map(|denial| Some((named(denial)?, denial))).collect();
        let change = |session: &mut Session| {
            session.state = Activity::Waits;
            denied.iter().for_each(|(wanted, _)| session.count_denied(&wanted.shown));
        };
        store.sessions.update(&self.owner, change).map_err(HookError::Sessions)?;
        let denied: Vec<_> = denied
            .iter()
            .map(|(wanted, denial)| (wanted.shown.as_str(), wanted.path.as_path(), *denial))
            .collect();
        Ok(Answer::Deny(deny_text(&denied, &self.owner, now, &store.sessions, &(self.call.program)())))
    }

    /// Tells the model what has happened since its last call, if it can be told at this event.
    fn tell(&self, stores: &Stores) -> Result<Answer, HookError> {
        if !Answer::can_tell(self.input.harness, &self.input.event) {
            return Ok(Answer::Pass);
        }
        let mut news = Vec::new();
        for store in stores.iter() {
            if store.sessions.get(&self.owner).is_none_or(|session| session.news.is_empty()) {
                continue;
            }
            let take = |session: &mut Session| news.append(&mut session.news);
            store.sessions.update(&self.owner, take).map_err(HookError::Sessions)?;
        }
        Ok(if news.is_empty() { Answer::Pass } else { Answer::Tell(news.join("\n")) })
    }
}

/// Tells agents in other work trees that `owner` changes the same files in `here`. Returns what `owner` has to be told.
pub(crate) fn tell_of_work_trees(
    sessions: &Sessions,
    owner: &Owner,
    elsewhere: &[Obstacle<Lease>],
    here: &str,
) -> io::Result<Vec<String>> {
    let mut told = Vec::new();
    for lease in elsewhere.iter().map(|found| &found.record) {
        let (other, file) = (&lease.claim.owner, targets(lease));
        let to_be_merged = "the two have to be merged later. Nobody is stopped.";
        if sessions.get(other).is_some() {
            let news = format!("{owner} also changes {file} in the work tree {here}: {to_be_merged}");
            sessions.update(other, |session| session.add_news(news))?;
        }
        let tree = lease.claim.agent.as_ref().and_then(|agent| agent.work_tree.as_deref());
        let tree = quoted(tree.unwrap_or_default());
        told.push(format!("{other} also changes {file} in the work tree {tree}: {to_be_merged}"));
    }
    Ok(told)
}

/// The file of a lease, as people call it.
fn targets(lease: &Lease) -> String {
    one_line(&ends::file_of(lease).unwrap_or_default())
}

/// An error and its causes on one line.
pub(crate) fn with_causes(error: &dyn Error) -> String {
    let mut texts = vec![error.to_string()];
    let mut cause = error.source();
    while let Some(error) = cause {
        texts.push(error.to_string());
        cause = error.source();
    }
    texts.dedup();
    texts.join(": ")
}
