//! News: what an agent has to be told at its next call, kept in its record until a harness can pass it on.

use std::io;

use lockkeeper_core::id::Owner;
use lockkeeper_core::lease::AgentAnswer;
use lockkeeper_core::record::Lease;
use lockkeeper_core::time::{Moment, format_span};
use lockkeeper_core::waiting::Obstacle;

use super::ends;
use super::stores::{Store, Stores};
use super::{Hook, HookError};
use crate::Answer;
use crate::claims::WorkTrees;
use crate::quote::{one_line, quoted};
use crate::repository::Wanted;
use crate::session::{Session, Sessions};

impl Hook<'_> {
    /// Adds leases that were granted since the last call to the news of the agent, also if this event cannot tell the model.
    pub(super) fn remember_arrived(
        &self,
        store: &Store,
        answer: &AgentAnswer,
        now: Moment,
    ) -> Result<(), HookError> {
        if answer.arrived.is_empty() {
            return Ok(());
        }
        let change = |session: &mut Session| {
            for lease in &answer.arrived {
                let file = targets(lease);
                let was_denied = session.denied.remove(&file).is_some();
                match lease.pickup_by {
                    None => session.add_news(format!("{file} is yours now: it is free, and held for you.")),
                    // A name is for one command, and stays reserved until that command begins. The agent is told once.
                    Some(end) if was_denied => session.add_news(format!(
                        "{file} is free now, and reserved for you for {}.",
                        format_span(end.since(now))
                    )),
                    Some(_) => {}
                }
            }
        };
        store.sessions.update(&self.owner, change).map(|_| ()).map_err(HookError::Sessions)
    }

    /// Forgets earlier denials of files that are granted now, and adds changes of the same files in other work trees to the news.
    pub(super) fn remember_granted(
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

    /// Tells the model what has happened since its last call, if it can be told at this event.
    pub(super) fn tell(&self, stores: &Stores) -> Result<Answer, HookError> {
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

/// The file or name of a lease, as people call it.
fn targets(lease: &Lease) -> String {
    let text = ends::file_of(lease).or_else(|| Some(lease.claim.targets().next()?.as_str().to_owned()));
    one_line(&text.unwrap_or_default())
}
