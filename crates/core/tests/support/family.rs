//! Steps of agents and their sub-agents, beside the model.

use lockkeeper_core::id::{LeaseId, Owner};
use lockkeeper_core::lease::{self, AgentCall};
use lockkeeper_core::liveness::{Contract, ProcessRef, Voucher};
use lockkeeper_core::record::{Agent, Claim, Lease, Priority, Rank};
use lockkeeper_core::records::Effect;
use lockkeeper_core::waiting::meets;

use crate::model::Entry;
use crate::steps::{FIRST_AGENT, OWNERS, file};
use crate::world::{claim, seconds};
use crate::{STAYS, Trial, check_links};

impl Trial {
    pub fn agent(&self, owner: usize, tree: u8) -> Option<Agent> {
        let work_tree = ["1", "2"].get(usize::from(tree)).map(|tree| (*tree).into());
        (self.families && owner >= FIRST_AGENT).then_some(Agent { work_tree })
    }

    /// The claims of an owner and of those below it are gone.
    fn forget_family(&mut self, owner: &str) {
        let below = format!("{owner}:");
        let is_one =
            |claim: &Claim| claim.owner.as_str() == owner || claim.owner.as_str().starts_with(&below);
        self.model.held.retain(|entry| !is_one(&entry.claim));
        self.model.waiting.retain(|entry| !is_one(&entry.claim));
        let there: Vec<LeaseId> = self.world.records.tickets().map(|ticket| ticket.id).collect();
        for id in self.sleepers.asleep.keys().copied().collect::<Vec<_>>() {
            if !there.contains(&id) && self.world.records.lease(id).is_none() {
                self.sleepers.forget(id);
            }
        }
    }

    pub fn call(&mut self, owner: usize, files: &[usize], tree: u8) -> Option<Vec<Effect>> {
        let agent = self.agent(owner, tree)?;
        let voucher = Voucher::Process(ProcessRef { pid: self.pids[owner][2], started: 1 });
        let claims = files.iter().map(|pattern| Claim {
            contract: Contract::Lease,
            ttl: Some(seconds(40)),
            agent: Some(agent.clone()),
            ..claim(OWNERS[owner], voucher, vec![file(*pattern)])
        });
        let call = AgentCall {
            owner: format!("worker:{}", OWNERS[owner]).parse().unwrap(),
            claims: claims.collect(),
            checks: Vec::new(),
            ttl: seconds(40),
            stays: seconds(STAYS),
            unrenewed: Vec::new(),
            files: Vec::new(),
            proof: None,
        };
        let had_cycle = self.model.has_cycle();
        let (answer, effects, _) = self.world.decide(|overlay| lease::agent_call(overlay, &call));
        assert!(answer.denied.is_empty() || answer.granted.is_empty(), "all or none");
        // Of several equal leases of the agent the call keeps one.
        let records = &self.world.records;
        self.model.held.retain(|entry| {
            let is_equal = |lease: &Lease| {
                let (one, other) = (&lease.claim, &entry.claim);
                (&one.owner, &one.resources, &one.agent) == (&other.owner, &other.resources, &other.agent)
            };
            let is_own = entry.claim.owner == call.owner && entry.claim.agent.is_some();
            !is_own || records.lease(entry.id).is_some() || !records.leases().any(is_equal)
        });
        for lease in &answer.granted {
            let (id, claim) = (lease.id, Claim::clone(&lease.claim));
            let rank = Rank::new(self.world.now, Priority::default(), LeaseId(u64::MAX));
            let own = self.model.waiting.iter().find(|entry| {
                entry.claim.owner == claim.owner
                    && entry.claim.resources == claim.resources
                    && entry.claim.agent == claim.agent
            });
            let rank = own.map_or(rank, |entry| entry.rank);
            let blocked = !self.model.in_the_way(&claim, rank).is_empty();
            assert!(!self.prompt || !blocked, "granted over others: {id}");
        }
        for lease in answer.granted {
            let (id, claim) = (lease.id, Claim::clone(&lease.claim));
            self.model.waiting.retain(|entry| {
                self.world.records.ticket(entry.id).is_some()
                    || self.world.records.lease(entry.id).is_some()
                    || entry.claim.owner != claim.owner
                    || entry.claim.resources != claim.resources
            });
            self.model.held.push(Entry { id, claim, rank: Rank::of_upgrade(id), upgrades: None });
        }
        if answer.denied.is_empty() {
            let records = &self.world.records;
            for wanted in &call.claims {
                let holds = |lease: &Lease| {
                    lease.claim.owner == wanted.owner && lease.claim.satisfies(&wanted.resources)
                };
                assert!(records.leases().any(holds), "the call passed without a claim");
                let works_below = |lease: &Lease| {
                    wanted.owner.is_above(&lease.claim.owner)
                        && !lease.claim.gives_way_to(wanted)
                        && wanted.resources.iter().any(|wanted| meets(wanted, &lease.claim).is_some())
                };
                assert!(!records.leases().any(works_below), "the call passed while a sub-agent works");
            }
        }
        for denial in answer.denied {
            match denial.ticket {
                Some(ticket) if !self.model.waiting.iter().any(|entry| entry.id == ticket.id) => {
                    let claim = Claim::clone(&ticket.claim);
                    self.model.waiting.push(Entry {
                        id: ticket.id,
                        claim,
                        rank: ticket.rank,
                        upgrades: None,
                    });
                    let is_stuck = self.model.is_stuck(call.owner.as_str());
                    assert!(!self.prompt || had_cycle || !is_stuck, "an unseen cycle");
                }
                Some(_) => {}
                None => check_links(&denial.cycle),
            }
        }
        Some(effects)
    }

    /// A sub-agent stops.
    pub fn hand_up(&mut self, owner: usize) -> Vec<Effect> {
        let owner: Owner = format!("worker:{}", OWNERS[owner]).parse().unwrap();
        let (handed, effects, _) = self.world.decide(|overlay| lease::hand_up(overlay, &owner));
        if owner.all_above().next().is_some() && self.families {
            self.forget_family(owner.as_str());
        }
        for lease in handed {
            let (id, claim) = (lease.id, Claim::clone(&lease.claim));
            self.model.held.push(Entry { id, claim, rank: Rank::of_upgrade(id), upgrades: None });
        }
        effects
    }

    /// A session ends.
    pub fn end_session(&mut self, owner: usize) -> Vec<Effect> {
        let owner: Owner = format!("worker:{}", OWNERS[owner]).parse().unwrap();
        let (_, effects, _) = self.world.decide(|overlay| lease::end_session(overlay, &owner));
        if self.families {
            self.forget_family(owner.as_str());
        }
        effects
    }
}
