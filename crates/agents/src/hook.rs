//! One hook call, from the bytes on standard input to the answer: finds the files, claims them, keeps the session's record.
//!
//! Everything that fails here lets the call pass, with a line in the log: a broken lock must not stop anybody's work.

mod announce;
mod attribution;
mod calls;
mod ends;
mod hard_links;
mod news;
mod plan;
mod staging;
mod stores;

use std::collections::BTreeSet;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use lockkeeper_core::id::{LeaseId, Owner, Token};
use lockkeeper_core::lease::{AgentAnswer, AgentCall};
use lockkeeper_core::liveness::{Proof, Voucher};
use lockkeeper_core::record::{Claim, Lease};
use lockkeeper_core::resource::Target;
use lockkeeper_core::time::Moment;
use lockkeeper_engine::open::{OpenError, lost_store};
use lockkeeper_engine::under;
use lockkeeper_platform::{holder_process, origin, wall_clock};
use thiserror::Error;

use crate::claims::{Settings, claim_of};
use crate::deny_text::deny_text;
use crate::hook_log::{HookLog, LOST_STORE};
use crate::repository::{Wanted, locate, takes_part};
use crate::session::{Activity, Session, Sessions};
use crate::{Answer, Event, HookInput, Marks, Printed};
use calls::CallChanges;
pub(crate) use news::tell_of_work_trees;
use plan::Plan;
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
    /// How long a call waits for a name that another owner has.
    pub patience: Duration,
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
    let is_after = matches!(input.event, Event::AfterTool | Event::ToolFailed);
    // After a tool the agent's record has all that is needed. The plan is only needed where it shows in which repository the
    // record is.
    let is_planned = input.event == Event::BeforeTool || (is_after && home.is_none());
    let mut plan = if is_planned { Plan::new(call, &input, &cwd) } else { Plan::default() };
    if home.is_none() && plan.wanted.is_empty() {
        return Printed::default();
    }
    let log_at =
        home.as_ref().or(plan.wanted.first().map(|wanted| &wanted.location)).map(|at| at.state.clone());
    let mut owner = input.owner();
    if let Some(home) = &home {
        owner = registered_owner(&input, &Sessions::new(&home.state)).unwrap_or(owner);
    }
    let hook = Hook { call, input: &input, owner, cwd };
    let answered = hard_links::add_claimed_names(&mut plan.wanted, &hook.owner)
        .and_then(|()| hook.run(&mut Stores::new(home.as_ref(), &plan.wanted), &plan));
    match answered {
        Ok(answer) => answer.render(input.harness, &input.event),
        Err(error) => {
            let message = with_causes(&error);
            log_at.iter().for_each(|state| HookLog::new(state).add(hook.owner.as_str(), &message));
            Printed::default()
        }
    }
}

