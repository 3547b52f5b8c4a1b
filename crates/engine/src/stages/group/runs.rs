//! The runs of a group: one for each of its agents, several at a time.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use lockkeeper_core::id::RequestId;
use lockkeeper_core::request::{Request, RequestStatus};
use lockkeeper_core::run::Run;
use lockkeeper_platform::poll;

use super::waiting::HeldLock;
use super::{CHECK_EVERY, End, GroupExecution, GroupMessage, STOPPED};
use crate::runs::{RunError, short_id};
use crate::stages::agents::AgentCommand;
use crate::stages::phase_control::locked;
use crate::stages::{PhaseEvent, StageError};
use crate::work::ClaimResult;

/// How long after its grace a canceled run may take to end.
const CANCEL_TIME: Duration = Duration::from_secs(5);

impl GroupExecution<'_> {
    /// Waits for agents that still run from the execution that this one resumes: they share the group's lock.
    pub(super) fn wait_for_adopted(&self) -> Result<(), StageError> {
        let runs = self.worker.runs();
        for id in &self.ids {
            // A run whose command had not begun goes back to the queue, and one that waits for its next attempt has no process.
            while !self.control.is_stopped()
                && runs.stored_request(id)?.is_some_and(|known| known.status == RequestStatus::Running)
            {
                let (run, until) = (runs.find(id.as_str())?, Instant::now() + CHECK_EVERY);
                if run.process().is_none() {
                    break;
                }
                runs.wait(&run.id, Some(until), Some(self.control.stopped.as_fd()))?;
            }
        }
        Ok(())
    }

    /// Why the run of an agent is not done: the reason with the exit code, the last line of its output, and where to read more.
    fn why_failed(&self, agent: &str, run: &Run) -> String {
        let mut why = format!("agent {agent}: {}", run.status());
        why.extend(run.reason().map(|reason| format!(" {reason}")));
        why.extend(run.ending().map(|ending| format!(" {}", ending.exit_code())));
        let said = run.message().map(str::to_owned);
        let said = said.or_else(|| self.worker.runs().folder_of(&run.id).last_line());
        why.extend(said.map(|said| format!(": {said}")));
        format!("{why} (`lockkeeper run logs {}`)", short_id(run.id.as_str()))
    }

    /// Runs all agents, until one fails. The commands inherit the lock, so that it lasts as long as they run, also if this process is killed.
    pub(super) fn run_agents(
        &self,
        lock: Option<&HeldLock>,
        send: &(dyn Fn(GroupMessage) + Sync),
    ) -> Result<End, StageError> {
        let next = AtomicUsize::new(0);
        let failed: Mutex<Option<String>> = Mutex::new(None);
        let broken: Mutex<Option<StageError>> = Mutex::new(None);
        thread::scope(|scope| {
            for _ in 0..self.at_once.clamp(1, self.agents.len().max(1)) {
                scope.spawn(|| {
                    loop {
                        let index = next.fetch_add(1, Ordering::SeqCst);
                        let has_failed = locked(&failed).is_some() || locked(&broken).is_some();
                        let Some(agent) =
                            self.agents.get(index).filter(|_| !has_failed && !self.control.is_stopped())
                        else {
                            return;
                        };
                        match self.run_agent(agent, &self.ids[index], lock) {
                            Ok(Some(run)) => {
                                if RequestStatus::from(&run) != RequestStatus::Done {
                                    locked(&failed)
                                        .get_or_insert_with(|| self.why_failed(&agent.agent, &run));
                                }
                                let (group, agent) = (self.index, agent.agent.clone());
                                let event = PhaseEvent::AgentEnded { group, agent, run: Box::new(run) };
                                send(GroupMessage::Event(event));
                            }
                            Ok(None) => return,
                            Err(error) => {
                                locked(&broken).get_or_insert(error);
                                return;
                            }
                        }
                    }
                });
            }
        });
        if let Some(error) = broken.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(error);
        }
        let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(match failed {
            _ if self.control.is_stopped() => End::Stopped,
            Some(why) => End::Failed(why),
            None => End::Succeeded,
        })
    }

    /// Runs the request of one agent to its end. Returns none if everything was stopped before.
    fn run_agent(
        &self,
        agent: &AgentCommand,
        id: &RequestId,
        lock: Option<&HeldLock>,
    ) -> Result<Option<Run>, StageError> {
        let runs = self.worker.runs();
        let known = runs.stored_request(id)?;
        let mut run = match known {
            None => runs.submit(&self.request(agent, id), None)?.run,
            Some(known) if known.request.origin.as_deref() != Some(self.owner.as_str()) => {
                return Err(StageError::NotOurs(id.clone()));
            }
            Some(known) if known.status == RequestStatus::Done => {
                return Ok(Some(runs.find(id.as_str())?));
            }
            Some(_) => runs.find(id.as_str())?.id,
        };
        let mut is_first = true;
        loop {
            let found = runs.find(run.as_str())?;
            if found.status().is_terminal() {
                // A resumed execution retries a run that failed earlier, once.
                let failed_earlier = is_first && RequestStatus::from(&found) != RequestStatus::Done;
                if !failed_earlier || self.control.is_stopped() {
                    return Ok(Some(found));
                }
                run = runs.run_again(id)?;
            }
            is_first = false;
            if self.control.is_stopped() {
                let _ = runs.cancel(&run, Some(STOPPED));
                // An adopted run has processes, which take some time to end.
                let until = Instant::now().checked_add(self.worker.grace().saturating_add(CANCEL_TIME));
                runs.wait(&run, until, None)?;
                return Ok(None);
            }
            match self.worker.claim(&run)? {
                ClaimResult::Claimed(claimed) => {
                    locked(&self.control.active).push(run.clone());
                    // The stop may have come before the run was in the list.
                    if self.control.is_stopped() {
                        let _ = runs.cancel(&run, Some(STOPPED));
                    }
                    let shared = lock.map(|held| held.lock.shared()).transpose()?;
                    self.worker.execute(claimed.inheriting(shared))?;
                    locked(&self.control.active).retain(|active| *active != run);
                }
                // A user broke the group's lease, and another owner has it now. Try again later.
                ClaimResult::Held(_) | ClaimResult::FileHeld => {
                    let stopped = [self.control.stopped.as_fd()];
                    poll::wait(&stopped, Some(CHECK_EVERY)).map_err(RunError::Machine)?;
                }
                ClaimResult::NotClaimable => {
                    let until = Instant::now() + CHECK_EVERY;
                    runs.wait(&run, Some(until), Some(self.control.stopped.as_fd()))?;
                }
            }
        }
    }

    fn request(&self, agent: &AgentCommand, id: &RequestId) -> Request {
        let mut env = self.env.clone();
        env.push(("LOCKKEEPER_AGENT".to_owned(), agent.agent.clone()));
        env.push(("LOCKKEEPER_TASK".to_owned(), agent.task.clone().unwrap_or_default()));
        let title = match &agent.task {
            Some(task) => format!("{}: {}: {task}", self.name, agent.agent),
            None => format!("{}: {}", self.name, agent.agent),
        };
        Request {
            title,
            env,
            locks: vec![self.name.clone()],
            paths: self.paths.clone(),
            timeout: self.timeout,
            retry: self.retry.clone(),
            origin: Some(self.owner.to_string()),
            ..Request::new(id.clone(), agent.command.clone(), self.dir.to_owned())
        }
    }
}
