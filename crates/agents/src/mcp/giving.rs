//! Tools that give something up or away: `release` and `hand_over`; and `note`, which tells others.

use lockkeeper_core::id::Owner;
use lockkeeper_core::lease::{HandOver, HandedOver};
use lockkeeper_core::record::Claim;
use lockkeeper_core::resource::Target;
use lockkeeper_engine::open::{OpenError, has_store};
use serde_json::{Value, json};

use super::arguments::{CallError, MAX_NOTE, ReleaseCall};
use super::server::{Visit, lock_name};
use super::wording::{claim_text, path_text, target_text};
use crate::session::Session;

impl Visit<'_> {
    /// Sets or removes the note.
    pub(super) fn note(&self, text: &str) -> Result<Value, CallError> {
        let note = checked_note(text)?;
        self.keep_record(|session| session.note = note)?;
        Ok(json!({ "done": true }))
    }

    /// Releases leases, and leaves the lines.
    pub(super) fn release(&self, call: &ReleaseCall) -> Result<Value, CallError> {
        let names = call.asked().names.iter().map(|name| lock_name(name).map(Target::Name));
        let names: Vec<Target> = names.collect::<Result<_, _>>()?;
        let is_meant = |claim: &Claim| {
            let is_path = |targets: Vec<&Target>| {
                self.wanted
                    .iter()
                    .any(|wanted| wanted.resources.iter().map(|one| &one.target).eq(targets.iter().copied()))
            };
            claim.agent.is_some()
                && (call.all()
                    || is_path(claim.targets().collect())
                    || claim.targets().all(|target| names.contains(target)))
        };
        let mut released: Vec<String> = Vec::new();
        if has_store(&self.location.state) {
            let engine = self.engine()?;
            let listing = engine.listing().map_err(OpenError::Store)?;
            for waiter in &listing.waiters {
                let claim = &waiter.ticket.claim;
                if claim.owner == self.caller.owner && is_meant(claim) {
                    // A lease that is granted at this moment is released below.
                    let _ = engine.give_up(&waiter.ticket).map_err(OpenError::Store)?;
                    released.push(claim_text(claim));
                }
            }
            for lease in engine.leases_of(&self.caller.owner).map_err(OpenError::Store)? {
                if is_meant(&lease.claim) {
                    // If the lease has ended meanwhile, nothing is left to release.
                    let _ = engine.release(lease.id, Some(lease.token)).map_err(OpenError::Store)?;
                    released.push(claim_text(&lease.claim));
                }
            }
        }
        released.sort();
        released.dedup();
        if self.sessions.get(&self.caller.owner).is_some() {
            self.keep_record(|session| session.denied.retain(|path, _| !released.contains(path)))?;
        }
        Ok(json!({ "released": released }))
    }

    /// Gives the files to another agent that is registered here.
    pub(super) fn hand_over(&self, to: &str) -> Result<Value, CallError> {
        let shown = path_text(to);
        let refused = |why: String| Ok(json!({ "done": false, "to": shown, "why": why }));
        let agents = self.sessions.all(self.server.identity.here())?;
        let Some(session) = agents.iter().find(|session| session.owner == to) else {
            return refused("no agent of this name is here: `board` shows all of them".to_owned());
        };
        let Ok(to) = to.parse::<Owner>() else {
            return refused("this is not the name of an owner".to_owned());
        };
        if to == self.caller.owner {
            return refused("this is yourself".to_owned());
        }
        let targets = |wanted: &crate::repository::Wanted| -> Vec<Target> {
            wanted.resources.iter().map(|resource| resource.target.clone()).collect()
        };
        let request = HandOver {
            from: self.caller.owner.clone(),
            claims: self.wanted.iter().map(targets).collect(),
            to: to.clone(),
            proof: session.proof(),
            ttl: self.settings.working,
        };
        match self.engine()?.hand_over(&request).map_err(OpenError::Store)? {
            HandedOver::Done(_) => {
                let paths: Vec<String> = self.wanted.iter().map(|wanted| path_text(&wanted.shown)).collect();
                let news = format!("{} handed over to you: {}", self.caller.owner, paths.join(", "));
                let change = |session: &mut Session| {
                    session.denied.retain(|path, _| !paths.contains(path));
                    session.add_news(news);
                };
                self.sessions.update(&to, change)?;
                Ok(json!({ "done": true, "to": shown }))
            }
            HandedOver::NotHeld(targets) => {
                let target = targets.first().map(target_text).unwrap_or_default();
                refused(format!("{target} is not claimed by you, so nothing was handed over"))
            }
            HandedOver::Blocked(lease) => refused(format!(
                "{} works on it, so nothing was handed over",
                path_text(lease.claim.owner.as_str())
            )),
        }
    }
}

/// A note as it is kept. None removes it.
pub(super) fn checked_note(text: &str) -> Result<Option<String>, CallError> {
    let length = text.chars().count();
    if length > MAX_NOTE {
        return Err(CallError::Malformed(format!("the note has {length} characters, more than {MAX_NOTE}")));
    }
    Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty()))
}
