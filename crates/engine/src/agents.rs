//! Use cases of agents: claim the files of a call, hand files over, end a turn, a sub-agent or a session. Each is one decision.

use lockkeeper_core::id::Owner;
use lockkeeper_core::lease::{self, AgentAnswer, AgentCall, Attributed, HandOver, HandedOver};
use lockkeeper_core::record::{Claim, Lease};
use lockkeeper_core::time::{Moment, Ttl};
use lockkeeper_store::StoreError;

use crate::Engine;

impl Engine {
    /// Renews the claims of an agent, and claims the files that it is about to change: all of them or none.
    ///
    /// Also returns the moment of the decision, on the store's clock.
    pub fn agent_call(&self, call: &AgentCall) -> Result<(AgentAnswer, Moment), StoreError> {
        let decided = self.decide(|overlay| Ok((lease::agent_call(overlay, call)?, overlay.now())));
        decided.map(|(answer, _)| answer)
    }

    /// Claims each changed file that is free, and finds the owners of the others. `checks` are never claimed.
    pub fn attribute(&self, claims: &[Claim], checks: &[Claim]) -> Result<Attributed, StoreError> {
        self.decide(|overlay| lease::attribute(overlay, claims, checks)).map(|(found, _)| found)
    }

    /// A sub-agent has stopped: its claims go to the owner above it.
    pub fn hand_up(&self, owner: &Owner) -> Result<Vec<Lease>, StoreError> {
        self.decide(|overlay| lease::hand_up(overlay, owner)).map(|(handed, _)| handed)
    }

    /// A session has ended: the claims of the agent and of its sub-agents end.
    pub fn end_agent_session(&self, owner: &Owner) -> Result<Vec<Lease>, StoreError> {
        self.decide(|overlay| lease::end_session(overlay, owner)).map(|(ended, _)| ended)
    }

    /// One agent gives claims to another: all of them or none.
    pub fn hand_over(&self, request: &HandOver) -> Result<HandedOver, StoreError> {
        self.decide(|overlay| lease::hand_over(overlay, request)).map(|(handed, _)| handed)
    }

    /// A turn has ended: releases `done`, and keeps the other claims of the agent for `ttl`.
    pub fn rest(&self, owner: &Owner, done: &[Lease], ttl: Ttl) -> Result<(), StoreError> {
        self.decide(|overlay| lease::rest(overlay, owner, done, ttl)).map(|((), _)| ())
    }
}