/// Whether the leases around an agent cover what it wants.
fn is_covered(around: &[Arc<Claim>], wanted: &Wanted) -> bool {
    around.iter().any(|claim| claim.satisfies(&wanted.resources))
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
    fn run(&self, stores: &mut Stores, plan: &Plan) -> Result<Answer, HookError> {
        for store in stores.iter().filter(|store| lost_store(&store.state)) {
            HookLog::new(&store.state).add_once(self.owner.as_str(), LOST_STORE);
        }
        let known = stores.iter().next().and_then(|home| home.sessions.get(&self.owner));
        stores.add_known(&known.map(|session| session.elsewhere).unwrap_or_default());
        let goes_on = |task: &crate::BackgroundTask| self.owner.as_str().rsplit(':').next() != Some(&task.id);
        match self.input.event {
            Event::SessionEnds if self.goes_on_elsewhere(stores)? => Ok(Answer::Pass),
            Event::SessionEnds => self.end_session(stores).map(|()| Answer::Pass),
            Event::SubagentEnds if self.owner.all_above().next().is_some() => {
                self.end_subagent(stores).map(|()| Answer::Pass)
            }
            Event::TurnEnds if !self.input.background.iter().any(goes_on) => {
                self.end_turn(stores).map(|()| Answer::Pass)
            }
            // For example a notification while the agent rests: it does not mean that the agent works.
            Event::Other(_) => Ok(Answer::Pass),
            Event::SessionBegins => {
                self.forget_the_dead(stores);
                self.claim(stores, plan)
            }
            _ => self.claim(stores, plan),
        }
    }

    /// Whether the session works on in another process, which has called later than this one: it was resumed there.
    fn goes_on_elsewhere(&self, stores: &Stores) -> Result<bool, HookError> {
        let own = self.proof()?;
        let session = stores.iter().next().and_then(|home| home.sessions.get(&self.owner));
        Ok(session.is_some_and(|session| {
            let last = session.proof();
            let is_other =
                last.process().is_some() && own.process().is_some() && last.process() != own.process();
            is_other && last.origin == own.origin && !session.is_gone(&own.origin)
        }))
    }

    /// Removes the records of agents whose processes are gone, so that records do not pile up.
    fn forget_the_dead(&self, stores: &Stores) {
        if let (Ok(here), Some(home)) = (origin::origin(), stores.iter().next()) {
            // A record that is left does no harm.
            let _ = home.sessions.all(&here);
        }
    }

    /// Renews what the agent has, claims what it wants, and tells it what it has to know.
    fn claim(&self, stores: &mut Stores, plan: &Plan) -> Result<Answer, HookError> {
        let proof = self.proof()?;
        let changes = self.note_session(stores, &proof, plan)?;
        self.announce(stores, &proof)?;
        self.look(stores, &changes.look)?;
        calls::release(&changes.free)?;
        let wanted = if self.input.event == Event::BeforeTool { plan.wanted.as_slice() } else { &[] };
        if let Some(refused) = self.takes_others_along(plan)? {
            self.withdraw(stores, plan)?;
            return Ok(Answer::Deny(refused));
        }
        let mut taken: Vec<(usize, Vec<(LeaseId, Token)>)> = Vec::new();
        for at in 0..stores.len() {
            let store = stores.at(at);
            let mut of_store: Vec<&Wanted> =
                wanted.iter().filter(|wanted| wanted.location.state == store.state).collect();
            let around = self.claims_around(store)?;
            of_store.retain(|wanted| !is_covered(&around, wanted));
            if of_store.is_empty() && !store.exists() {
                continue;
            }
            let (answer, now) = self.call_patiently(store, self.agent_call(&proof, store, &of_store))?;
            self.remember_arrived(store, &answer, now)?;
            if !answer.denied.is_empty() {
                for (earlier, leases) in taken {
                    stores.at(earlier).release(&leases)?;
                }
                store.release(&names_of(&answer.picked_up))?;
                self.withdraw(stores, plan)?;
                return self.deny(stores.at(at), &of_store, &answer, now);
            }
            self.remember_granted(store, &of_store, &answer)?;
            for leases in [&answer.granted, &answer.picked_up] {
                self.keep_names(stores, plan, &store.state, leases)?;
            }
            let leases = answer.granted.iter().map(|lease| (lease.id, lease.token));
            taken.push((at, leases.chain(names_of(&answer.picked_up)).collect()));
        }
        self.tell(stores)
    }

    /// The leases of a store under which the agent runs.
    fn around(&self, state: &Path) -> Vec<LeaseId> {
        let value = (self.call.variable)(under::VARIABLE).unwrap_or_default();
        under::read(value.as_ref(), state)
    }

    /// The claims of the leases under which the agent runs. What they cover is held for the agent already.
    fn claims_around(&self, store: &Store) -> Result<Vec<Arc<Claim>>, HookError> {
        let around = self.around(&store.state);
        if around.is_empty() || !store.exists() {
            return Ok(Vec::new());
        }
        let engine = store.engine()?;
        let leases: Result<Vec<_>, _> = around.iter().map(|id| engine.lease(*id)).collect();
        let leases = leases.map_err(OpenError::Store)?;
        Ok(leases.into_iter().flatten().map(|lease| lease.claim).collect())
    }

    fn agent_call(&self, proof: &Proof, store: &Store, wanted: &[&Wanted]) -> AgentCall {
        let settings = (self.call.settings)(&store.root);
        let session = store.sessions.get(&self.owner).unwrap_or_default();
        let above = self.owner.all_above().filter_map(|above| store.sessions.get(&above));
        let unrenewed = above.chain([session.clone()]).flat_map(|session| session.unrenewed());
        let note = session.note;
        let claim = |wanted: &&Wanted| claim_of(wanted, &self.owner, proof, note.as_deref(), &settings);
        let (checks, claims): (Vec<&Wanted>, Vec<&Wanted>) =
            wanted.iter().partition(|wanted| wanted.only_checked);
        AgentCall {
            owner: self.owner.clone(),
            claims: claims.iter().map(claim).collect(),
            checks: checks.iter().map(claim).collect(),
            ttl: settings.working,
            stays: settings.ticket,
            unrenewed: unrenewed.map(LeaseId).collect(),
            files: Vec::new(),
            proof: proof.process().map(|_| proof.clone()),
        }
    }

    /// The proof of life of the claims: the process of the harness, which started this hook through a shell.
    fn proof(&self) -> Result<Proof, HookError> {
        let origin = origin::origin().map_err(HookError::Machine)?;
        // CLAUDE_PID may be that of another agent around this one.
        let variable = |name: &str| (self.call.variable)(name).filter(|_| name == "LOCKKEEPER_PID");
        let chosen =
            holder_process::choose(None, &variable).or_else(|_| holder_process::choose(None, &|_| None));
        let process = chosen.ok().flatten().map(|chosen| Voucher::Process(chosen.process));
        Ok(Proof { origin, voucher: process.unwrap_or(Voucher::Time) })
    }

    fn note_session(&self, stores: &Stores, proof: &Proof, plan: &Plan) -> Result<CallChanges, HookError> {
        let states: BTreeSet<&PathBuf> = plan.wanted.iter().map(|wanted| &wanted.location.state).collect();
        let mut changes = CallChanges::default();
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
                if is_home {
                    changes = self.change_calls(session, plan);
                    for state in states.iter().filter(|state| ***state != store.state) {
                        if !session.elsewhere.contains(state) && session.elsewhere.len() < MAX_ELSEWHERE {
                            session.elsewhere.push((*state).clone());
                        }
                    }
                }
                session.seen_at = wall_clock::epoch_seconds();
            };
            store.sessions.update(&self.owner, change).map_err(HookError::Sessions)?;
        }
        Ok(changes)
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
}

/// The leases among these that are for names.
fn names_of(leases: &[Lease]) -> Vec<(LeaseId, Token)> {
    let is_name = |lease: &&Lease| lease.claim.targets().all(|target| matches!(target, Target::Name(_)));
    leases.iter().filter(is_name).map(|lease| (lease.id, lease.token)).collect()
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
